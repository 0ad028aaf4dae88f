// Attention for every processor.
#include "ops/extern/cpu/attention.h"

namespace lutra {
namespace {

using Vec = float __attribute__((vector_size(16)));
using IntVec = int __attribute__((vector_size(16)));
constexpr int64_t kWidth = 4;
constexpr int kTileRows = 4;
inline Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof v); }
inline Vec splat(float x) { return Vec{x, x, x, x}; }
inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }

#include "ops/extern/cpu/attention_tile.h"

}  // namespace

const AttentionKernels kAttentionBase = {scratch, forward, backward};

}  // namespace lutra
