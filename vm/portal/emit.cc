// Instruction sequences that portals and resume prototypes share.
#include "vm/portal/emit.h"

#include <algorithm>

#include "ops/core/error.h"
#include "vm/bytecode/analysis.h"

namespace lutra {

using bc::Ins;
using bc::Op;
using bc::Pc;

void PortalEmitter::need(unsigned end) {
  if (end > kMaxSlots) fail("patch: the frame needs ", end, " slots, LuaJIT has ", kMaxSlots);
  used_ = std::max(used_, end);
}

void PortalEmitter::close_upvalues(unsigned from) {
  if (!(proto_.flags & bc::kHasChild)) return;
  const unsigned j = b_.jump(Op::UCLO, from);
  b_.bind(j);
}

void PortalEmitter::call(unsigned callee, unsigned nargs, int nresults, int site_id) {
  need(callee + 2 + nargs);
  need(callee + std::max(nresults, 1));
  add(bc::ins_abc(Op::CALL, callee, nresults + 1, nargs + 1));
  if (site_id >= 0) b_.site(site_id);
}

void PortalEmitter::fetch(unsigned table, int first, unsigned n) {
  integer(scratch_, kCallFetch);
  move(scratch_ + 2, table);
  integer(scratch_ + 3, first);
  integer(scratch_ + 4, static_cast<int>(n));
  call(scratch_, 3, static_cast<int>(n), 0);
}

void PortalEmitter::share(const Share& s, const std::function<void(unsigned)>& load) {
  const unsigned callee = scratch_, n = static_cast<unsigned>(s.upvalues.size());
  need(callee + kShareSlots + 2 * n);
  load(callee + 3);
  add(bc::ins_ad(Op::FNEW, callee + 2, s.child));
  for (unsigned i = 0; i < n; ++i) {
    integer(callee + 4 + 2 * i, static_cast<int>(s.upvalues[i].first));
    integer(callee + 5 + 2 * i, static_cast<int>(s.upvalues[i].second));
  }
  integer(callee, kCallShare);
  call(callee, 2 + 2 * n, 0, 0);
}

namespace {

bool has_variables(const bc::Proto& proto, unsigned child) {
  const auto& upvalues = std::get<bc::Child>(proto.kgc[child]).upvalues;
  return std::any_of(upvalues.begin(), upvalues.end(), [](bc::Upvalue u) { return u.local() && !u.immutable(); });
}

bool is_hashed(const bc::Proto& proto, Ins i) { return bc::op(i) == Op::FNEW && has_variables(proto, bc::op_d(i)); }

}  // namespace

bool makes_closures(const bc::Proto& proto) {
  return std::any_of(proto.code.begin(), proto.code.end(), [&](Ins i) { return is_hashed(proto, i); });
}

unsigned keep_hashes(const bc::Proto& proto, Editor& editor, const std::set<unsigned>& newborn_children) {
  unsigned used = 0;
  if (proto.framesize + kHashSlots > kMaxSlots) return used;
  for (Pc pc = 1; pc < proto.size(); ++pc) {
    const Ins i = proto.code[pc];
    if (!is_hashed(proto, i) && (bc::op(i) != Op::FNEW || !newborn_children.count(bc::op_d(i)))) continue;
    PortalEmitter e(proto, editor.replace(pc), proto.framesize);
    e.block().as(pc);
    e.add(i);
    e.integer(e.scratch(), kCallHash);
    e.move(e.scratch() + 2, bc::op_a(i));
    e.call(e.scratch(), 1, 0, 0);
    used = std::max(used, e.used());
  }
  return used;
}

// Copies the instructions that consume MULTRES values, up to the first that produces no such values. They must directly
// follow the producer.
void PortalEmitter::copy_takers(Pc pc) {
  for (;; ++pc) {
    Ins i = proto_.code[pc];
    if (bc::op(i) == Op::UCLO) {
      b_.bind(b_.jump(Op::UCLO, bc::op_a(i)));
      pc = bc::jump_target(pc, i);
      i = proto_.code[pc];
    }
    b_.as(pc);
    add(i);
    if (bc::has(i, bc::kEnds)) return;
    if (!bc::makes_multres(i)) return jump_start(pc + 1);
  }
}

// Emits an instruction that gives the callee of a copied call the name of the callee at pc. Messages and tracebacks
// take that name from the last write to the callee's slot, which LuaJIT finds by searching backwards from the call.
void PortalEmitter::name_callee(Pc pc, unsigned callee) {
  const Ins i = proto_.code[pc];
  const int slot = bc::callee_slot(i);
  b_.as(pc);
  if (slot < 0) return b_.global(callee, bc::metamethod_name(i));
  const bc::ValueName name = bc::value_name(proto_, pc, unsigned(slot));
  // The object of a method may be any value; only its slot matters.
  const unsigned object = callee + 2;
  switch (name.kind) {
    case bc::ValueName::Kind::kNone: return add(bc::ins_ad(Op::KPRI, callee, 0));
    case bc::ValueName::Kind::kLocal: return move(callee, name.index);
    case bc::ValueName::Kind::kUpvalue: return add(bc::ins_ad(Op::UGET, callee, name.index));
    case bc::ValueName::Kind::kGlobal: return add(bc::ins_ad(Op::GGET, callee, name.index));
    case bc::ValueName::Kind::kField: return add(bc::ins_abc(Op::TGETS, callee, callee, name.index));
    case bc::ValueName::Kind::kMethod:
      need(object + 1);
      add(bc::ins_ad(Op::MOV, object, callee));
      return add(bc::ins_abc(Op::TGETS, callee, callee, name.index));
  }
}

// Emits code that never runs and names the callees of the next call and of the calls that consume its results.
void PortalEmitter::name_callees(Pc pc, unsigned callee) {
  const unsigned over = b_.jump(Op::JMP, kFrameEnd);
  std::vector<Pc> takers;
  for (Pc at = pc; bc::makes_multres(proto_.code[at]);) {
    at = bc::taker_of(proto_, at);
    if (bc::callee_slot(proto_.code[at]) >= 0) takers.push_back(at);
    if (bc::has(proto_.code[at], bc::kEnds)) break;
  }
  for (size_t k = takers.size(); k-- > 0;) name_callee(takers[k], bc::op_a(proto_.code[takers[k]]));
  name_callee(pc, callee);
  b_.bind(over);
}

namespace {

enum class Shape { kCall, kTail, kIterator, kStore, kNoResult, kTestTrue, kTestFalse, kNone };

Shape shape_of(Ins i) {
  switch (bc::op(i)) {
    case Op::CALL:
    case Op::CALLM: return Shape::kCall;
    case Op::CALLT:
    case Op::CALLMT: return Shape::kTail;
    case Op::ITERC: return Shape::kIterator;
    case Op::TSETV:
    case Op::TSETS:
    case Op::TSETB:
    case Op::GSET: return Shape::kNoResult;
    case Op::ISLT:
    case Op::ISLE:
    case Op::ISEQV: return Shape::kTestTrue;
    case Op::ISGE:
    case Op::ISGT:
    case Op::ISNEV: return Shape::kTestFalse;
    case Op::UNM:
    case Op::LEN:
    case Op::GGET:
    case Op::TGETV:
    case Op::TGETS:
    case Op::TGETB: return Shape::kStore;
    default: return bc::op(i) >= Op::ADDVN && bc::op(i) <= Op::POW ? Shape::kStore : Shape::kNone;
  }
}

}  // namespace

void PortalEmitter::call_like(Pc pc, unsigned nargs, const std::function<void(unsigned)>& load) {
  b_.as(pc);
  emit_like(pc, nargs, load);
  b_.as(0);
}

void PortalEmitter::emit_like(Pc pc, unsigned nargs, const std::function<void(unsigned)>& load) {
  const Ins i = proto_.code[pc];
  const unsigned a = bc::op_a(i);
  const Shape shape = shape_of(i);
  const auto load_and_call = [&](unsigned callee, int nresults) {
    load(callee);
    name_callees(pc, callee);
    call(callee, nargs, nresults);
  };
  switch (shape) {
    case Shape::kCall:
      load_and_call(a, static_cast<int>(bc::op_b(i)) - 1);
      b_.stands_for(pc);
      return bc::op_b(i) == 0 ? copy_takers(pc + 1) : jump_start(pc + 1);
    case Shape::kTail:
      close_upvalues(0);
      load(a);
      need(a + 2 + nargs);
      return add(bc::ins_ad(Op::CALLT, a, nargs + 1));
    case Shape::kIterator:
      load_and_call(a, static_cast<int>(bc::op_b(i)) - 1);
      add(bc::ins_ad(Op::ISEQP, a, 0));
      jump_start(pc + 2);
      move(a - 1, a);
      return jump_start(bc::jump_target(pc + 1, proto_.code[pc + 1]));
    case Shape::kNoResult: load_and_call(scratch_, 0); return jump_start(pc + 1);
    case Shape::kStore:
      load_and_call(scratch_, 1);
      move(a, scratch_);
      return jump_start(pc + 1);
    case Shape::kTestTrue:
    case Shape::kTestFalse:
      load_and_call(scratch_, 1);
      add(bc::ins_ad(shape == Shape::kTestTrue ? Op::IST : Op::ISF, 0, scratch_));
      jump_start(bc::jump_target(pc + 1, proto_.code[pc + 1]));
      return jump_start(pc + 2);
    case Shape::kNone: fail("patch: pc ", pc, " (", bc::info(i).name, ") cannot be continued after a call");
  }
}

}  // namespace lutra
