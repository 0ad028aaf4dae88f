// Builds resume prototypes: the same function entered at a pc, whose parameters are the live slots there.
//
// Invariants:
// 1. A numeric loop that encloses the pc is rewritten as add, compare, jump: LuaJIT's own FORL may only be entered from
//    its FORI. Its FORI stays (it checks and converts), with a FORL beside it that never runs.
// 2. A pairs loop that encloses the pc runs as ITERC, so its control value is an ordinary key.
// 3. Parameter i moves to slot s(i) >= i, both ascending, so moves from the last to the first overwrite nothing.
#include <algorithm>

#include "ops/core/error.h"
#include "vm/bytecode/analysis.h"
#include "vm/portal/emit.h"

namespace lutra {

using bc::Ins;
using bc::Op;
using bc::Pc;

namespace {

bc::Slots needed_slots(const bc::Proto& p, const bc::Liveness& live, Pc pc, ResumeMode mode) {
  if (pc < 1 || pc >= p.size() || !live.reached[pc]) fail("resume: no pc ", pc, " to resume at");
  if (mode == ResumeMode::kAt) return live.before[pc];
  const Ins i = p.code[pc];
  bc::Slots slots;
  if (bc::op(i) == Op::ITERC) {
    slots = live.before[pc + 2] | live.before[bc::jump_target(pc + 1, p.code[pc + 1])];
    slots.reset(bc::op_a(i) - 1);
  } else {
    for (Pc s : bc::successors(p, pc)) slots |= live.before[s];
  }
  return slots & ~bc::effects(p, pc).writes;
}

// Returns the live slots. They include a method's `self` even if it is not needed, since tracebacks find the module by
// it.
bc::Slots live_slots(const bc::Proto& p, const bc::Liveness& live, Pc pc, ResumeMode mode) {
  bc::Slots slots = needed_slots(p, live, pc, mode);
  if (p.num_params > 0 && bc::local_name(p, pc, 0) == "self") slots.set(0);
  return slots;
}

// Returns the slots that a closure captures and that are assigned after their initialisation. A copy of such a slot
// would not be shared.
bc::Slots shared_slots(const bc::Proto& p) {
  bc::Slots s;
  for (const bc::KGC& k : p.kgc) {
    if (auto* child = std::get_if<bc::Child>(&k)) {
      for (bc::Upvalue u : child->upvalues) {
        if (u.local() && !u.immutable()) s.set(u.index());
      }
    }
  }
  return s;
}

// Returns the first slot above those of the call with which the frame continues.
unsigned above_call(const bc::Proto& p, const ResumeSpec& spec, unsigned framesize) {
  if (spec.mode == ResumeMode::kAt) return framesize;
  const unsigned values = 1u + unsigned(spec.num_args);
  const unsigned callee = bc::callee_slot(p.code[spec.pc]) >= 0 ? bc::op_a(p.code[spec.pc]) : framesize;
  return std::max(framesize, callee + values + 2);
}

// Returns the number of slots for sharing: the closures, then the widest call that shares upvalues.
unsigned slots_of_shares(const ResumeSpec& spec) {
  if (!spec.shares || spec.shares->empty()) return 0;
  size_t widest = 0;
  for (const Share& s : *spec.shares) widest = std::max(widest, s.upvalues.size());
  return unsigned(spec.shares->size() + kShareSlots + 2 * widest);
}

bool encloses(const bc::Loop& l, Pc pc) { return pc >= l.first_body && pc <= l.end; }

class ResumeBuilder {
 public:
  ResumeBuilder(const bc::Dump& dump, const ResumeSpec& spec)
      : dump_(dump), spec_(spec), p_(dump.top()), live_(bc::liveness(p_)), loops_(bc::loops(p_)), editor_(p_) {}

  ResumeProto build() {
    const std::string why = why_not_resumable(p_, spec_.pc, spec_.mode, spec_.shares.has_value());
    if (!why.empty()) fail("resume: ", why);
    ResumeProto out;
    const bc::Slots slots = live_slots(p_, live_, spec_.pc, spec_.mode);
    for (unsigned s = 0; s < slots.size(); ++s) {
      if (slots[s]) out.live.push_back(s);
    }
    out.hidden = hidden_slots(out.live);
    const unsigned num_params = static_cast<unsigned>(out.live.size()) + call_values() + unsigned(spec_.closures);
    framesize_ = std::max<unsigned>(p_.framesize, num_params);
    emit_entry(out.live);
    for (const bc::Loop& l : loops_) {
      if (encloses(l, spec_.pc)) rewrite_loop(l);
    }
    rewrite_varargs(num_params);
    Editor::Result r = editor_.finish(framesize_);
    r.proto.num_params = static_cast<uint8_t>(num_params);
    out.old_pc = r.old_pc;
    out.patched = finish_patch(dump_, std::move(r));
    return out;
  }

