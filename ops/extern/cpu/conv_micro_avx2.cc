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
};

#include "ops/extern/cpu/conv_micro.inc"

}  // namespace

const ConvMicro<float> kF32 = table16<float>();
const ConvMicro<double> kF64 = table16<double>();

}  // namespace lutra::conv_avx2
