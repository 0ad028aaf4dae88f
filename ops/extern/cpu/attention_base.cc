// Attention for every x86-64.
#include <immintrin.h>

#include "ops/extern/cpu/attention.h"

namespace lutra {
namespace {

using Vec = __m128;
using IntVec = int __attribute__((vector_size(16)));
constexpr int64_t kWidth = 4;
constexpr int kTileRows = 4;
inline Vec load(const float* p) { return _mm_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm_storeu_ps(p, v); }
inline Vec splat(float x) { return _mm_set1_ps(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }

#include "ops/extern/cpu/attention_tile.h"

}  // namespace

const AttentionKernels kAttentionBase = {scratch, forward, backward};

}  // namespace lutra
