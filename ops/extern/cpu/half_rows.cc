// Converts rows of half floats, one by one if there are no vectors for them (half_rows.h).
#include "ops/extern/cpu/half_rows.h"

#include "ops/core/cpu.h"
#include "ops/core/half.h"

namespace lutra {

void widen_row(DType type, const uint16_t* from, int64_t stride, float* to, int64_t n) {
  int64_t i = 0;
  if (is_bfloat16(type)) {
    if constexpr (cpu::kX64) {
      if (stride == 1 && cpu::has_avx2()) return widen_bfloat16(from, to, n);
    }
    for (; i < n; i++) to[i] = bfloat16_to_float(from[i * stride]);
    return;
  }
  if constexpr (cpu::kX64) {
    if (stride == 1 && cpu::has_f16c()) i = widen_float16(from, to, n);
  }
  for (; i < n; i++) to[i] = half_to_float(from[i * stride]);
}

void narrow_row(DType type, const float* from, uint16_t* to, int64_t stride, int64_t n) {
  int64_t i = 0;
  if (is_bfloat16(type)) {
    if constexpr (cpu::kX64) {
      if (stride == 1 && cpu::has_avx2()) return narrow_bfloat16(from, to, n);
    }
    for (; i < n; i++) to[i * stride] = float_to_bfloat16(from[i]);
    return;
  }
  if constexpr (cpu::kX64) {
    if (stride == 1 && cpu::has_f16c()) i = narrow_float16(from, to, n);
  }
  for (; i < n; i++) to[i * stride] = float_to_half(from[i]);
}

}  // namespace lutra