 private:
  // Returns the number of parameters after the live slots: the callee and its arguments.
  unsigned call_values() const { return spec_.mode == ResumeMode::kAfterCall ? 1u + spec_.num_args : 0; }

  std::vector<unsigned> hidden_slots(const std::vector<unsigned>& slots) const {
    bc::Slots control;
    for (const bc::Loop& l : loops_) {
      if (!encloses(l, spec_.pc) || l.kind == bc::Loop::Kind::kLoop) continue;
      const unsigned first = l.kind == bc::Loop::Kind::kFor ? l.base : l.base - 3;
      for (unsigned s = first; s < first + 3; ++s) control.set(s);
    }
    std::vector<unsigned> out;
    for (unsigned s : slots) {
      if (control[s]) out.push_back(s);
    }
    return out;
  }

  void emit_entry(const std::vector<unsigned>& slots) {
    const unsigned n = static_cast<unsigned>(slots.size()), m = call_values();
    PortalEmitter e(p_, editor_.entry(), framesize_);
    e.clear(n + m + unsigned(spec_.closures), framesize_);
    const unsigned kept = above_call(p_, spec_, framesize_);
    keep_closures(e, kept);
    auto live_moves = [&] {
      for (unsigned i = n; i-- > 0;) e.move(slots[i], i);
      share_variables(e, kept);
    };
    if (spec_.mode == ResumeMode::kAt) {
      live_moves();
      e.jump_start(spec_.pc);
    } else {
      emit_call(e, n, m, live_moves);  // the call's values are the parameters after the live slots
    }
    framesize_ = std::max(framesize_, e.used());
  }

  // Saves the closures that share upvalues above the frame, since the moves of live slots would overwrite these
  // parameters.
  void keep_closures(PortalEmitter& e, unsigned kept) {
    if (!spec_.shares || spec_.shares->empty()) return;
    e.need(kept + slots_of_shares(spec_));
    e.clear(framesize_, kept);
    for (size_t i = 0; i < spec_.shares->size(); ++i) e.move(kept + unsigned(i), unsigned((*spec_.shares)[i].result));
  }

  void share_variables(PortalEmitter& e, unsigned kept) {
    if (!spec_.shares || spec_.shares->empty()) return;
    const unsigned scratch = e.scratch();
    e.set_scratch(kept + unsigned(spec_.shares->size()));
    for (size_t i = 0; i < spec_.shares->size(); ++i) {
      e.share((*spec_.shares)[i], [&](unsigned dst) { e.move(dst, kept + unsigned(i)); });
    }
    e.set_scratch(scratch);
  }

  template <class F>
  void emit_call(PortalEmitter& e, unsigned from, unsigned m, F live_moves) {
    const Ins i = p_.code[spec_.pc];
    const bool in_place = bc::op(i) == Op::CALL || bc::op(i) == Op::CALLM || bc::op(i) == Op::CALLT ||
                          bc::op(i) == Op::CALLMT || bc::op(i) == Op::ITERC;
    // A call above the frame takes its values before the live slots are moved. A call in place takes them first, too,
    // into slots above the live ones.
    if (!in_place) {
      e.set_scratch(std::max(framesize_, from + m));
      for (unsigned v = m; v-- > 0;) e.move(call_slot(e.scratch(), v), from + v);
      e.need(e.scratch() + m + 2);
      live_moves();
      e.call_like(spec_.pc, m - 1, [](unsigned) {});
      return;
    }
    e.call_like(spec_.pc, m - 1, [&](unsigned callee) {
      e.need(callee + m + 2);
      for (unsigned v = m; v-- > 0;) e.move(call_slot(callee, v), from + v);
      live_moves();
    });
  }

  static unsigned call_slot(unsigned callee, unsigned v) { return v == 0 ? callee : callee + 1 + v; }

  void rewrite_loop(const bc::Loop& l) {
    if (l.kind == bc::Loop::Kind::kFor) rewrite_for(l);
    if (l.kind == bc::Loop::Kind::kIterN) rewrite_pairs(l);
  }

