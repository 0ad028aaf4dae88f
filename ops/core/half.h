// float16 and bfloat16: their bits to float and back, rounding to the nearest, ties to even; NaN stays NaN (quiet).
#pragma once
#include <cstdint>
#include <cstring>

#include "ops/core/dtype.h"

namespace lutra {

inline bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }
// What arithmetic in t is done in: PyTorch's opmath type.
inline DType opmath_type(DType t) { return is_half(t) ? DType::kFloat32 : t; }

inline uint32_t float_bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}
inline float float_of_bits(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023;
  if (exponent == 31) return float_of_bits(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) return float_of_bits(sign | float_bits(float(mantissa) * 0x1p-24f));
  return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

inline uint16_t float_to_half(float f) {
  const uint32_t u = float_bits(f), a = u & 0x7fffffffu;
  const uint16_t sign = uint16_t(u >> 16 & 0x8000);
  if (a > 0x7f800000u) return uint16_t(sign | 0x7e00 | (a >> 13 & 0x3ff));
  if (a >= 0x477ff000u) return sign | 0x7c00;  // 65520 and more
  if (a < 0x38800000u) {
    // Denormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits.
    return uint16_t(sign | (float_bits(float_of_bits(a) + 0.5f) - 0x3f000000u));
  }
  return uint16_t(sign | ((a + 0xfff + (a >> 13 & 1) - 0x38000000u) >> 13));
}

inline float bfloat16_to_float(uint16_t b) { return float_of_bits(uint32_t(b) << 16); }

inline uint16_t float_to_bfloat16(float f) {
  const uint32_t u = float_bits(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t(u >> 16 | 0x40);
  return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

// v as t holds it; other types than the two are left alone.
inline float round_to_half(DType t, float v) {
  if (t == DType::kFloat16) return half_to_float(float_to_half(v));
  if (t == DType::kBFloat16) return bfloat16_to_float(float_to_bfloat16(v));
  return v;
}

}  // namespace lutra
