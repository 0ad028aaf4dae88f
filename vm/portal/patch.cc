// Inserts portal points into a prototype: emits each point's call, its dispatch over exits, and each exit's moves and
// resume. The result is verified.
#include "vm/portal/patch.h"

#include <algorithm>

#include "ops/core/error.h"
#include "vm/bytecode/analysis.h"
#include "vm/portal/emit.h"

namespace lutra {

using bc::Op;
using bc::Pc;

namespace {

// Returns how many results an exit reads, and how many slots its widest call takes.
std::pair<unsigned, unsigned> room_of(const Exit& exit) {
  unsigned results = 0, widest = static_cast<unsigned>(exit.resume.args.size());
  for (const Out& o : exit.outs) results = std::max(results, o.result + 1u);
  for (const Out& o : exit.last) results = std::max(results, o.result + 1u);
  for (int result : exit.resume.args) results = std::max(results, result + 1u);
  for (const Share& s : exit.shares) {
    results = std::max(results, s.result + 1u);
    widest = std::max<unsigned>(widest, 4 + 2 * s.upvalues.size());
  }
  return {results, widest};
}

// The slots of a point, with base = the original framesize: base holds the called number and then the exit's code; the
// results (or one table of them) start at base + 1; scratch slots follow.
class PointEmitter {
 public:
  PointEmitter(const bc::Proto& proto, const bc::Liveness& live, const Point& point, Block& call, Block& exits)
      : proto_(proto),
        live_(live),
        point_(point),
        base_(proto.framesize),
        call_(proto, call, proto.framesize),
        e_(proto, exits, proto.framesize) {
    for (const Exit& exit : point.exits) nresults_ = std::max(nresults_, room_of(exit).first);
    packed_ = packs_results(proto, point);
  }

  // Emits the call before the instruction and all exits after the function's end. So the code before an instruction,
  // which LuaJIT searches backwards for names in error messages, stays the same.
  unsigned emit() {
    emit_portal_call();
    if (point_.exits.empty()) {
      repeat_method_object();
      return call_.used();
    }
    e_.set_scratch(base_ + 1 + (packed_ ? 1 : nresults_));
    e_.need(e_.scratch() + 1);
    call_.add(bc::ins_ad(Op::IST, 0, base_));
    call_.jump({JumpTarget::Kind::kTail, point_.pc});
    repeat_method_object();
    for (size_t i = 0; i < point_.exits.size(); ++i) {
      const Exit& exit = point_.exits[i];
      if (i + 1 == point_.exits.size()) {
        emit_exit(exit);
        break;
      }
      e_.integer(e_.scratch(), exit.code);
      e_.add(bc::ins_ad(Op::ISNEV, base_, e_.scratch()));
      const unsigned next = e_.block().jump(Op::JMP, kFrameEnd);
      emit_exit(exit);
      e_.block().bind(next);
    }
    return std::max(call_.used(), e_.used());
  }

 private:
  // Repeats the copy of a method's object after the portal call. LuaJIT's messages call a field a method if the
  // instruction before its lookup copies the object.
  void repeat_method_object() {
    const bc::Ins lookup = proto_.code[point_.pc];
    if (point_.pc == 0 || bc::op(lookup) != Op::TGETS) return;
    const bc::Ins copy = proto_.code[point_.pc - 1];
    const bool method = bc::op(copy) == Op::MOV && bc::op_a(copy) == bc::op_a(lookup) + 2u;
    if (method && bc::op_d(copy) == bc::op_b(lookup)) call_.add(copy);
  }

  void emit_portal_call() {
    unsigned top = 0;
    for (unsigned s = 0; s < base_; ++s) {
      if (live_.before[point_.pc][s]) top = s + 1;
    }
    call_.clear(top, base_);
    unsigned nargs = static_cast<unsigned>(point_.args.size());
    const bool wide = point_.id > 32767;
    if (point_.id < 1) fail("patch: portal id ", point_.id);
    if (packed_ || base_ + 5 + nargs > kMaxSlots) return emit_packed_call();
    unsigned at = base_ + 2;
    call_.integer(base_, wide ? static_cast<int>(kCallWide) : point_.id);
    if (wide) {
      call_.integer(at++, point_.id & 0x7fff);
      call_.integer(at++, point_.id >> 15);
    }
    for (unsigned slot : point_.args) call_.move(at++, slot);
    finish_portal_call(at, 1 + nresults_);
  }

