// Transposes a block of 16 x 16 elements of 32 bits in registers: in pairs, in fours, then by lanes of 16 bytes. It is
// for files that are compiled for AVX-512; each has its own copy.
#pragma once
#include <immintrin.h>

namespace lutra {
namespace {

inline void transpose(__m512i* v) {
  __m512i w[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    w[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]), w[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(w[i], w[i + 2]), v[i + 1] = _mm512_unpackhi_epi64(w[i], w[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(w[i + 1], w[i + 3]), v[i + 3] = _mm512_unpackhi_epi64(w[i + 1], w[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    w[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88), w[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
    w[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
    w[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    v[i] = _mm512_shuffle_i32x4(w[i], w[i + 8], 0x88), v[i + 8] = _mm512_shuffle_i32x4(w[i], w[i + 8], 0xdd);
    v[i + 4] = _mm512_shuffle_i32x4(w[i + 4], w[i + 12], 0x88);
    v[i + 12] = _mm512_shuffle_i32x4(w[i + 4], w[i + 12], 0xdd);
  }
}

}  // namespace
}  // namespace lutra
