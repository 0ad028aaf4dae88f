// The cost of an op, by its row and by the sizes of its operands and results. The loop IR's table (jit/loop/loop.h) has
// the cost of its instructions.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

// Returns the cost of an element of a pointwise op, in additions.
inline int element_cost(OpId op) { return info(op).has(kHeavy) ? 8 : 1; }

// Returns the same for a CPU when memory does not bound the op: few elements, and results that only the next op reads.
// It is for primitives. The cost of a composite is the sum over its parts.
int element_work(OpId op);

// One list of sizes a tensor. It is empty for None.
using SizeLists = std::vector<std::vector<int64_t>>;
// Returns the multiplications and additions of a contraction. Returns 0 for any other op, which memory bounds.
double flops(OpId op, const SizeLists& in, const SizeLists& out);

}  // namespace lutra
