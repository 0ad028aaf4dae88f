// Conversions of float16, bfloat16 and the two float8 from and to float. They round to nearest, ties to even. NaN stays
// NaN (quiet).
#pragma once
#include <cstdint>
#include <cstring>

#include "ops/core/dtype.h"

namespace lutra {

inline bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }
// Returns the dtype in which arithmetic on t is done: PyTorch's opmath type.
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

// The float8 with kMantissa bits of mantissa. 3 is e4m3fn, which has no infinity and one NaN. 2 is e5m2.
template <int kMantissa>
constexpr int kFloat8Bias = (1 << (6 - kMantissa)) - 1;

template <int kMantissa>
float float8_to_float(uint8_t b) {
  const uint32_t sign = uint32_t(b & 0x80) << 24, a = b & 0x7f, exponent = a >> kMantissa;
  const uint32_t mantissa = a & ((1 << kMantissa) - 1);
  if (kMantissa == 3 ? a == 0x7f : a > 0x7c) return float_of_bits(sign | 0x7fc00000u);
  if (kMantissa == 2 && a == 0x7c) return float_of_bits(sign | 0x7f800000u);
  constexpr uint32_t kAdded = 127 - kFloat8Bias<kMantissa>;
  if (exponent > 0) return float_of_bits(sign | (exponent + kAdded) << 23 | mantissa << (23 - kMantissa));
  const float unit = float_of_bits((kAdded + 1 - kMantissa) << 23);
  return float_of_bits(sign | float_bits(float(mantissa) * unit));
}

template <int kMantissa>
uint8_t float_to_float8(float f) {
  const uint32_t u = float_bits(f), a = u & 0x7fffffffu;
  const uint8_t sign = uint8_t(u >> 24 & 0x80), beyond = kMantissa == 3 ? 0x7f : 0x7c;
  if (a > 0x7f800000u) return sign | 0x7f;
  constexpr uint32_t kAdded = 127 - kFloat8Bias<kMantissa>, kShift = 23 - kMantissa;
  uint32_t rounded;
  if (a < (kAdded + 1) << 23) {
    // Denormal: adding a power of two leaves the value, rounded to a multiple of the smallest denormal, in the low
    // bits.
    const uint32_t magic = (kAdded + 1 + kShift) << 23;
    rounded = float_bits(float_of_bits(a) + float_of_bits(magic)) - magic;
  } else {
    rounded = (a + (1u << (kShift - 1)) - 1 + (a >> kShift & 1) - (kAdded << 23)) >> kShift;
  }
  return uint8_t(sign | (rounded < beyond ? rounded : beyond));
}

// Rounds v to t if t is float16 or bfloat16. Returns v for other dtypes.
inline float round_to_half(DType t, float v) {
  if (t == DType::kFloat16) return half_to_float(float_to_half(v));
  if (t == DType::kBFloat16) return bfloat16_to_float(float_to_bfloat16(v));
  return v;
}

}  // namespace lutra
