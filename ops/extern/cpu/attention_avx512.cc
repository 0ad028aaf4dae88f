// Attention for AVX-512.
#include <immintrin.h>

#include "ops/extern/cpu/attention.h"

#pragma GCC target("avx512f,avx512vl,avx512dq,avx2,fma")

namespace lutra {
namespace {

using Vec = __m512;
using IntVec = int __attribute__((vector_size(64)));
constexpr int64_t kWidth = 16;
constexpr int kTileRows = 8;
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline Vec splat(float x) { return _mm512_set1_ps(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }

#include "ops/extern/cpu/attention_tile.h"

}  // namespace

const AttentionKernels kAttentionAvx512 = {scratch, forward, backward};

}  // namespace lutra