  // Emits the call itself, with its arguments in base + 2 .. end, for `nresults` values.
  void finish_portal_call(unsigned end, unsigned nresults) {
    const unsigned nargs = end - base_ - 2;
    if (!point_.varargs) return call_.call(base_, nargs, static_cast<int>(nresults), point_.id);
    call_.need(std::max(end + 1, base_ + nresults));
    call_.add(bc::ins_abc(Op::VARG, end, 0, proto_.num_params));
    call_.add(bc::ins_abc(Op::CALLM, base_, nresults + 1, nargs));
    call_.block().site(point_.id);
  }

  void emit_packed_call() {
    call_.add(bc::ins_ad(Op::KPRI, base_, 0));
    call_.need(base_ + 6);
    const size_t room = kMaxSlots - (base_ + 3);
    for (size_t done = 0; done < point_.args.size();) {
      const size_t n = std::min(room, point_.args.size() - done);
      call_.move(base_ + 2, base_);
      for (size_t i = 0; i < n; ++i) call_.move(base_ + 3 + i, point_.args[done + i]);
      call_.integer(base_, kCallPush);
      call_.call(base_, n + 1, 1, 0);
      done += n;
    }
    call_.move(base_ + 2, base_);
    call_.integer(base_, kCallRunPacked);
    call_.integer(base_ + 3, point_.id & 0x7fff);
    call_.integer(base_ + 4, point_.id >> 15);
    call_.add(bc::ins_ad(Op::KPRI, base_ + 5, packed_ ? 2 : 1));
    finish_portal_call(base_ + 6, packed_ ? 2 : 1 + nresults_);
  }

  void load(int result, unsigned dst) {
    if (!packed_) return e_.move(dst, base_ + 1 + result);
    load_packed(result, dst);
  }

  // Loads one result from the table. The scratch slots up to dst may hold an incomplete call.
  void load_packed(int result, unsigned dst) {
    const unsigned scratch = e_.scratch();
    if (dst >= scratch) e_.set_scratch(dst);
    e_.fetch(base_ + 1, result + 1, 1);
    e_.move(dst, e_.scratch());
    e_.set_scratch(scratch);
  }

  void emit_exit(const Exit& exit) {
    emit_outs(exit.last);
    if (exit.closes_from >= 0) e_.close_upvalues(unsigned(exit.closes_from));
    emit_outs(exit.outs);
    for (const Share& s : exit.shares) emit_share(s);
    emit_resume(exit.resume);
  }

  void emit_share(const Share& s) {
    e_.share(s, [&](unsigned dst) { load(s.result, dst); });
  }

  void emit_outs(std::vector<Out> outs) {
    std::stable_sort(outs.begin(), outs.end(), [](const Out& a, const Out& b) { return a.result < b.result; });
    int first = 0, end = 0;  // the range of results in the scratch slots
    for (const Out& o : outs) {
      if (o.slot >= base_) fail("patch: slot ", o.slot, " of ", base_);
      if (!packed_) {
        e_.move(o.slot, base_ + 1 + o.result);
        continue;
      }
      if (o.result >= end) {
        first = o.result;
        end = std::min<int>(outs.back().result + 1, first + std::min(e_.fetch_room(), 100u));
        e_.fetch(base_ + 1, first + 1, end - first);
      }
      e_.move(o.slot, e_.scratch() + o.result - first);
    }
  }

