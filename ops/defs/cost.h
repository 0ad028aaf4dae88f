// What an op costs, by its row and by the sizes of its operands and results. The loop IR's table (jit/loop/loop.h)
// tells the cost of its instructions.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

// Of an element of a pointwise op, in additions.
inline int element_cost(OpId op) { return info(op).has(kHeavy) ? 8 : 1; }

// Likewise on a CPU, whose memory does not bound it: few elements, and results that only the next op reads. Of a
// primitive: the sum of what others decompose to is theirs.
int element_work(OpId op);

// A list of sizes a tensor; None has none.
using SizeLists = std::vector<std::vector<int64_t>>;
// Multiplications and additions of a contraction; 0 of any other op, which memory bounds.
double flops(OpId op, const SizeLists& in, const SizeLists& out);

}  // namespace lutra
