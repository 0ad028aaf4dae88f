// Decides which matrices of a large product on a GPU get rows of whole 16 bytes. Code that makes such a matrix pads it
// in advance, if it can. gemm.cc copies the others. It is a function of dtype and sizes, so that both give the same
// bits.
#pragma once
#include "ops/core/half.h"

namespace lutra {

// Padded rows are worth a copy from so many multiplications on, and from so many uses of each element on.
constexpr double kMinMultiplications = double(int64_t(1) << 31);
constexpr int64_t kMinUses = 512;

inline bool is_large_product(DType t, int64_t m, int64_t n, int64_t k) {
  return (is_half(t) || t == DType::kFloat32) && double(m) * double(n) * double(k) >= kMinMultiplications;
}
// Returns the number of elements in 16 bytes.
inline int64_t pack_of(DType t) { return 16 / int64_t(size_of(t)); }
inline int64_t padded_row(DType t, int64_t columns) { return (columns + pack_of(t) - 1) / pack_of(t) * pack_of(t); }
// apart: elements from row to row of the matrix. uses: how often the product uses each of its elements.
inline bool wants_padded_rows(DType t, int64_t apart, int64_t uses) { return apart % pack_of(t) && uses >= kMinUses; }

}  // namespace lutra