  // Loads args[0] into `callee` and args[1..] into callee + 2 and up. Calls that fetch from a table of results
  // overwrite the slots above, so the argument that replaces the table itself is fetched last.
  void load_call(const std::vector<int>& args, unsigned callee) {
    if (args.empty()) fail("patch: a call of nothing");
    const unsigned end = callee + 1 + unsigned(args.size()), table = base_ + 1;
    e_.need(end);
    load(args[0], callee);
    int last = -1;
    for (size_t i = 1; i < args.size(); ++i) {
      const unsigned dst = callee + 1 + unsigned(i);
      if (packed_ && dst == table) {
        last = args[i];
      } else {
        load(args[i], dst);
      }
    }
    if (last < 0) return;
    const unsigned scratch = e_.scratch();
    e_.set_scratch(std::max(end, scratch));
    e_.fetch(table, last + 1, 1);
    e_.move(table, e_.scratch());
    e_.set_scratch(scratch);
  }

  void emit_resume(const Resume& r) {
    switch (r.kind) {
      case Resume::Kind::kPc:
        return e_.jump({r.past_portal ? JumpTarget::Kind::kInstruction : JumpTarget::Kind::kStart, r.pc});
      case Resume::Kind::kReturn: return emit_return(r);
      case Resume::Kind::kTailCall: return emit_tail_call(r);
      case Resume::Kind::kCall: return emit_frame_call(r);
    }
  }

  void emit_return(const Resume& r) {
    const unsigned at = e_.scratch(), n = static_cast<unsigned>(r.args.size());
    e_.need(at + n + 1);
    for (unsigned i = 0; i < n; ++i) load(r.args[i], at + i);
    e_.close_upvalues(0);
    if (r.varargs) {
      e_.add(bc::ins_abc(Op::VARG, at + n, 0, proto_.num_params));
      return e_.add(bc::ins_ad(Op::RETM, at, n));
    }
    const Op op = n == 0 ? Op::RET0 : n == 1 ? Op::RET1 : Op::RET;
    e_.add(bc::ins_ad(op, n ? at : 0, n + 1));
  }

  void emit_tail_call(const Resume& r) {
    const unsigned callee = e_.scratch(), n = static_cast<unsigned>(r.args.size());
    load_call(r.args, callee);
    e_.close_upvalues(0);
    e_.need(callee + 2 + n);
    if (!r.varargs) return e_.add(bc::ins_ad(Op::CALLT, callee, n));
    e_.add(bc::ins_abc(Op::VARG, callee + 1 + n, 0, proto_.num_params));
    e_.add(bc::ins_ad(Op::CALLMT, callee, n - 1));
  }

  void emit_frame_call(const Resume& r) {
    if (r.args.empty()) fail("patch: a call of nothing");
    e_.call_like(r.pc, static_cast<unsigned>(r.args.size() - 1), [&](unsigned callee) { load_call(r.args, callee); });
  }

