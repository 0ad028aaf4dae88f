// See tiles_amx.h.
#include "ops/extern/cpu/tiles_amx.h"

#include <immintrin.h>

// GCC 12's header reads variables that it has not set (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512bf16")

#include "ops/extern/cpu/transpose_avx512.h"

namespace lutra::amx {
namespace {

inline __mmask32 first32(int64_t n) { return n >= 32 ? ~0u : (1u << n) - 1; }
inline __mmask16 first16(int64_t n) { return n >= 16 ? __mmask16(0xffff) : __mmask16((1u << n) - 1); }

inline void store_tile(uint16_t* to, const __m512i* v) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) _mm512_store_si512(to + i * kBlock, v[i]);
}

// Loads a tile whose lines are contiguous in memory. Each of its 16 registers is a line.
inline void load_lines(const uint16_t* from, int64_t line, int64_t lines, int64_t steps, __m512i* v) {
  if (lines >= kLines && steps >= kBlock) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) v[i] = _mm512_loadu_si512(from + i * line);
    return;
  }
  const __mmask32 mask = first32(steps);
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) {
    v[i] = i < lines ? _mm512_maskz_loadu_epi16(mask, from + i * line) : _mm512_setzero_si512();
  }
}

// Loads a tile whose steps are contiguous in memory. Its registers are pairs of steps.
inline void load_pairs(const uint16_t* from, int64_t step, int64_t lines, int64_t steps, __m512i* v) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __mmask16 mask = first16(lines);
  const bool whole = lines >= kLines && steps >= kBlock;
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) {
    const uint16_t* at = from + 2 * i * step;
    __m256i even = _mm256_setzero_si256(), odd = even;
    if (whole) {
      even = _mm256_loadu_epi16(at);
      odd = _mm256_loadu_epi16(at + step);
    } else {
      if (2 * i < steps) even = _mm256_maskz_loadu_epi16(mask, at);
      if (2 * i + 1 < steps) odd = _mm256_maskz_loadu_epi16(mask, at + step);
    }
    v[i] = _mm512_permutexvar_epi16(order, _mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1));
  }
}

// Reorders steps 0 to 3 of a line for dots.
inline void regroup_lines(__m512i* v) {
  const __m512i order = _mm512_set4_epi32(0x0b0a0f0e, 0x09080d0c, 0x03020706, 0x01000504);
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) v[i] = _mm512_shuffle_epi8(v[i], order);
}
// Does the same if two registers hold those four steps of 16 lines.
inline void regroup_pairs(__m512i* v) {
  const __m512i upper = _mm512_set1_epi32(int(0xffff0000));
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    const __m512i first = v[i], second = v[i + 1];
    v[i] = _mm512_or_si512(_mm512_slli_epi32(first, 16), _mm512_andnot_si512(upper, second));
    v[i + 1] = _mm512_or_si512(_mm512_and_si512(upper, first), _mm512_srli_epi32(second, 16));
  }
}

inline void pack_tile(Layout layout, const uint16_t* from, int64_t line, int64_t step, int64_t lines, int64_t steps,
                      uint16_t* to) {
  __m512i v[16];
  alignas(64) uint16_t apart[kTile];
  const bool by_pairs = line == 1 && step != 1;
  if (by_pairs) {
    load_pairs(from, step, lines, steps, v);
  } else if (step == 1) {
    load_lines(from, line, lines, steps, v);
  } else {
    for (int64_t i = 0; i < kTile; i++) {
      const int64_t l = i / kBlock, s = i % kBlock;
      apart[i] = l < lines && s < steps ? from[l * line + s * step] : uint16_t(0);
    }
    load_lines(apart, kBlock, kLines, kBlock, v);
  }
  const bool as_pairs = layout == Layout::kPairs || layout == Layout::kDotPairs;
  if (by_pairs != as_pairs) transpose(v);
  if (layout == Layout::kDotLines) regroup_lines(v);
  if (layout == Layout::kDotPairs) regroup_pairs(v);
  store_tile(to, v);
}

