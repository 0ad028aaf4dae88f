// flash_attention of few queries, as in decoding. A block takes one query of a head and a piece of the keys. So the
// whole GPU reads keys and values, each once, and skips those that a mask hides.
//
// Invariants:
// 1. The number of keys of a piece is a function of sizes. A group of lanes takes each GROUPS-th key of a piece. Sums
//    of groups and of pieces are added in order. So bits depend on sizes alone.
// 2. Arithmetic is in float32. The result is rounded once.
#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/extern/cuda/kernels.h"
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {
namespace {

constexpr int64_t kMaxQueries = 16;
// Keys of a piece: whole groups of 64, up to the memory of a block. Then the wanted number of blocks, and the most
// pieces of a query.
constexpr int64_t kMinKeys = 64, kMaxKeys = 512, kBlocks = 512, kPieces = 64;

// VARIANT: the lanes that share a key, with 8 features each.
const ExternSource kSource = {"attention_few", R"cuda(
#define LANES VARIANT
#define GROUPS (256 / LANES)
#define KEYS 512
struct Side { const T0* data; i64 strides[4]; };
struct Problem {
  Side q, k, v, out;
  const void* mask;
  i64 mask_strides[4];
  i64 heads, group;
  int queries, keys, piece, dim, causal, is_bool, packed;
  float scale;
  float *lse, *parts;  // parts: the maximum, the sum and the features of each query and piece
};
struct alignas(16) Pack { u32 v[4]; };

// Eight: 8 features. kAhead: keys whose features are read at a time.
struct Eight { T0 v[8]; };
enum { kAhead = 16 / sizeof(T0) };
// Loads the 8 features of a row from f on.
DEV Eight eight(const Problem& p, const Side& s, const T0* row, int f) {
  Eight got;
  if (p.packed && f < p.dim) {
#pragma unroll
    for (int i = 0; i < (int)sizeof(got) / 16; i++) {
      const Pack one = ((const Pack*)(row + f))[i];
      memcpy((char*)&got + 16 * i, &one, 16);
    }
    return got;
  }
#pragma unroll
  for (int i = 0; i < 8; i++) got.v[i] = f + i < p.dim ? row[(f + i) * s.strides[3]] : element_of<T0>(0);
  return got;
}
struct Query { i64 batch, head; int row; };
DEV Query query_of(const Problem& p, i64 i) {
  const i64 head = i / p.queries;
  Query q;
  q.batch = head / p.heads, q.head = head % p.heads, q.row = (int)(i % p.queries);
  return q;
}
DEV const T0* row_of(const Side& s, i64 batch, i64 head, i64 row) {
  return s.data + batch * s.strides[0] + head * s.strides[1] + row * s.strides[2];
}
// Returns what the mask adds to a score; -INF if the score is masked.
DEV float masked(const Problem& p, const Query& q, int key) {
  if (key >= p.keys || (p.causal && key > q.row)) return -INF;
  if (!p.mask) return 0;
  const i64 at = q.batch * p.mask_strides[0] + q.head * p.mask_strides[1] + q.row * p.mask_strides[2] +
                 key * p.mask_strides[3];
  if (p.is_bool) return ((const u8*)p.mask)[at] ? 0 : -INF;
  return ((const float*)p.mask)[at];
}
template <bool kMax> DEV float over_block(float v) {
  __shared__ float of_warps[8];
  for (int far = 16; far; far /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, v, far);
    v = kMax ? fmaxf(v, other) : v + other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = v;
  __syncthreads();
  v = of_warps[0];
  for (int w = 1; w < 8; w++) v = kMax ? fmaxf(v, of_warps[w]) : v + of_warps[w];
  return v;
}

KERNEL BOUNDS(256) attention_few(Problem p) {
  sync_dependencies();
  __shared__ float score[KEYS], sums[GROUPS][LANES * 8];
  const Query q = query_of(p, blockIdx.x);
  const int first = blockIdx.y * p.piece, n = p.keys - first < p.piece ? p.keys - first : p.piece;
  const int t = threadIdx.x, lane = t % LANES, own = t / LANES, f = lane * 8;
  const Eight x = eight(p, p.q, row_of(p.q, q.batch, q.head, q.row), f);
  for (int j = t; j < n; j += 256) score[j] = masked(p, q, first + j);
  __syncthreads();
  for (int j0 = 0; j0 < n; j0 += GROUPS * kAhead) {
    Eight y[kAhead];
    float add[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      const int j = j0 + u * GROUPS + own;
      add[u] = j < n ? score[j] : -INF;
      if (add[u] != -INF) y[u] = eight(p, p.k, row_of(p.k, q.batch, q.head / p.group, first + j), f);
    }
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      float s = 0;
      if (add[u] != -INF) {
#pragma unroll
        for (int i = 0; i < 8; i++) s = fmaf(Num<T0>::up(x.v[i]), Num<T0>::up(y[u].v[i]), s);
      }
#pragma unroll
      for (int far = LANES / 2; far; far /= 2) s += __shfl_xor_sync(0xffffffffu, s, far);
      if (lane == 0 && add[u] != -INF) score[j0 + u * GROUPS + own] = fmaf(s, p.scale, add[u]);
    }
  }
  __syncthreads();
  float most = -INF, sum = 0;
  for (int j = t; j < n; j += 256) most = fmaxf(most, score[j]);
  most = over_block<true>(most);
  for (int j = t; j < n; j += 256) {
    const float e = score[j] == -INF ? 0 : __expf(score[j] - most);  // NaN if the score is NaN, though max ignores it
    score[j] = e;
    sum += e;
  }
  sum = over_block<false>(sum);
  float acc[8];
#pragma unroll
  for (int i = 0; i < 8; i++) acc[i] = 0;
  for (int j0 = own; j0 < n; j0 += GROUPS * kAhead) {
    Eight y[kAhead];
    float by[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      const int j = j0 + u * GROUPS;
      by[u] = j < n ? score[j] : 0;
      if (by[u] != 0) y[u] = eight(p, p.v, row_of(p.v, q.batch, q.head / p.group, first + j), f);
    }
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      if (by[u] == 0) continue;
#pragma unroll
      for (int i = 0; i < 8; i++) acc[i] = fmaf(by[u], Num<T0>::up(y[u].v[i]), acc[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; i++) sums[own][f + i] = acc[i];
  __syncthreads();
  float* part = p.parts + (blockIdx.x * (i64)gridDim.y + blockIdx.y) * (p.dim + 2);
  for (int e = t; e < p.dim; e += 256) {
    float v = sums[0][e];
    for (int g = 1; g < GROUPS; g++) v += sums[g][e];
    if (gridDim.y > 1) part[2 + e] = v;
    else ((T0*)row_of(p.out, q.batch, q.head, q.row))[e * p.out.strides[3]] = Num<T0>::down(sum == 0 ? 0 : v / sum);
  }
  if (t == 0 && gridDim.y > 1) part[0] = most, part[1] = sum;
  if (t == 0 && gridDim.y == 1) p.lse[blockIdx.x] = sum == 0 ? INF : most + logf(sum);
}

KERNEL BOUNDS(256) attention_join(Problem p, int pieces) {
  sync_dependencies();
  const Query q = query_of(p, blockIdx.x);
  const float* part = p.parts + (i64)blockIdx.x * pieces * (p.dim + 2);
  float most = -INF, sum = 0;
  for (int i = 0; i < pieces; i++) most = fmaxf(most, part[(i64)i * (p.dim + 2)]);
  for (int i = 0; i < pieces; i++) {
    const float* one = part + (i64)i * (p.dim + 2);
    if (one[1] != 0) sum += one[1] * __expf(one[0] - most);
  }
  for (int e = threadIdx.x; e < p.dim; e += 256) {
    float v = 0;
    for (int i = 0; i < pieces; i++) {
      const float* one = part + (i64)i * (p.dim + 2);
      if (one[1] != 0) v += one[2 + e] * __expf(one[0] - most);
    }
    ((T0*)row_of(p.out, q.batch, q.head, q.row))[e * p.out.strides[3]] = Num<T0>::down(sum == 0 ? 0 : v / sum);
  }
  if (threadIdx.x == 0) p.lse[blockIdx.x] = sum == 0 ? INF : most + logf(sum);
}
)cuda"};

struct Side {
  const void* data;
  int64_t strides[4];
};
struct Problem {
  Side q, k, v, out;
  const void* mask = nullptr;
  int64_t mask_strides[4] = {};
  int64_t heads, group;
  int32_t queries, keys, piece, dim, causal, is_bool = 0, packed = 1;
  float scale;
  float *lse, *parts = nullptr;
};

Side side(const ExternView& v) {
  Side s{v.data, {}};
  std::copy(v.strides, v.strides + 4, s.strides);
  return s;
}

// Returns whether 8 features, from a multiple of 8 on, are whole accesses of 16 bytes.
bool is_packed(const ExternView& v) {
  bool fits = v.strides[3] == 1 && v.sizes[3] % 8 == 0 && std::bit_cast<uintptr_t>(v.data) % 16 == 0;
  for (int d = 0; d < 3; d++) fits &= v.strides[d] * int64_t(size_of(v.dtype)) % 16 == 0;
  return fits;
}

Problem problem_of(const ExternCall& call) {
  const ExternView &q = call.in[0], &k = call.in[1], &v = call.in[2], &mask = call.in[3];
  Problem p{side(q), side(k), side(v), side(call.out[0])};
  p.heads = q.sizes[1], p.group = q.sizes[1] / k.sizes[1];
  p.queries = int32_t(q.sizes[2]), p.keys = int32_t(k.sizes[2]), p.dim = int32_t(q.sizes[3]);
  p.causal = call.ints[0] != 0, p.packed = is_packed(q) && is_packed(k) && is_packed(v);
  p.scale = float(std::isnan(call.scalars[0]) ? 1 / std::sqrt(double(p.dim)) : call.scalars[0]);
  if (mask.data) {
    p.mask = mask.data, p.is_bool = is_bool(mask.dtype);
    std::copy(mask.strides, mask.strides + 4, p.mask_strides);
  }
  p.lse = static_cast<float*>(call.out[1].data);
  return p;
}

}  // namespace

bool few_queries_take(const ExternCall& call) {
  const ExternView &q = call.in[0], &k = call.in[1], &v = call.in[2];
  const int64_t pieces = (k.sizes[2] + kMaxKeys - 1) / kMaxKeys + kPieces;
  return q.sizes[2] <= kMaxQueries && q.sizes[3] == v.sizes[3] && q.sizes[3] >= 1 && q.sizes[3] <= 256 &&
         k.sizes[2] >= 1 && pieces <= 65535 && q.sizes[0] * q.sizes[1] * q.sizes[2] * pieces <= INT32_MAX;
}

void run_few_queries(const ExternCall& call) {
  Launcher l(call);
  Problem p = problem_of(call);
  const DType dtype = call.in[0].dtype;
  const int64_t rows = call.in[0].sizes[0] * p.heads * p.queries;
  const int64_t wanted = std::clamp<int64_t>(kBlocks / std::max<int64_t>(rows, 1), 1, kPieces);
  const int64_t groups = (p.keys + wanted * kMinKeys - 1) / (wanted * kMinKeys);
  p.piece = int32_t(std::min(groups * kMinKeys, kMaxKeys));
  const int64_t pieces = (p.keys + p.piece - 1) / p.piece;
  if (pieces > 1) p.parts = l.scratch<float>(rows * pieces * (p.dim + 2));
  int lanes = 4;
  while (lanes * 8 < p.dim) lanes *= 2;
  l.run({kSource, "attention_few", {dtype}, lanes}, {rows, pieces}, 256, p);
  if (pieces > 1) l.run({kSource, "attention_join", {dtype}, lanes}, {rows}, 256, p, int(pieces));
}

}  // namespace lutra::cuda