  const bc::Proto& proto_;
  const bc::Liveness& live_;
  const Point& point_;
  unsigned base_, nresults_ = 0;
  bool packed_ = false;
  PortalEmitter call_, e_;
};

// Checks that each slot that the code at the resume reads is live at the point or written by the exit.
void check_resume(const bc::Proto& p, const bc::Liveness& live, const Point& point, const Exit& exit) {
  const Resume& r = exit.resume;
  if (r.kind != Resume::Kind::kPc && r.kind != Resume::Kind::kCall) return;
  if (r.pc < 1 || r.pc >= p.size()) fail("patch: no pc ", r.pc, " to resume at");
  const bool after = r.kind == Resume::Kind::kCall;
  bc::Slots wanted = live.before[r.pc];
  if (after) {
    wanted.reset();
    for (Pc s : bc::successors(p, r.pc)) wanted |= live.before[s];
    wanted &= ~bc::effects(p, r.pc).writes;
  }
  wanted &= ~live.before[point.pc];
  for (const Out& o : exit.outs) wanted.reset(o.slot);
  for (unsigned s = 0; s < 256; ++s) {
    if (wanted[s]) fail("patch: slot ", s, " has no value where the frame resumes (pc ", r.pc, ")");
  }
}

void check_point(const bc::Proto& p, const bc::Liveness& live, const Point& point) {
  if (!bc::insertable(p, point.pc)) fail("patch: no code may be inserted before pc ", point.pc);
  if (!live.reached[point.pc]) fail("patch: pc ", point.pc, " is never reached");
  for (unsigned s : point.args) {
    if (!live.before[point.pc][s]) fail("patch: slot ", s, " is dead at pc ", point.pc);
    if (live.hidden[point.pc][s]) fail("patch: slot ", s, " is hidden loop control at pc ", point.pc);
  }
  if (point.varargs && !p.vararg()) fail("patch: the function has no varargs");
  for (const Exit& exit : point.exits) check_resume(p, live, point, exit);
}

}  // namespace

Patched finish_patch(const bc::Dump& dump, Editor::Result&& r) {
  Patched out{dump, std::move(r.sites), std::move(r.moved), std::move(r.stands)};
  out.dump.top() = std::move(r.proto);
  const std::string error = bc::verify(out.dump.top(), &out.dump);
  if (!error.empty()) fail_internal("patch: ", error, "\n", bc::print(out.dump.top()));
  return out;
}

bool packs_results(const bc::Proto& proto, const Point& point) {
  unsigned results = 0, widest = 0;
  for (const Exit& exit : point.exits) {
    const auto [n, wide] = room_of(exit);
    results = std::max(results, n), widest = std::max(widest, wide);
  }
  return proto.framesize + 1u + results + 4 + widest > kMaxSlots;
}

// With packed arguments and results, a point needs the called slot base, the table, and a call of five slots after it.
bool has_room(const bc::Proto& proto) { return proto.framesize + 8u <= kMaxSlots; }

bool has_room_for_stub(const bc::Proto& proto) { return proto.framesize + proto.num_params + 5u <= kMaxSlots; }

Patched apply_patch(const bc::Dump& dump, const Patch& patch) {
  const bc::Proto& p = dump.top();
  const bc::Liveness live = bc::liveness(p);
  Editor editor(p);
  unsigned framesize = std::max<unsigned>(p.framesize, keep_hashes(p, editor, patch.newborn_children));
  for (const Point& point : patch.points) {
    check_point(p, live, point);
    Block& block = editor.before(point.pc);
    if (block.size()) fail("patch: two portals at pc ", point.pc);
    PointEmitter emitter(p, live, point, block, editor.tail(point.pc));
    framesize = std::max(framesize, emitter.emit());
  }
  Editor::Result r = editor.finish(framesize);
  for (const Site& s : patch.helpers) r.sites.push_back({r.moved[s.return_pc - 1] + 1, s.id});
  return finish_patch(dump, std::move(r));
}

Patched make_stub(const bc::Dump& dump, int id) {
  const bc::Proto& p = dump.top();
  Editor editor(p);
  PortalEmitter e(p, editor.entry(), p.framesize);
  const unsigned base = p.framesize, n = p.num_params;
  auto arguments = [&](unsigned at) {
    for (unsigned i = 0; i < n; ++i) e.move(at + i, i);
    e.need(at + n + 1);
    if (p.vararg()) e.add(bc::ins_abc(Op::VARG, at + n, 0, n));
  };
  const bool wide = id > 32767;
  e.clear(n, base);
  e.integer(base, wide ? static_cast<int>(kCallWide) : id);
  if (wide) {
    e.integer(base + 2, id & 0x7fff);
    e.integer(base + 3, id >> 15);
  }
  const unsigned first = base + (wide ? 4 : 2);
  arguments(first);
  const unsigned nargs = first - base - 2 + n;
  e.add(p.vararg() ? bc::ins_abc(Op::CALLM, base, 2, nargs) : bc::ins_abc(Op::CALL, base, 2, nargs + 1));
  e.block().site(id);
  e.add(bc::ins_ad(Op::ISF, 0, base));
  e.jump_start(1);
  arguments(base + 2);
  e.add(p.vararg() ? bc::ins_ad(Op::CALLMT, base, n) : bc::ins_ad(Op::CALLT, base, n + 1));
  return finish_patch(dump, editor.finish(std::max(e.used(), keep_hashes(p, editor))));
}

}  // namespace lutra
