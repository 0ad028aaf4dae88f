// Orders of dims: from outermost to innermost in memory, and the inverse of an order.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/core/sym.h"

namespace lutra {

// Returns the dims by falling strides, by hints. Equal strides keep their order. asks: the order holds in each run.
inline Sizes falling(const Sizes& strides, bool asks = false) {
  std::vector<int64_t> dims(strides.size());
  std::iota(dims.begin(), dims.end(), 0);
  std::stable_sort(dims.begin(), dims.end(),
                   [&](int64_t a, int64_t b) { return strides[size_t(a)].hint > strides[size_t(b)].hint; });
  for (size_t i = 1; asks && i < dims.size(); i++) {
    const SymInt before = strides[size_t(dims[i - 1])], after = strides[size_t(dims[i])];
    (void)(dims[i - 1] < dims[i] ? after <= before : after < before);
  }
  return Sizes(dims.begin(), dims.end());
}

inline Sizes inverse(const Sizes& order) {
  Sizes out = order;
  for (size_t d = 0; d < order.size(); d++) out[size_t(order[d].hint)] = SymInt(int64_t(d));
  return out;
}

}  // namespace lutra
