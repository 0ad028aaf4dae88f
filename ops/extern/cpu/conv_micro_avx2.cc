// Convolution tiles on 16 registers of 256 bits, with FMA.
#include <immintrin.h>

#include "ops/extern/cpu/conv_micro.h"

namespace lutra::conv_avx2 {
namespace {

template <class T>
struct Vector;

template <>
struct Vector<float> {
  using Type = __m256;
  static constexpr int kWidth = 8;
  static Type load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Type v) { _mm256_storeu_ps(p, v); }
  static Type splat(float v) { return _mm256_set1_ps(v); }
  static Type add(Type a, Type b) { return _mm256_add_ps(a, b); }
  static Type fma(Type a, Type b, Type c) { return _mm256_fmadd_ps(a, b, c); }
  static __m256i first(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Type load_part(const float* p, int64_t n) { return _mm256_maskload_ps(p, first(n)); }
  static void store_part(float* p, int64_t n, Type v) { _mm256_maskstore_ps(p, first(n), v); }
  // Loads four elements from each of two rows, then transposes squares of 4 x 4 within the lanes.
  static Type load_lanes(const float* const* p) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p[0])), _mm_loadu_ps(p[1]), 1);
  }
  static void transpose_lanes(Type* v) {
    const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(v[0], v[1]));
    const __m256d b = _mm256_castps_pd(_mm256_unpacklo_ps(v[2], v[3]));
    const __m256d c = _mm256_castps_pd(_mm256_unpackhi_ps(v[0], v[1]));
    const __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(v[2], v[3]));
    v[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), v[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
    v[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(c, d)), v[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(c, d));
  }
};

template <>
struct Vector<double> {
  using Type = __m256d;
  static constexpr int kWidth = 4;
  static Type load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, Type v) { _mm256_storeu_pd(p, v); }
  static Type splat(double v) { return _mm256_set1_pd(v); }
  static Type add(Type a, Type b) { return _mm256_add_pd(a, b); }
  static Type fma(Type a, Type b, Type c) { return _mm256_fmadd_pd(a, b, c); }
  static __m256i first(int64_t n) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)); }
  static Type load_part(const double* p, int64_t n) { return _mm256_maskload_pd(p, first(n)); }
  static void store_part(double* p, int64_t n, Type v) { _mm256_maskstore_pd(p, first(n), v); }
  static Type load_lanes(const double* const* p) {
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(p[0])), _mm_loadu_pd(p[1]), 1);
  }
  static void transpose_lanes(Type* v) {
    const Type a = v[0];
    v[0] = _mm256_unpacklo_pd(a, v[1]), v[1] = _mm256_unpackhi_pd(a, v[1]);
  }
};

#include "ops/extern/cpu/conv_micro.inc"

constexpr ConvMicro<float>::ProductFn kPairs[2][ConvMicro<float>::kMaxRows + 1] = {
    {LUTRA_CONV_ROW6(product_pairs, Vector<float>, 1)}, {LUTRA_CONV_ROW6(product_pairs, Vector<float>, 2)}};

}  // namespace

const ConvMicro<float> kF32 = table16<float>();
const ConvMicro<float> kBFloat16 = with_pairs(table16<float>(), kPairs);
const ConvMicro<double> kF64 = table16<double>();

}  // namespace lutra::conv_avx2
