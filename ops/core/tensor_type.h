// A tensor in, its type as functions (function.h) have it out; and whether two layouts have the same values.
#pragma once
#include "ops/core/function.h"
#include "ops/core/tensor.h"

namespace lutra {

inline TensorType type_of(const Tensor& t) { return {t->sizes, t->strides, t->dtype}; }

// By hints: nothing is asked of symbols.
inline bool same_values(const Sizes& a, const Sizes& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); i++) same = a[i].hint == b[i].hint;
  return same;
}

}  // namespace lutra
