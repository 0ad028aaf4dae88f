// Facts about one instruction: the slots it reads and writes, its successors, its loop, and whether code may be
// inserted before it.
#include <algorithm>

#include "vm/bytecode/analysis.h"

namespace lutra::bc {

namespace {

void add_range(Slots& s, unsigned first, unsigned end) {
  for (unsigned i = first; i < end && i < s.size(); ++i) s.set(i);
}

// A call at `base` with `nargs` known arguments; the callee's frame overwrites everything from base on.
void add_call(Effects& e, unsigned base, unsigned nargs) {
  e.reads.set(base);
  add_range(e.reads, base + 2, base + 2 + nargs);
  add_range(e.writes, base, 256);
}

void add_modes(Effects& e, Ins i) {
  const OpInfo& row = info(i);
  if (row.a == Mode::Dst) e.writes.set(op_a(i));
  if (row.a == Mode::Var) e.reads.set(op_a(i));
  if (row.b == Mode::Var) e.reads.set(op_b(i));
  if (row.c == Mode::Var) e.reads.set(row.b == Mode::None ? op_d(i) & 0xff : op_c(i));
}

}  // namespace

Slots captures(const Proto& p, unsigned index) {
  Slots s;
  const Child* child = index < p.kgc.size() ? std::get_if<Child>(&p.kgc[index]) : nullptr;
  if (!child) return s;
  for (Upvalue u : child->upvalues) {
    if (u.local()) s.set(u.index());
  }
  return s;
}

Effects effects(const Proto& p, Pc pc) {
  const Ins i = p.code[pc];
  const unsigned a = op_a(i), b = op_b(i), c = op_c(i), d = op_d(i);
  Effects e;
  switch (op(i)) {
    case Op::KNIL: add_range(e.writes, a, d + 1); break;
    case Op::CAT:
      add_range(e.reads, b, c + 1);
      add_range(e.writes, b, c + 1);  // metamethods use the operands' slots
      e.writes.set(a);
      break;
    case Op::CALL: add_call(e, a, c ? c - 1 : 0); break;
    case Op::CALLT: add_call(e, a, d ? d - 1 : 0); break;
    case Op::CALLM: add_call(e, a, c); break;
    case Op::CALLMT: add_call(e, a, d); break;
    case Op::ITERC:
    case Op::ITERN:
      add_range(e.reads, a - 3, a);
      if (op(i) == Op::ITERN) e.writes.set(a - 1);
      add_range(e.writes, a, 256);
      break;
    case Op::ISNEXT:
      add_range(e.reads, a - 3, a);
      e.writes.set(a - 1);
      break;
    case Op::ITERL:
      e.reads.set(a);
      e.writes.set(a - 1);
      break;
    case Op::VARG: add_range(e.writes, a, b ? a + b - 1 : 256); break;
    case Op::RETM: add_range(e.reads, a, a + d); break;
    case Op::RET: add_range(e.reads, a, a + (d ? d - 1 : 0)); break;
    case Op::RET1: e.reads.set(a); break;
    case Op::FORI:
      add_range(e.reads, a, a + 3);
      e.writes.set(a + 3);
      break;
    case Op::FORL:
      add_range(e.reads, a, a + 3);
      e.writes.set(a);
      e.writes.set(a + 3);
      break;
    case Op::FNEW:
      e.reads = captures(p, d);
      e.reads.reset(a);  // a recursive local function captures the slot that FNEW is about to write
      e.writes.set(a);
      break;
    case Op::TSETM: e.reads.set(a - 1); break;
    default: add_modes(e, i); break;
  }
  return e;
}

std::vector<Pc> successors(const Proto& p, Pc pc) {
  const Ins i = p.code[pc];
  std::vector<Pc> next;
  if (has(i, kJump)) next.push_back(jump_target(pc, i));
  if (has(i, kCompare)) {
    next.push_back(pc + 1);
    next.push_back(pc + 2);  // the JMP is skipped if the comparison is false
  } else if (!has(i, kEnds)) {
    next.push_back(pc + 1);
  }
  return next;
}

Pc Loop::first(const Proto& p) const {
  Pc first = head;
  for (Pc at = head; at <= end; at++) {
    for (const Pc next : successors(p, at)) first = std::min(first, next);
  }
  return first;
}

std::vector<Loop> loops(const Proto& p) {
  std::vector<Loop> found;
  for (Pc pc = 1; pc < p.size(); ++pc) {
    const Ins i = p.code[pc];
    const unsigned a = op_a(i);
    if (op(i) == Op::FORI) {
      found.push_back({Loop::Kind::kFor, pc, jump_target(pc, i) - 1, 0, pc + 1, a});
    } else if (op(i) == Op::LOOP) {
      found.push_back({Loop::Kind::kLoop, pc, jump_target(pc, i) - 1, 0, pc + 1, a});
    } else if ((op(i) == Op::ITERC || op(i) == Op::ITERN) && pc + 1 < p.size()) {
      const Pc body = jump_target(pc + 1, p.code[pc + 1]);
      const auto kind = op(i) == Op::ITERC ? Loop::Kind::kIterC : Loop::Kind::kIterN;
      found.push_back({kind, body - 1, pc + 1, pc, body, a});
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Loop& x, const Loop& y) { return x.head != y.head ? x.head < y.head : x.end > y.end; });
  return found;
}

Pc taker_of(const Proto& p, Pc maker) {
  const Pc next = maker + 1;
  return next < p.size() && op(p.code[next]) == Op::UCLO ? jump_target(next, p.code[next]) : next;
}

bool insertable(const Proto& p, Pc pc) {
  if (pc < 1 || pc >= p.size()) return false;
  const Ins i = p.code[pc];
  if (has(i, kTakes) || op(i) == Op::ITERC || op(i) == Op::ITERN || op(i) == Op::ITERL) return false;
  if (pc == 1) return true;
  const Ins before = p.code[pc - 1];
  if (has(before, kCompare) || makes_multres(before)) return false;
  return !(op(before) == Op::UCLO && pc > 2 && makes_multres(p.code[pc - 2]));
}

}  // namespace lutra::bc
