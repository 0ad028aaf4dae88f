// The TensorType (function.h) of a tensor, and a comparison of the values of sizes.
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

}  // namespace lutra
