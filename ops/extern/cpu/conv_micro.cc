// Convolution tiles for any machine, and the choice among the instruction sets.
#include "ops/extern/cpu/conv_micro.h"

#include "ops/core/cpu.h"
#include "ops/extern/extern.h"

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
  static T load_part(const T* p, int64_t) { return *p; }
  static void store_part(T* p, int64_t, T v) { *p = v; }
  static T add(T a, T b) { return a + b; }
  static float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
};

#include "ops/extern/cpu/conv_micro.inc"

}  // namespace

const ConvMicro<float> kF32 = table16<float>();
const ConvMicro<double> kF64 = table16<double>();

}  // namespace conv_plain

template <>
const ConvMicro<float>& conv_micro<float>(ExternIsa isa) {
  if constexpr (cpu::kX64) {
    if (isa == ExternIsa::kAvx512) return conv_avx512::kF32;
    if (isa == ExternIsa::kAvx2) return conv_avx2::kF32;
  }
  return conv_plain::kF32;
}

template <>
const ConvMicro<double>& conv_micro<double>(ExternIsa isa) {
  if constexpr (cpu::kX64) {
    if (isa == ExternIsa::kAvx512) return conv_avx512::kF64;
    if (isa == ExternIsa::kAvx2) return conv_avx2::kF64;
  }
  return conv_plain::kF64;
}

}  // namespace lutra
