// Convolution tiles on 32 registers of 512 bits.
#include <immintrin.h>

#include "ops/extern/cpu/conv_micro.h"
#include "ops/extern/cpu/transpose_avx512.h"

namespace lutra::conv_avx512 {
namespace {

template <class T>
struct Vector;

template <>
struct Vector<float> {
  using Type = __m512;
  static constexpr int kWidth = 16;
  static constexpr bool kTurnsLines = true;
  static void turn_lines(Type* v);
  static Type load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Type v) { _mm512_storeu_ps(p, v); }
  static Type splat(float v) { return _mm512_set1_ps(v); }
  static Type add(Type a, Type b) { return _mm512_add_ps(a, b); }
  static Type fma(Type a, Type b, Type c) { return _mm512_fmadd_ps(a, b, c); }
  static __mmask16 first(int64_t n) { return __mmask16((1u << n) - 1); }
  static Type load_part(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store_part(float* p, int64_t n, Type v) { _mm512_mask_storeu_ps(p, first(n), v); }
  // Loads four elements from each of four rows, then transposes squares of 4 x 4 within the lanes.
  static Type load_lanes(const float* const* p) {
    Type v = _mm512_castps128_ps512(_mm_loadu_ps(p[0]));
    v = _mm512_insertf32x4(v, _mm_loadu_ps(p[1]), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(p[2]), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps(p[3]), 3);
  }
  static void transpose_lanes(Type* v) {
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1]));
    const __m512d b = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3]));
    const __m512d c = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1]));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
    v[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), v[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    v[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d)), v[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
  }
};

// Transposes 16 lines of 16 elements.
inline void Vector<float>::turn_lines(__m512* v) {
  __m512i lines[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) lines[i] = _mm512_castps_si512(v[i]);
  transpose(lines);
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) v[i] = _mm512_castsi512_ps(lines[i]);
}

template <>
struct Vector<double> {
  using Type = __m512d;
  static constexpr int kWidth = 8;
  static Type load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, Type v) { _mm512_storeu_pd(p, v); }
  static Type splat(double v) { return _mm512_set1_pd(v); }
  static Type add(Type a, Type b) { return _mm512_add_pd(a, b); }
  static Type fma(Type a, Type b, Type c) { return _mm512_fmadd_pd(a, b, c); }
  static __mmask8 first(int64_t n) { return __mmask8((1u << n) - 1); }
  static Type load_part(const double* p, int64_t n) { return _mm512_maskz_loadu_pd(first(n), p); }
  static void store_part(double* p, int64_t n, Type v) { _mm512_mask_storeu_pd(p, first(n), v); }
  static Type load_lanes(const double* const* p) {
    const auto pair = [](const double* at) { return _mm_castpd_ps(_mm_loadu_pd(at)); };
    __m512 v = _mm512_castps128_ps512(pair(p[0]));
    v = _mm512_insertf32x4(v, pair(p[1]), 1);
    v = _mm512_insertf32x4(v, pair(p[2]), 2);
    return _mm512_castps_pd(_mm512_insertf32x4(v, pair(p[3]), 3));
  }
  static void transpose_lanes(Type* v) {
    const Type a = v[0];
    v[0] = _mm512_unpacklo_pd(a, v[1]), v[1] = _mm512_unpackhi_pd(a, v[1]);
  }
};

#include "ops/extern/cpu/conv_micro.inc"

template <class T>
constexpr ConvMicro<T> table() {
  return {Vector<T>::kWidth,
          {14, 14, 0},
          {14, 14, 6},
          {{LUTRA_CONV_ROW14(tile, T, 1)}, {LUTRA_CONV_ROW14(tile, T, 2)}, {}},
          {{LUTRA_CONV_ROW14(product, T, 1)}, {LUTRA_CONV_ROW14(product, T, 2)}},
          {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
           product<T, 12, 2, true>, product<T, 13, 2, true>, product<T, 14, 2, true>},
          {LUTRA_PRODUCT_DOTS8(T)},
          {{LUTRA_CONV_ROW14(outer, T, 1)}, {LUTRA_CONV_ROW14(outer, T, 2)}, {LUTRA_CONV_ROW6(outer, T, 4)}},
          {sum<T, 1>, sum<T, 2>, sum<T, 4>},
          pack<T>,
          copy<T>,
          transpose<T>,
          {14, 14, 6},
          {{LUTRA_CONV_ROW14(depth, T, 1)}, {LUTRA_CONV_ROW14(depth, T, 2)}, {LUTRA_CONV_ROW6(depth, T, 4)}},
          {LUTRA_CONV_OUTER14(depth_outer, T)},
          numerics::kProductSteps};
}

constexpr ConvMicro<float>::ProductFn kPairs[2][ConvMicro<float>::kMaxRows + 1] = {
    {LUTRA_CONV_ROW14(product_pairs, Vector<float>, 1)}, {LUTRA_CONV_ROW14(product_pairs, Vector<float>, 2)}};

}  // namespace

const ConvMicro<float> kF32 = table<float>();
const ConvMicro<float> kBFloat16 = with_pairs(table<float>(), kPairs);
const ConvMicro<double> kF64 = table<double>();

}  // namespace lutra::conv_avx512
