// Converts half floats by vectors.
#include <immintrin.h>

#include <cstring>

#include "ops/extern/cpu/half_rows.h"

namespace lutra {

__attribute__((target("avx,f16c"))) int64_t widen_float16(const uint16_t* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  return i;
}
__attribute__((target("avx,f16c"))) int64_t narrow_float16(const float* from, uint16_t* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
  }
  return i;
}
// GCC vectorises these loops.
__attribute__((target("avx2"), optimize("O3"))) void widen_bfloat16(const uint16_t* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const uint32_t u = uint32_t(from[i]) << 16;
    std::memcpy(to + i, &u, 4);
  }
}
__attribute__((target("avx2"), optimize("O3"))) void narrow_bfloat16(const float* from, uint16_t* to, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t u;
    std::memcpy(&u, from + i, 4);
    const uint32_t nan = u >> 16 | 0x40, rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    to[i] = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
}

}  // namespace lutra
