// Convolution tiles for any machine, and the choice among the instruction sets.
#include "ops/extern/cpu/conv_micro.h"

namespace lutra {

namespace conv_plain {
namespace {

template <class T>
struct Vector {
  using Type = T;
  static constexpr int kWidth = 1;
  static T load(const T* p) { return *p; }
  static void store(T* p, T v) { *p = v; }
  static T splat(T v) { return v; }
  static T add(T a, T b) { return a + b; }
  static float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
};

#include "ops/extern/cpu/conv_micro.inc"

template <class T>
constexpr ConvMicro<T> table() {
  return {1,
          {6, 6, 0},
          {6, 6, 0},
          {{LUTRA_CONV_ROW6(tile, T, 1)}, {LUTRA_CONV_ROW6(tile, T, 2)}, {}},
          {{LUTRA_CONV_ROW6(outer, T, 1)}, {LUTRA_CONV_ROW6(outer, T, 2)}, {}},
          {sum<T, 1>, sum<T, 2>, nullptr}};
}

}  // namespace

const ConvMicro<float> kF32 = table<float>();
const ConvMicro<double> kF64 = table<double>();

}  // namespace conv_plain

namespace {

template <class T>
const ConvMicro<T>& best(const ConvMicro<T>& avx512, const ConvMicro<T>& avx2, const ConvMicro<T>& plain) {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2;
  return plain;
}

}  // namespace

const ConvMicro<float>& conv_micro_f32() {
  static const ConvMicro<float>& table = best(conv_avx512::kF32, conv_avx2::kF32, conv_plain::kF32);
  return table;
}

const ConvMicro<double>& conv_micro_f64() {
  static const ConvMicro<double>& table = best(conv_avx512::kF64, conv_avx2::kF64, conv_plain::kF64);
  return table;
}

}  // namespace lutra
