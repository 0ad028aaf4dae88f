// The arguments of products of few rows.
#pragma once
#include <bit>
#include <cstdint>

#include "ops/core/half.h"
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

// Mirrors the device's struct: x (rows, k), the weight (n, k) with rows of unit stride, the result (rows, n).
struct FewRows {
  int64_t rows, n, k;
  int64_t x_row, w_row, out_row, out_col;
  int32_t group_bits = 0, aligned = 0;  // a group has 2^group_bits elements
};

inline bool is_aligned(const void* p, int64_t row, DType dtype) {
  return std::bit_cast<uintptr_t>(p) % 16 == 0 && row * int64_t(size_of(dtype)) % 16 == 0;
}

// Returns whether tensor cores can compute a product with a weight of int8, or of int4 in bytes.
bool few_bits_takes(Launcher& l, DType type, DType weight, const FewRows& p);

// The memory of such a product: x and out have elements of `type`.
struct FewRowsData {
  const void *x, *w, *scales;
  void* out;
  DType type, weight, scale;

  FewRowsData behind(const FewRows& p, int64_t rows) const {  // behind so many rows of x and out
    const auto size = int64_t(size_of(type));
    FewRowsData d = *this;
    d.x = static_cast<const char*>(x) + rows * p.x_row * size;
    d.out = static_cast<char*>(out) + rows * p.out_row * size;
    return d;
  }
  bool is_aligned(const FewRows& p) const {
    return cuda::is_aligned(w, p.w_row, weight) && cuda::is_aligned(x, p.x_row, type);
  }
};
void few_bits(Launcher& l, const FewRowsData& data, FewRows p);

}  // namespace lutra::cuda
