// The measured loops of limits.cc in x86-64 vector instructions.
#include <immintrin.h>

#include "jit/runtime/limits_x64.h"

namespace lutra {
namespace {

constexpr int kChains = 16, kFmaRounds = 1 << 14;
volatile float sink;

}  // namespace

__attribute__((target("avx2"))) float sum_avx2(const float* p, size_t n) {
  __m256 acc[8] = {};
  const size_t part = n / 8 / 8 * 8;
  for (size_t i = 0; i < part; i += 8) {
    for (size_t k = 0; k < 8; k++) acc[k] = _mm256_add_ps(acc[k], _mm256_loadu_ps(p + k * part + i));
  }
  for (int k = 1; k < 8; k++) acc[0] = _mm256_add_ps(acc[0], acc[k]);
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, acc[0]);
  return lanes[0] + lanes[7];
}

__attribute__((target("avx512f"))) float sum_avx512(const float* p, size_t n) {
  __m512 acc[8] = {};
  const size_t part = n / 8 / 16 * 16;
  for (size_t i = 0; i < part; i += 16) {
    for (size_t k = 0; k < 8; k++) acc[k] = _mm512_add_ps(acc[k], _mm512_loadu_ps(p + k * part + i));
  }
  for (int k = 1; k < 8; k++) acc[0] = _mm512_add_ps(acc[0], acc[k]);
  alignas(64) float lanes[16];
  _mm512_store_ps(lanes, acc[0]);
  return lanes[0] + lanes[15];
}

__attribute__((target("avx2,fma"))) double fma_avx2() {
  __m256 acc[kChains / 2], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
  for (__m256& a : acc) a = y;
  for (int i = 0; i < kFmaRounds; i++) {
#pragma GCC unroll 8
    for (int k = 0; k < kChains / 2; k++) acc[k] = _mm256_fmadd_ps(acc[k], x, y);
  }
  for (int k = 1; k < kChains / 2; k++) acc[0] = _mm256_add_ps(acc[0], acc[k]);
  sink = acc[0][0];
  return double(kFmaRounds) * (kChains / 2) * 8 * 2;
}

__attribute__((target("avx512f"))) double fma_avx512() {
  __m512 acc[kChains], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
  for (__m512& a : acc) a = y;
  for (int i = 0; i < kFmaRounds; i++) {
#pragma GCC unroll 16
    for (int k = 0; k < kChains; k++) acc[k] = _mm512_fmadd_ps(acc[k], x, y);
  }
  for (int k = 1; k < kChains; k++) acc[0] = _mm512_add_ps(acc[0], acc[k]);
  sink = acc[0][0];
  return double(kFmaRounds) * kChains * 16 * 2;
}

}  // namespace lutra