template <int R, int N>
void multiply_tiles(const Multiply& m) {
  static_assert(R >= 1 && R <= 2 && N >= 1 && N <= 2);
  asm volatile("tilezero %%tmm0" ::: "memory");
  if constexpr (N > 1) asm volatile("tilezero %tmm1");
  if constexpr (R > 1) asm volatile("tilezero %tmm2");
  if constexpr (R > 1 && N > 1) asm volatile("tilezero %tmm3");
  const uint16_t *a = m.a, *b = m.b;
  const int64_t a_row = m.a_line * 2, b_row = 64;
  for (int64_t i = m.blocks; i > 0; i--, a += m.a_block, b += kTile) {
    asm volatile("tileloadd (%0,%1,1), %%tmm6" ::"r"(b), "r"(b_row));
    asm volatile("tileloadd (%0,%1,1), %%tmm4" ::"r"(a), "r"(a_row));
    asm volatile("tdpbf16ps %tmm6, %tmm4, %tmm0");
    if constexpr (N > 1) {
      asm volatile("tileloadd (%0,%1,1), %%tmm7" ::"r"(b + m.b_panel), "r"(b_row));
      asm volatile("tdpbf16ps %tmm7, %tmm4, %tmm1");
    }
    if constexpr (R > 1) {
      asm volatile("tileloadd (%0,%1,1), %%tmm5" ::"r"(a + m.a_panel), "r"(a_row));
      asm volatile("tdpbf16ps %tmm6, %tmm5, %tmm2");
      if constexpr (N > 1) asm volatile("tdpbf16ps %tmm7, %tmm5, %tmm3");
    }
  }
  const int64_t row = m.row * 4;
  asm volatile("tilestored %%tmm0, (%0,%1,1)" ::"r"(m.sums), "r"(row) : "memory");
  if constexpr (N > 1) asm volatile("tilestored %%tmm1, (%0,%1,1)" ::"r"(m.sums + 16), "r"(row) : "memory");
  float* lower = m.sums + 16 * m.row;
  if constexpr (R > 1) asm volatile("tilestored %%tmm2, (%0,%1,1)" ::"r"(lower), "r"(row) : "memory");
  if constexpr (R > 1 && N > 1) asm volatile("tilestored %%tmm3, (%0,%1,1)" ::"r"(lower + 16), "r"(row) : "memory");
}

inline __m512 dot(__m512 sum, const void* a, __m512i b) {
  int32_t pair;
  __builtin_memcpy(&pair, a, sizeof pair);
  return _mm512_dpbf16_ps(sum, __m512bh(_mm512_set1_epi32(pair)), __m512bh(b));
}

// Multiplies R lines with N tiles of columns. A block's two chains and the sums stay in registers.
template <int R, int N>
void multiply_lines(const Multiply& m, const uint16_t* a, float* to) {
  __m512 sum[R][N], even[R][N], odd[R][N];
  const uint16_t* b = m.b;
#pragma GCC unroll 4
  for (int i = 0; i < R; i++) {
#pragma GCC unroll 2
    for (int n = 0; n < N; n++) sum[i][n] = _mm512_setzero_ps();
  }
  for (int64_t block = m.blocks; block > 0; block--, a += m.a_block, b += kTile) {
#pragma GCC unroll 4
    for (int i = 0; i < R; i++) {
#pragma GCC unroll 2
      for (int n = 0; n < N; n++) even[i][n] = odd[i][n] = _mm512_setzero_ps();
    }
#pragma GCC unroll 8
    for (int k = 0; k < kBlock; k += 4) {
      __m512i first[N], second[N];
#pragma GCC unroll 2
      for (int n = 0; n < N; n++) {
        first[n] = _mm512_load_si512(b + n * m.b_panel + k * kLines);
        second[n] = _mm512_load_si512(b + n * m.b_panel + (k + 2) * kLines);
      }
#pragma GCC unroll 4
      for (int i = 0; i < R; i++) {
        const uint16_t* line = a + i * m.a_line + k;
#pragma GCC unroll 2
        for (int n = 0; n < N; n++) even[i][n] = dot(even[i][n], line, first[n]);
#pragma GCC unroll 2
        for (int n = 0; n < N; n++) odd[i][n] = dot(odd[i][n], line + 2, second[n]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < R; i++) {
#pragma GCC unroll 2
      for (int n = 0; n < N; n++) sum[i][n] = _mm512_add_ps(sum[i][n], _mm512_add_ps(even[i][n], odd[i][n]));
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < R; i++) {
#pragma GCC unroll 2
    for (int n = 0; n < N; n++) _mm512_storeu_ps(to + i * m.row + n * kLines, sum[i][n]);
  }
}

template <int N>
void multiply_all_lines(int64_t lines, const Multiply& m) {
  constexpr int64_t kAtOnce = 4;
  for (int64_t i = 0; i < lines; i += kAtOnce) {
    const uint16_t* a = m.a + i / kLines * m.a_panel + i % kLines * m.a_line;
    float* to = m.sums + i * m.row;
    switch (lines - i) {
      case 1: multiply_lines<1, N>(m, a, to); break;
      case 2: multiply_lines<2, N>(m, a, to); break;
      case 3: multiply_lines<3, N>(m, a, to); break;
      default: multiply_lines<kAtOnce, N>(m, a, to);
    }
  }
}

// Returns whether dots round as two fused multiply-adds do. It tries numbers whose sums and products must be rounded,
// and denormal ones.
bool dots_are_chains() {
  uint32_t state = 1, wrong = 0;
  const auto next = [&] { return state = state * 1664525u + 1013904223u; };
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8040);
  for (int round = 0; round < 64; round++) {
    alignas(64) uint32_t x[3][16];
    for (auto& row : x) {
      for (uint32_t& bits : row) {
        const uint32_t exponent = round % 4 ? 120 + (next() >> 28) : (next() >> 31) * 63 + (next() >> 30);
        bits = (next() >> 8 << 16 | next() >> 16) & 0x807f807f;
        bits |= exponent << 23 | (exponent + (next() >> 30)) << 7;
      }
    }
    const __m512i a = _mm512_load_si512(x[0]), b = _mm512_load_si512(x[1]), high = _mm512_set1_epi32(int(0xffff0000));
    const __m512 c = _mm512_load_ps(x[2]);
    const auto upper = [&](__m512i v) { return _mm512_castsi512_ps(_mm512_and_si512(v, high)); };
    const auto lower = [&](__m512i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); };
    const __m512 chain = _mm512_fmadd_ps(lower(a), lower(b), _mm512_fmadd_ps(upper(a), upper(b), c));
    const __m512 dots = _mm512_dpbf16_ps(c, __m512bh(a), __m512bh(b));
    wrong |= _mm512_cmpneq_epi32_mask(_mm512_castps_si512(chain), _mm512_castps_si512(dots));
  }
  _mm_setcsr(mode);
  return wrong == 0;
}

inline __m512i rounded(__m512 low, __m512 high) { return __m512i(_mm512_cvtne2ps_pbh(high, low)); }

}  // namespace

