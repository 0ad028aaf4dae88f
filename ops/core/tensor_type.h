// The TensorType (function.h) of a tensor, and comparisons of sizes.
#pragma once
#include "ops/core/function.h"
#include "ops/core/tensor.h"

namespace lutra {

inline TensorType type_of(const Tensor& t) { return {t->sizes, t->strides, t->dtype}; }

// Compares hints and asks nothing of symbols.
inline bool same_values(const Sizes& a, const Sizes& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); i++) same = a[i].hint == b[i].hint;
  return same;
}

// Asks of symbols: the answer holds in each run.
inline bool are_equal(const Sizes& a, const Sizes& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }
inline bool are_equal(const TensorType& a, const TensorType& b) {
  return a.dtype == b.dtype && are_equal(a.sizes, b.sizes) && are_equal(a.strides, b.strides);
}

}  // namespace lutra
