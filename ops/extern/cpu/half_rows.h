// Converts rows of half floats to float32 and back: the same bits as ops/core/half.h, by vectors if the processor can.
#pragma once
#include <cstdint>

#include "ops/core/dtype.h"

namespace lutra {

constexpr bool is_bfloat16(DType type) { return type == DType::kBFloat16; }

// n elements of the half type, `stride` apart.
void widen_row(DType type, const uint16_t* from, int64_t stride, float* to, int64_t n);
void narrow_row(DType type, const float* from, uint16_t* to, int64_t stride, int64_t n);

// By x86-64's f16c. Return the number of converted elements, a multiple of 8.
int64_t widen_float16(const uint16_t* from, float* to, int64_t n);
int64_t narrow_float16(const float* from, uint16_t* to, int64_t n);
// By avx2.
void widen_bfloat16(const uint16_t* from, float* to, int64_t n);
void narrow_bfloat16(const float* from, uint16_t* to, int64_t n);

}  // namespace lutra
