// Instruction sequences shared by portals and resume prototypes.
#include "vm/portal/emit.h"

#include <algorithm>

#include "ops/core/error.h"

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
  call(scratch_, 2, static_cast<int>(n), 0);
}

// The instructions that take MULTRES values must follow their maker directly: copies of them, up to the first that
// leaves no such values.
void PortalEmitter::copy_takers(Pc pc) {
  for (;; ++pc) {
    Ins i = proto_.code[pc];
    if (bc::op(i) == Op::UCLO) {
      b_.bind(b_.jump(Op::UCLO, bc::op_a(i)));
      i = proto_.code[++pc];
    }
    add(i);
    if (bc::has(i, bc::kEnds)) return;
    if (!bc::makes_multres(i)) return jump_start(pc + 1);
  }
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
  const Ins i = proto_.code[pc];
  const unsigned a = bc::op_a(i);
  const Shape shape = shape_of(i);
  switch (shape) {
    case Shape::kCall:
      load(a);
      call(a, nargs, static_cast<int>(bc::op_b(i)) - 1);
      return bc::op_b(i) == 0 ? copy_takers(pc + 1) : jump_start(pc + 1);
    case Shape::kTail:
      close_upvalues(0);
      load(a);
      need(a + 2 + nargs);
      return add(bc::ins_ad(Op::CALLT, a, nargs + 1));
    case Shape::kIterator:
      load(a);
      call(a, nargs, static_cast<int>(bc::op_b(i)) - 1);
      add(bc::ins_ad(Op::ISEQP, a, 0));
      jump_start(pc + 2);
      move(a - 1, a);
      return jump_start(bc::jump_target(pc + 1, proto_.code[pc + 1]));
    case Shape::kNoResult:
      load(scratch_);
      call(scratch_, nargs, 0);
      return jump_start(pc + 1);
    case Shape::kStore:
      load(scratch_);
      call(scratch_, nargs, 1);
      move(a, scratch_);
      return jump_start(pc + 1);
    case Shape::kTestTrue:
    case Shape::kTestFalse:
      load(scratch_);
      call(scratch_, nargs, 1);
      add(bc::ins_ad(shape == Shape::kTestTrue ? Op::IST : Op::ISF, 0, scratch_));
      jump_start(bc::jump_target(pc + 1, proto_.code[pc + 1]));
      return jump_start(pc + 2);
    case Shape::kNone: fail("patch: pc ", pc, " (", bc::info(i).name, ") cannot be continued after a call");
  }
}

}  // namespace lutra
