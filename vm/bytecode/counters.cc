// Finds the slots that count the iterations of the loop around a pc.
#include <cmath>

#include "vm/bytecode/analysis.h"

namespace lutra::bc {

namespace {

bool is_whole(const KNum& k) {
  const auto* d = std::get_if<double>(&k);
  return !d || (*d == std::floor(*d) && std::fabs(*d) < 0x1p31);
}

}  // namespace

Counters counters(const Proto& p, Pc at) {
  Counters found;
  for (Pc pc = at; pc < p.size(); pc++) {
    if (!has(p.code[pc], kJump)) continue;
    const Pc head = jump_target(pc, p.code[pc]);
    const bool inner = !found.last || pc - head < found.last - found.first;
    if (head <= at && inner) found.first = head, found.last = pc;
  }
  if (!found.last) return found;
  Slots others;
  for (Pc pc = found.first; pc <= found.last; pc++) {
    const Ins i = p.code[pc];
    const bool adds = (op(i) == Op::ADDVN || op(i) == Op::SUBVN) && op_a(i) == op_b(i) && is_whole(p.knum[op_c(i)]);
    adds ? void(found.slots.set(op_a(i))) : void(others |= effects(p, pc).writes);
  }
  found.slots &= ~others;
  return found;
}

}  // namespace lutra::bc
