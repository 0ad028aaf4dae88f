// Convolution tiles for any machine, and the choice of the instruction set.
#include "ops/extern/cpu/conv_micro.h"

#include <cfloat>

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

// Makes denormal operands and results zeros of their sign. As on x86-64, a result that is denormal before it is rounded
// to the precision of a normal number is zero too, even if it would be rounded to a normal one. A double decides that:
// near that border it holds the sum of a float and a product of bfloat16 exactly.
struct Flushed : Vector<float> {
  static float flushed(float v) { return __builtin_fabsf(v) < FLT_MIN ? __builtin_copysignf(0, v) : v; }
  static float load(const float* p) { return flushed(*p); }
  static float splat(float v) { return flushed(v); }
  static float add(float a, float b) { return flushed(a + b); }
  static float fma(float a, float b, float c) {
    const float v = __builtin_fmaf(a, b, c);
    if (__builtin_fabsf(v) > FLT_MIN || v == 0) return v;
    const double whole = double(a) * double(b) + double(c);
    return __builtin_fabs(whole) < 0x1p-126 - 0x1p-151 ? __builtin_copysignf(0, v) : v;
  }
};

constexpr ConvMicro<float>::ProductFn kPairs[2][ConvMicro<float>::kMaxRows + 1] = {
    {LUTRA_CONV_ROW6(product_pairs, Flushed, 1)}, {LUTRA_CONV_ROW6(product_pairs, Flushed, 2)}};

}  // namespace

const ConvMicro<float> kF32 = table16<float>();
const ConvMicro<float> kBFloat16 = with_pairs(table16<float>(), kPairs);
const ConvMicro<double> kF64 = table16<double>();

}  // namespace conv_plain

template <>
const ConvMicro<float>& conv_micro<float>(ExternIsa isa) {
  if constexpr (cpu::kX64) {
    if (isa >= ExternIsa::kAvx512) return conv_avx512::kF32;
    if (isa == ExternIsa::kAvx2) return conv_avx2::kF32;
  }
  return conv_plain::kF32;
}

const ConvMicro<float>& bfloat16_micro(ExternIsa isa) {
  if constexpr (cpu::kX64) {
    if (isa >= ExternIsa::kAvx512) return conv_avx512::kBFloat16;
    if (isa == ExternIsa::kAvx2) return conv_avx2::kBFloat16;
  }
  return conv_plain::kBFloat16;
}

template <>
const ConvMicro<double>& conv_micro<double>(ExternIsa isa) {
  if constexpr (cpu::kX64) {
    if (isa >= ExternIsa::kAvx512) return conv_avx512::kF64;
    if (isa == ExternIsa::kAvx2) return conv_avx2::kF64;
  }
  return conv_plain::kF64;
}

}  // namespace lutra
