// Rows of half floats in, float32 out, and back, by x86-64's extensions. The same bits as ops/core/half.h.
#pragma once
#include <cstdint>

namespace lutra {

// With f16c; how many elements, a multiple of 8, were converted.
int64_t widen_float16(const uint16_t* from, float* to, int64_t n);
int64_t narrow_float16(const float* from, uint16_t* to, int64_t n);
// With avx2.
void widen_bfloat16(const uint16_t* from, float* to, int64_t n);
void narrow_bfloat16(const float* from, uint16_t* to, int64_t n);

}  // namespace lutra
