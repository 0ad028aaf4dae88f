// The rules of ops whose results' sizes depend on elements, where that size is a symbol.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

constexpr int64_t kMostElements = int64_t(1) << 48;

// What the size is at most; -1: of an op that has no such rule.
SymInt most_elements(OpId op, const Args& args);
// The results where it is n.
ResultSpecs specs_of_size(OpId op, const Args& args, SymInt n);
// Whether the op tells a number instead, which is its last argument.
bool tells_number(OpId op);
// Of the sums that bincount makes of such weights.
DType sums_of_weights(const Tensor& weights);

}  // namespace lutra
