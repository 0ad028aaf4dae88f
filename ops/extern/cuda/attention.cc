// flash_attention and its backward on views of any strides. There is no matrix of scores in memory.
//
// Invariants:
// 1. A warp has 16 rows and goes through the columns in tiles of 32, from the first on. Tiles that the causal mask
//    hides from all its rows are skipped, which changes no bit. The rows of a block may be any number, and blocks share
//    nothing. So bits are a function of sizes and the precision setting.
// 2. Products are float32 chains (SIMT), or run on tensor cores: TF32 for float32 if precision.h allows it, and half
//    types as they are. Weights and gradients of scores are rounded to the cores' type. Sums are float32.
// 3. A query that sees no key has a logsumexp of +inf, a result of 0 and gradients of 0.
// 4. The gradient of queries (rows: queries, columns: keys) and those of keys and values (rows: keys, columns: queries)
//    are one loop. Each block of a launch computes one or the other.
#include <algorithm>
#include <cmath>

#include "ops/core/half.h"
#include "ops/core/numerics.h"
#include "ops/extern/cuda/kernels.h"
#include "ops/extern/cuda/launch.h"
#include "ops/extern/precision.h"

namespace lutra::cuda {
namespace {

constexpr int kColumns = 32;

const ExternSource kSource = {"attention", kAttentionText, {kTensorCoresText}};
const ExternSource kHalvesSource = {"attention", kAttentionText, {kHalfCoresText}};

struct Operand {
  void* data = nullptr;
  int64_t strides[4] = {};
  int64_t packed = 0;  // four features can be read by one access
};
struct Mask {
  const void* data = nullptr;
  int64_t strides[4] = {};
  int64_t is_bool = 0;
};
struct Problem {
  int64_t batch, heads, kv_heads;
  int32_t queries, keys, dim, value_dim, causal;
  float scale;
  Operand q, k, v, out, grad, dq, dk, dv;
  Mask mask;
  float* lse;
};

Operand operand(const ExternView& v, DType dtype) {
  LUTRA_CHECK(v.dim == 4 && v.dtype == dtype, "an operand of attention");
  Operand o;
  o.data = v.data;
  std::copy(v.strides, v.strides + 4, o.strides);
  const int64_t all = v.strides[0] | v.strides[1] | v.strides[2] | v.sizes[3];
  o.packed = v.sizes[3] > 0 && v.strides[3] == 1 && all % 4 == 0 &&
             reinterpret_cast<uintptr_t>(v.data) % (4 * size_of(dtype)) == 0;
  return o;
}

Problem problem(const ExternCall& call, const ExternView* qkv, const ExternView& mask) {
  const ExternView &q = qkv[0], &k = qkv[1], &v = qkv[2];
  Problem p{};
  p.q = operand(q, q.dtype), p.k = operand(k, q.dtype), p.v = operand(v, q.dtype);
  p.batch = q.sizes[0], p.heads = q.sizes[1], p.kv_heads = k.sizes[1];
  p.queries = int32_t(q.sizes[2]), p.keys = int32_t(k.sizes[2]);
  p.dim = int32_t(q.sizes[3]), p.value_dim = int32_t(v.sizes[3]);
  p.causal = call.ints[0] != 0;
  const double scale = call.scalars[0];
  p.scale = std::isnan(scale) ? float(1 / std::sqrt(double(p.dim))) : float(scale);
  if (mask.data) {
    LUTRA_CHECK(mask.dim == 4 && (is_bool(mask.dtype) || mask.dtype == DType::kFloat32), "a mask of attention");
    p.mask.data = mask.data, p.mask.is_bool = is_bool(mask.dtype);
    std::copy(mask.strides, mask.strides + 4, p.mask.strides);
  }
  return p;
}

// The shape of a block, and its kernel.
struct Blocks {
  int features, rows;
  bool halves, cores, backward, mask;

