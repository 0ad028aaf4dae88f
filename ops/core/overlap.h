// Answers whether a write through one layout can be seen through another. Every answer asks symbols.
#pragma once
#include "ops/core/tensor.h"

namespace lutra {

// Returns whether two indices reach the same element of t (an expanded tensor).
bool overlaps_itself(const Tensor& t);
// Returns whether no two indices reach the same element of t, as far as strides in order of size tell.
bool reaches_each_once(const Tensor& t);
// Returns whether the tensor has every element of the range that it spans, once.
bool is_dense(const Sizes& sizes, const Sizes& strides);

// kSame: equal layout of the same memory. kUnknown: the same storage, but simple tests cannot separate the layouts.
enum class Overlap : uint8_t { kNone, kSame, kPartial, kUnknown };
Overlap overlap(const Tensor& a, const Tensor& b);

}  // namespace lutra
