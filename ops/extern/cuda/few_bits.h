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
void few_bits(Launcher& l, const void* x, DType type, const void* w, DType weight, const void* scales, DType scale,
              void* out, FewRows p);

}  // namespace lutra::cuda
