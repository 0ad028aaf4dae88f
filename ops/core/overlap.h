// Two layouts in; whether writing through one can be seen through the other out. All answers ask symbols.
#pragma once
#include "ops/core/tensor.h"

namespace lutra {

// Some element of t is reached by two indices (an expanded tensor).
bool overlaps_itself(const Tensor& t);
// No element of t is reached by two indices, as far as strides in order of size tell.
bool reaches_each_once(const Tensor& t);
// Every element of the range that t spans belongs to it, once.
bool is_dense(const Sizes& sizes, const Sizes& strides);

// kSame: equal layout of the same memory. kUnknown: same storage, layouts that simple tests cannot part.
enum class Overlap : uint8_t { kNone, kSame, kPartial, kUnknown };
Overlap overlap(const Tensor& a, const Tensor& b);

}  // namespace lutra
