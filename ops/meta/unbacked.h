// Rules of ops whose results' sizes depend on elements, with that size as a symbol.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

constexpr int64_t kMaxElements = int64_t(1) << 48;

// Returns an upper bound of the size, or -1 if the op has no such rule.
SymInt most_elements(OpId op, const Args& args);
// Returns the specs of the results if the size is n.
ResultSpecs specs_of_size(OpId op, const Args& args, SymInt n);
// Returns whether the op defines a symbolic number, its last argument, instead of a size.
bool tells_number(OpId op);
// Returns the dtype of bincount's sums of these weights.
DType sums_of_weights(const Tensor& weights);

}  // namespace lutra
