// Rows of few-bit weights for AVX-512.
#include <immintrin.h>

#include "ops/extern/cpu/weight_rows.h"

#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")

namespace lutra {
namespace {

using Vec = __m512;
using Words = __m512i;
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline Vec splat(float x) { return _mm512_set1_ps(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec add(Vec a, Vec b) { return a + b; }
inline float total(Vec v) {
  alignas(64) float lanes[kWeightLanes];  // by memory: GCC 12's headers of extractions read unset variables
  _mm512_store_ps(lanes, v);
  const __m256 half = _mm256_load_ps(lanes) + _mm256_load_ps(lanes + 8);
  const __m128 four = _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
  const __m128 two = four + _mm_movehl_ps(four, four);
  return two[0] + two[1];
}
inline Vec of_int8(const int8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(p)))));
}
inline Words words(const uint8_t* p) { return _mm512_loadu_si512(p); }
// The permutation uses four bits of an index.
inline Vec nibble(Words v, int j) {
  const Vec values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  return _mm512_permutexvar_ps(_mm512_srli_epi32(v, unsigned(4 * j)), values);
}

#include "ops/extern/cpu/weight_rows.inc"

}  // namespace

const WeightKernels kWeightAvx512 = {int8_rows, int4_rows};

}  // namespace lutra