  void rewrite_for(const bc::Loop& l) {
    const unsigned index = l.base, limit = l.base + 1, step = l.base + 2;
    Block& head = editor_.replace(l.head);
    const unsigned fori = head.jump(Op::FORI, l.base);
    const unsigned body = head.size();
    head.jump(Op::JMP, kFrameEnd, {JumpTarget::Kind::kStart, l.first_body});
    head.jump(Op::FORL, l.base, {JumpTarget::Kind::kLocal, body});
    head.bind(fori);
    head.jump(Op::JMP, kFrameEnd, {JumpTarget::Kind::kStart, l.end + 1});

    PortalEmitter e(p_, editor_.replace(l.end), framesize_);
    Block& b = e.block();
    const unsigned zero = l.base + 3;  // the slot of the loop variable, which is dead here
    e.add(bc::ins_abc(Op::ADDVV, index, index, step));
    e.integer(zero, 0);
    // With a step of 0 or -0 the loop continues, since FORI has let it begin and the index does not change. So the sign
    // of -0 does not matter.
    e.add(bc::ins_ad(Op::ISEQV, step, zero));
    const unsigned still = b.jump(Op::JMP, kFrameEnd);
    e.add(bc::ins_ad(Op::ISLT, step, zero));
    const unsigned down = b.jump(Op::JMP, kFrameEnd);
    e.add(bc::ins_ad(Op::ISLE, index, limit));
    const unsigned on = b.jump(Op::JMP, kFrameEnd);
    e.jump_start(l.end + 1);
    b.bind(down);
    e.add(bc::ins_ad(Op::ISLE, limit, index));
    const unsigned on_down = b.jump(Op::JMP, kFrameEnd);
    e.jump_start(l.end + 1);
    for (unsigned jump : {still, on, on_down}) b.bind(jump);
    e.move(l.base + 3, index);
    b.bind(b.jump(Op::LOOP, editor_.live_top(l.first_body)));  // lets LuaJIT's JIT find the loop
    e.jump_start(l.first_body);
  }

  void rewrite_pairs(const bc::Loop& l) {
    const Ins head = p_.code[l.head], iter = p_.code[l.iter];
    if (bc::op(head) == Op::ISNEXT) {
      editor_.replace(l.head).jump(Op::JMP, bc::op_a(head), {JumpTarget::Kind::kStart, l.iter});
    }
    editor_.replace(l.iter).add(bc::ins_abc(Op::ITERC, bc::op_a(iter), bc::op_b(iter), 3));
  }

  // Adapts each VARG, whose operand is the number of parameters.
  void rewrite_varargs(unsigned num_params) {
    for (Pc pc = 1; pc < p_.size(); ++pc) {
      const Ins i = p_.code[pc];
      if (bc::op(i) != Op::VARG) continue;
      editor_.replace(pc).add(bc::ins_abc(Op::VARG, bc::op_a(i), bc::op_b(i), num_params));
    }
  }

  const bc::Dump& dump_;
  const ResumeSpec& spec_;
  const bc::Proto& p_;
  const bc::Liveness live_;
  const std::vector<bc::Loop> loops_;
  Editor editor_;
  unsigned framesize_ = 0;
};

}  // namespace

std::vector<unsigned> resume_slots(const bc::Proto& proto, Pc pc, ResumeMode mode) {
  const bc::Slots slots = live_slots(proto, bc::liveness(proto), pc, mode);
  std::vector<unsigned> out;
  for (unsigned s = 0; s < slots.size(); ++s) {
    if (slots[s]) out.push_back(s);
  }
  return out;
}

std::string why_not_resumable(const bc::Proto& proto, Pc pc, ResumeMode mode, bool knows_shares) {
  const bc::Liveness live = bc::liveness(proto);
  if (pc < 1 || pc >= proto.size() || !live.reached[pc]) return str("pc ", pc, " is never reached");
  if (mode == ResumeMode::kAt && !bc::insertable(proto, pc)) return str("pc ", pc, " is inside a pair of instructions");
  if (proto.framesize + kHashSlots > kMaxSlots && makes_closures(proto)) return "the frame has no room";
  if (knows_shares) return {};
  const bc::Slots bad = live.open[pc] & shared_slots(proto) & live_slots(proto, live, pc, mode);
  for (unsigned s = 0; s < 256; ++s) {
    if (!bad[s]) continue;
    const std::string name = bc::local_name(proto, pc, s);
    return str("local '", name.empty() ? str("slot ", s) : name, "' is shared with a closure");
  }
  return {};
}

// Returns whether the frame has room for the most that emit_call, and then apply_patch, may need.
bool has_room(const bc::Proto& proto, const ResumeSpec& spec) {
  const unsigned m = spec.mode == ResumeMode::kAfterCall ? 1u + unsigned(spec.num_args) : 0;
  const unsigned n = unsigned(resume_slots(proto, spec.pc, spec.mode).size());
  const unsigned own = std::max<unsigned>(proto.framesize, n + m + unsigned(spec.closures));
  const unsigned patched = makes_closures(proto) ? kHashSlots : 0;
  return above_call(proto, spec, own) + slots_of_shares(spec) + patched <= kMaxSlots;
}

ResumeProto build_resume(const bc::Dump& dump, const ResumeSpec& spec) { return ResumeBuilder(dump, spec).build(); }

}  // namespace lutra
