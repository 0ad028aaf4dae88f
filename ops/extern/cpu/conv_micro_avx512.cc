// Convolution tiles on 32 registers of 512 bits.
#include <immintrin.h>

#include "ops/extern/cpu/conv_micro.h"

namespace lutra::conv_avx512 {
namespace {

template <class T>
struct Vector;

template <>
struct Vector<float> {
  using Type = __m512;
  static constexpr int kWidth = 16;
  static Type load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Type v) { _mm512_storeu_ps(p, v); }
  static Type splat(float v) { return _mm512_set1_ps(v); }
  static Type add(Type a, Type b) { return _mm512_add_ps(a, b); }
  static Type fma(Type a, Type b, Type c) { return _mm512_fmadd_ps(a, b, c); }
};

template <>
struct Vector<double> {
  using Type = __m512d;
  static constexpr int kWidth = 8;
  static Type load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, Type v) { _mm512_storeu_pd(p, v); }
  static Type splat(double v) { return _mm512_set1_pd(v); }
  static Type add(Type a, Type b) { return _mm512_add_pd(a, b); }
  static Type fma(Type a, Type b, Type c) { return _mm512_fmadd_pd(a, b, c); }
};

#include "ops/extern/cpu/conv_micro.inc"

template <class T>
constexpr ConvMicro<T> table() {
  return {Vector<T>::kWidth,
          {14, 14, 0},
          {14, 14, 6},
          {{LUTRA_CONV_ROW14(tile, T, 1)}, {LUTRA_CONV_ROW14(tile, T, 2)}, {}},
          {{LUTRA_CONV_ROW14(outer, T, 1)}, {LUTRA_CONV_ROW14(outer, T, 2)}, {LUTRA_CONV_ROW6(outer, T, 4)}},
          {sum<T, 1>, sum<T, 2>, sum<T, 4>}};
}

}  // namespace

const ConvMicro<float> kF32 = table<float>();
const ConvMicro<double> kF64 = table<double>();

}  // namespace lutra::conv_avx512