  // Mirrors the source: rows of a block and stages of columns, then the memory for gradients and float32 weights.
  int shared_bytes() const {
    const int most = halves ? 8192 : 4096, stage = std::clamp(most / features, kColumns, 128);
    const int matrices = backward ? 2 : 1, weights = halves || cores ? 0 : rows * (kColumns + 4);
    const int row = halves ? 2 * (features + 8) : 4 * (features + 4);
    return (matrices * rows + 2 * stage) * row + 4 * (2 * 128 * backward + weights);
  }
  KernelId kernel(DType dtype) const {
    const int variant = features + (cores ? 512 : 0) + (backward ? 1024 : 0) + (rows == 128 ? 2048 : 0) +
                        (mask ? 4096 : 0) + (halves ? 8192 : 0);
    return {halves ? kHalvesSource : kSource,
            backward ? "attention_backward" : "attention_forward",
            {dtype},
            variant,
            shared_bytes()};
  }
  int64_t of(int64_t n) const { return (n + rows - 1) / rows; }
  unsigned threads() const { return unsigned(2 * rows); }
};

Blocks blocks_of(const ExternCall& call, bool backward) {
  const ExternView *qkv = call.in.data() + backward, &mask = call.in[backward ? 6 : 3];
  const int64_t most = std::max(qkv[0].sizes[3], qkv[2].sizes[3]);
  Blocks b{most <= 32 ? 32 : most <= 64 ? 64 : most <= 128 ? 128 : 256, 64};
  b.halves = is_half(qkv[0].dtype), b.cores = !b.halves && matmul_precision() != MatmulPrecision::kHighest;
  b.backward = backward, b.mask = mask.data != nullptr;
  // Larger blocks read columns less often. Small problems need many blocks.
  const int64_t large = emulated() ? 1024 : numerics::kLargeAttention;
  if (b.features <= 64 && qkv[0].sizes[0] * qkv[0].sizes[1] * qkv[0].sizes[2] >= large) b.rows = 128;
  return b;
}

}  // namespace

bool attention_supports(DType dtype) { return dtype == DType::kFloat32 || is_half(dtype); }

// Returns whether the features are few enough, and tiles of them fit into a block's shared memory.
bool attention_takes(const ExternCall& call) {
  const bool backward = call.op != OpId::flash_attention;
  const ExternView* qkv = call.in.data() + backward;
  if (qkv[0].sizes[3] > 256 || qkv[2].sizes[3] > 256) return false;
  if (std::max(qkv[0].sizes[2], qkv[1].sizes[2]) > INT32_MAX - 256) return false;
  return emulated() || blocks_of(call, backward).shared_bytes() <= context(call.device).shared_bytes;
}

void run_attention(const ExternCall& call) {
  Launcher l(call);
  Problem p = problem(call, call.in.data(), call.in[3]);
  const DType dtype = call.in[0].dtype;
  LUTRA_CHECK(call.out[1].dtype == DType::kFloat32, "logsumexp");
  p.out = operand(call.out[0], dtype), p.lse = static_cast<float*>(call.out[1].data);
  const Blocks b = blocks_of(call, false);
  l.run(b.kernel(dtype), {b.of(p.queries) * p.heads * p.batch}, b.threads(), p);
}

void run_attention_backward(const ExternCall& call) {
  Launcher l(call);
  const ExternView* qkv = call.in.data() + 1;
  const DType dtype = qkv[0].dtype;
  Problem p = problem(call, qkv, call.in[6]);
  if (p.batch * p.heads * p.queries * p.keys == 0) {
    // Results of empty problems are dense.
    for (const ExternView& v : call.out) l.zero(v.data, size_t(v.numel()) * size_of(v.dtype));
    return;
  }
  LUTRA_CHECK(call.in[5].dtype == DType::kFloat32, "logsumexp");
  p.grad = operand(call.in[0], dtype), p.out = operand(call.in[4], dtype);
  p.dq = operand(call.out[0], dtype), p.dk = operand(call.out[1], dtype), p.dv = operand(call.out[2], dtype);
  p.lse = static_cast<float*>(call.in[5].data);
  const Blocks b = blocks_of(call, true);
  const int64_t blocks = b.of(p.keys) * p.kv_heads + b.of(p.queries) * p.heads;
  l.run(b.kernel(dtype), {blocks * p.batch}, b.threads(), p);
}

}  // namespace lutra::cuda
