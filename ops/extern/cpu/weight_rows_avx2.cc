// Rows of few-bit weights for AVX2.
#include <immintrin.h>

#include "ops/extern/cpu/weight_rows.h"

#pragma GCC target("avx2,fma")

namespace lutra {
namespace {

struct Vec {
  __m256 low, high;
};
struct Words {
  __m256i low, high;
};
inline Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Vec splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Vec add(const Vec& a, const Vec& b) { return {a.low + b.low, a.high + b.high}; }
inline float total(const Vec& v) {
  const __m256 half = v.low + v.high;
  const __m128 four = _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
  const __m128 two = four + _mm_movehl_ps(four, four);
  return two[0] + two[1];
}
inline __m256 eight_of_int8(const int8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(static_cast<const void*>(p)))));
}
inline Vec of_int8(const int8_t* p) { return {eight_of_int8(p), eight_of_int8(p + 8)}; }
inline Words words(const uint8_t* p) {
  const auto* at = static_cast<const __m256i*>(static_cast<const void*>(p));
  return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
inline __m256 eight_nibbles(__m256i v, int j) {
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(v, 28 - 4 * j), 28));
}
inline Vec nibble(const Words& v, int j) { return {eight_nibbles(v.low, j), eight_nibbles(v.high, j)}; }

#include "ops/extern/cpu/weight_rows.inc"

}  // namespace

const WeightKernels kWeightAvx2 = {int8_rows, int4_rows};

}  // namespace lutra
