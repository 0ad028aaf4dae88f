// Attention for AVX2.
#include <immintrin.h>

#include "ops/extern/cpu/attention.h"

#pragma GCC target("avx2,fma")

namespace lutra {
namespace {

using Vec = __m256;
using IntVec = int __attribute__((vector_size(32)));
constexpr int64_t kWidth = 8;
constexpr int kTileRows = 4;
inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline Vec splat(float x) { return _mm256_set1_ps(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }

#include "ops/extern/cpu/attention_tile.h"

}  // namespace

const AttentionKernels kAttentionAvx2 = {scratch, forward, backward};

}  // namespace lutra