bool pays_in_dots() {
  static const bool pays = __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512bf16") &&
                           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                           dots_are_chains();
  return pays;
}

void begin() {
  struct alignas(64) {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } tiles;
  asm volatile("ldtilecfg %0" ::"m"(tiles));
}

void end() { asm volatile("tilerelease" ::: "memory"); }

void pack(Layout layout, const uint16_t* from, int64_t line, int64_t step, int64_t lines, int64_t steps, uint16_t* to,
          int64_t panel) {
  for (int64_t k = 0; k < steps; k += kBlock) {
    for (int64_t l = 0; l < lines; l += kLines) {
      pack_tile(layout, from + l * line + k * step, line, step, lines - l, steps - k,
                to + l / kLines * panel + k * kLines);
    }
  }
}

void multiply(int rows, int columns, const Multiply& m) {
  if (rows > 1)
    return columns > 1 ? multiply_tiles<2, 2>(m) : multiply_tiles<2, 1>(m);
  else
    return columns > 1 ? multiply_tiles<1, 2>(m) : multiply_tiles<1, 1>(m);
}

void multiply_dots(int64_t lines, int columns, const Multiply& m) {
  columns > 1 ? multiply_all_lines<2>(lines, m) : multiply_all_lines<1>(lines, m);
}

void add(const float* from, int64_t from_row, float* to, int64_t to_row, int64_t rows, int64_t columns) {
  const __mmask16 low = first16(columns), high = first16(columns > 16 ? columns - 16 : 0);
  for (int64_t r = 0; r < rows; r++, from += from_row, to += to_row) {
    const __m512 a = _mm512_add_ps(_mm512_maskz_loadu_ps(low, to), _mm512_maskz_loadu_ps(low, from));
    _mm512_mask_storeu_ps(to, low, a);
    if (!high) continue;
    const __m512 b = _mm512_add_ps(_mm512_maskz_loadu_ps(high, to + 16), _mm512_maskz_loadu_ps(high, from + 16));
    _mm512_mask_storeu_ps(to + 16, high, b);
  }
}

void store_rows(const float* from, int64_t from_row, const float* more, uint16_t* to, int64_t to_row, int64_t rows,
                int64_t columns) {
  const __mmask16 low = first16(columns), high = first16(columns > 16 ? columns - 16 : 0);
  const __mmask32 mask = first32(columns);
  for (int64_t r = 0; r < rows; r++, from += from_row, to += to_row) {
    __m512 a = _mm512_maskz_loadu_ps(low, from), b = _mm512_maskz_loadu_ps(high, from + 16);
    if (more) {
      a = _mm512_add_ps(a, _mm512_maskz_loadu_ps(low, more + r * kPair));
      b = _mm512_add_ps(b, _mm512_maskz_loadu_ps(high, more + r * kPair + 16));
    }
    _mm512_mask_storeu_epi16(to, mask, rounded(a, b));
  }
}

void store_columns(const float* from, int64_t from_row, uint16_t* to, int64_t to_column, int64_t rows,
                   int64_t columns) {
  const __mmask16 low = first16(rows), high = first16(rows > 16 ? rows - 16 : 0);
  const __mmask32 mask = first32(rows);
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i places = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(int(from_row)));
  const __m512 zero = _mm512_setzero_ps();
  for (int64_t c = 0; c < columns; c++, to += to_column) {
    const __m512 a = _mm512_mask_i32gather_ps(zero, low, places, from + c, 4);
    const __m512 b = _mm512_mask_i32gather_ps(zero, high, places, from + c + 16 * from_row, 4);
    _mm512_mask_storeu_epi16(to, mask, rounded(a, b));
  }
}

}  // namespace lutra::amx
