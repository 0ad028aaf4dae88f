// flash_attention and its backward: views of any strides in; out, logsumexp and gradients out, without the matrix of
// scores in memory.
//
// Invariants:
// 1. A block has 64 rows (queries; for the gradients of keys and values, keys) and goes through the columns in tiles of
//    32 from the first on; nothing is shared among blocks. So bits are a function of sizes and the precision setting.
// 2. Products are float32 chains (SIMT), or TF32 on tensor cores: for float32 where precision.h allows it, for half
//    types always (they fit into TF32; weights are rounded to its 10 bits).
// 3. A query that sees no key has a logsumexp of +inf, a result of 0 and gradients of 0.
#include <algorithm>
#include <cmath>

#include "ops/core/half.h"
#include "ops/extern/cuda/kernels.h"
#include "ops/extern/cuda/launch.h"
#include "ops/extern/precision.h"

namespace lutra::cuda {
namespace {

constexpr int kRows = 64, kColumns = 32, kThreads = 128;

// VARIANT: features, padded (32, 64, 128 or 256), 512 for tensor cores; 1024 for the
// gradient of queries, 2048 for those of keys and values: sources that are compiled side by side.
const ExternSource kSource = {"attention", R"cuda(
#define D (VARIANT & 511)
#define LD (D + 4)
#define BM 64
#define BN 32
#define LP (BN + 4)
#define LOG2E 1.4426950408889634f
struct Operand { void* data; i64 s[4]; };
struct Mask { const void* data; i64 s[4]; i64 is_bool; };
struct Problem {
  i64 batch, heads, kv_heads, queries, keys;
  int dim, value_dim, causal;
  float scale;
  Operand q, k, v, out, grad, dq, dk, dv;
  Mask mask;
  float *lse, *delta;
};

DEV T0* row_at(const Operand& x, i64 batch, i64 head, i64 row) {
  return (T0*)x.data + batch * x.s[0] + head * x.s[1] + row * x.s[2];
}
DEV i64 least(i64 a, i64 b) { return a < b ? a : b; }

// An engine: thread t has rows row_of(0 .. R-1) of a block's tile, columns col_of(0 .. C-1) of a tile of scores and
// features feature_of(0 .. O-1) of a result; LANES threads side by side share rows.
#if VARIANT & 512
enum { R = 2, C = BN / 4, O = D / 4, LANES = 4 };
DEV float rounded(float x) {
#ifdef LUTRA_EMULATED
  return x - x == 0 ? float_of((bits_of(x) + 0x1000) & 0xffffe000u) : x;
#else
  u32 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return float_of(r);
#endif
}
// c (16 x 8) += a (16 x 8) b (8 x 8), spread over the warp as the instruction wants it.
DEV void mma(float& c0, float& c1, float& c2, float& c3, const float* a, float b0, float b1) {
#ifdef LUTRA_EMULATED
  static float parts[32][32][6];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (int r = 0; r < 4; r++) parts[warp][lane][r] = a[r];
  parts[warp][lane][4] = b0, parts[warp][lane][5] = b1;
  __syncwarp();
  for (int k = 0; k < 8; k++) {
    const float *x = parts[warp][g * 4 + k % 4] + k / 4 * 2, *y = parts[warp][2 * t * 4 + k % 4] + 4 + k / 4;
    const float* z = parts[warp][(2 * t + 1) * 4 + k % 4] + 4 + k / 4;
    c0 += x[0] * *y, c1 += x[0] * *z, c2 += x[1] * *y, c3 += x[1] * *z;
  }
  __syncwarp();
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
      : "r"(bits_of(a[0])), "r"(bits_of(a[1])), "r"(bits_of(a[2])), "r"(bits_of(a[3])), "r"(bits_of(b0)),
        "r"(bits_of(b1)));
#endif
}
DEV int row_of(int i) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * i; }
DEV int col_of(int j) { return j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2; }
DEV int feature_of(int j) { return col_of(j); }
// Rows k .. k + 8 of a matrix of this thread's rows.
DEV void load_a(float* a, const float* m, int ld, int k) {
  const float* p = m + row_of(0) * ld + k + threadIdx.x % 4;
  a[0] = p[0], a[1] = p[8 * ld], a[2] = p[4], a[3] = p[8 * ld + 4];
}
// The rows of a block that stay: few features in registers.
#if D <= 64
struct Held { float a[D / 8][4]; };
DEV void hold(Held& h, const float* m) {
#pragma unroll
  for (int k = 0; k < D; k += 8) load_a(h.a[k / 8], m, LD, k);
}
#else
struct Held { const float* m; };
DEV void hold(Held& h, const float* m) { h.m = m; }
#endif
DEV void dot(float (&s)[R][C], const Held& a, const float* b) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < C; j++) s[0][j] = s[1][j] = 0;
#if D <= 64
#pragma unroll
#else
#pragma unroll 4
#endif
  for (int k = 0; k < D; k += 8) {
#if D <= 64
    const float* fa = a.a[k / 8];
#else
    float fa[4];
    load_a(fa, a.m, LD, k);
#endif
#pragma unroll
    for (int n = 0; n < BN / 8; n++) {
      const float* p = b + (n * 8 + g) * LD + k + t;
      mma(s[0][2 * n], s[0][2 * n + 1], s[1][2 * n], s[1][2 * n + 1], fa, p[0], p[4]);
    }
  }
}
// Weights stay in registers: a tile of scores lies as the left operand of a product, but that columns 2t and 2t + 1
// stand for t and t + 4; the right operand's rows are read in that order.
DEV void put_weights(float*, const float (&)[R][C]) {}
DEV void wait_for_weights() {}
DEV void add_product(float (&o)[R][O], const float (&s)[R][C], const float*, const float* v) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int k = 0; k < BN; k += 8) {
    const float fa[4] = {s[0][k / 4], s[1][k / 4], s[0][k / 4 + 1], s[1][k / 4 + 1]};
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
      const float* p = v + (k + 2 * t) * LD + n * 8 + g;
      mma(o[0][2 * n], o[0][2 * n + 1], o[1][2 * n], o[1][2 * n + 1], fa, p[0], p[LD]);
    }
  }
}
#else
enum { R = 4, C = BN / 8, O = D / 8, LANES = 8 };
DEV float rounded(float x) { return x; }
DEV int row_of(int i) { return threadIdx.x / 8 * 4 + i; }
DEV int col_of(int j) { return threadIdx.x % 8 + 8 * j; }
DEV int feature_of(int j) { return j / 4 * 32 + threadIdx.x % 8 * 4 + j % 4; }
DEV float4 four(const float* p) { return *(const float4*)p; }
struct Held { const float* m; };
DEV void hold(Held& h, const float* m) { h.m = m; }
DEV void put_weights(float* w, const float (&s)[R][C]) {
#pragma unroll
  for (int i = 0; i < R; i++) {
#pragma unroll
    for (int j = 0; j < C; j++) w[row_of(i) * LP + col_of(j)] = s[i][j];
  }
}
DEV void wait_for_weights() { __syncthreads(); }
DEV void dot(float (&s)[R][C], const Held& h, const float* b) {
  const float* a = h.m;
#pragma unroll
  for (int i = 0; i < R; i++) {
#pragma unroll
    for (int j = 0; j < C; j++) s[i][j] = 0;
  }
#pragma unroll 4
  for (int k = 0; k < D; k += 4) {
    float4 x[R], y[C];
#pragma unroll
    for (int i = 0; i < R; i++) x[i] = four(a + row_of(i) * LD + k);
#pragma unroll
    for (int j = 0; j < C; j++) y[j] = four(b + col_of(j) * LD + k);
#pragma unroll
    for (int i = 0; i < R; i++) {
#pragma unroll
      for (int j = 0; j < C; j++) {
        s[i][j] = fmaf(x[i].x, y[j].x, s[i][j]);
        s[i][j] = fmaf(x[i].y, y[j].y, s[i][j]);
        s[i][j] = fmaf(x[i].z, y[j].z, s[i][j]);
        s[i][j] = fmaf(x[i].w, y[j].w, s[i][j]);
      }
    }
  }
}
DEV void add_product(float (&o)[R][O], const float (&)[R][C], const float* w, const float* v) {
#pragma unroll 2
  for (int k = 0; k < BN; k += 4) {
    float4 x[R];
#pragma unroll
    for (int i = 0; i < R; i++) x[i] = four(w + row_of(i) * LP + k);
#pragma unroll
    for (int j = 0; j < O; j += 4) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float4 y = four(v + (k + e) * LD + feature_of(j));
#pragma unroll
        for (int i = 0; i < R; i++) {
          const float p = e == 0 ? x[i].x : e == 1 ? x[i].y : e == 2 ? x[i].z : x[i].w;
          o[i][j] = fmaf(p, y.x, o[i][j]), o[i][j + 1] = fmaf(p, y.y, o[i][j + 1]);
          o[i][j + 2] = fmaf(p, y.z, o[i][j + 2]), o[i][j + 3] = fmaf(p, y.w, o[i][j + 3]);
        }
      }
    }
  }
}
#endif

DEV float row_max(float x) {
  for (int m = 1; m < LANES; m *= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, m));
  return x;
}
DEV float row_sum(float x) {
  for (int m = 1; m < LANES; m *= 2) x += __shfl_xor_sync(0xffffffffu, x, m);
  return x;
}
DEV float weight(float x) { return exp2f(x * LOG2E); }

// `rows` rows of an operand from `first` on, times a factor, filled up with zeros.
DEV void load_rows(float* to, const Operand& x, i64 batch, i64 head, i64 first, i64 total, int rows, int dim,
                   float factor) {
  const T0* from = row_at(x, batch, head, first);
  // Four features at a time where they lie so.
  if (sizeof(T0) == 4 && x.s[3] == 1 && ((x.s[0] | x.s[1] | x.s[2] | dim) & 3) == 0 && ((u64)x.data & 15) == 0) {
    for (int i = threadIdx.x; i < rows * D / 4; i += 128) {
      const int r = i / (D / 4), c = i % (D / 4) * 4;
      float4 v = {0, 0, 0, 0};
      if (first + r < total && c < dim) v = *(const float4*)(from + r * x.s[2] + c);
      v.x = rounded(v.x * factor), v.y = rounded(v.y * factor);
      v.z = rounded(v.z * factor), v.w = rounded(v.w * factor);
      *(float4*)(to + r * LD + c) = v;
    }
    return;
  }
  for (int i = threadIdx.x; i < rows * D; i += 128) {
    const int r = i / D, c = i % D;
    const bool in = first + r < total && c < dim;
    to[r * LD + c] = in ? rounded(Num<T0>::up(from[r * x.s[2] + c * x.s[3]]) * factor) : 0.0f;
  }
}
DEV float seen(const Problem& p, i64 batch, i64 head, i64 query, i64 key, float score) {
  if (query >= p.queries || key >= p.keys || (p.causal && key > query)) return -INF;
  if (!p.mask.data) return score;
  const i64 at = batch * p.mask.s[0] + head * p.mask.s[1] + query * p.mask.s[2] + key * p.mask.s[3];
  if (p.mask.is_bool) return ((const u8*)p.mask.data)[at] ? score : -INF;
  return score + ((const float*)p.mask.data)[at];
}
DEV void clear(float (&o)[R][O]) {
#pragma unroll
  for (int i = 0; i < R; i++) {
#pragma unroll
    for (int j = 0; j < O; j++) o[i][j] = 0;
  }
}
DEV void store(const Operand& to, i64 batch, i64 head, i64 first, i64 total, int dim, const float (&o)[R][O],
               const float (&factor)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) {
    const i64 row = first + row_of(i);
    if (row >= total) continue;
    T0* p = row_at(to, batch, head, row);
#pragma unroll
    for (int j = 0; j < O; j++) {
      const int c = feature_of(j);
      if (c < dim) p[c * to.s[3]] = Num<T0>::down(o[i][j] * factor[i]);
    }
  }
}

#if !(VARIANT & 3072)
KERNEL BOUNDS(128) attention_forward(Problem p) {
  DYNAMIC_SHARED(memory);
  float *q = memory, *k = q + BM * LD, *v = k + BN * LD, *w = v + BN * LD;
  const i64 tiles = (p.queries + BM - 1) / BM, id = blockIdx.x, first = (tiles - 1 - id % tiles) * BM;
  const i64 head = id / tiles % p.heads, batch = id / tiles / p.heads, shared_head = head / (p.heads / p.kv_heads);
  load_rows(q, p.q, batch, head, first, p.queries, BM, p.dim, p.scale);
  __syncthreads();
  Held rows;
  hold(rows, q);
  float o[R][O], top[R], total[R];
  clear(o);
  for (int i = 0; i < R; i++) top[i] = -INF, total[i] = 0;
  const i64 end = p.causal ? least(p.keys, first + BM) : p.keys;
  for (i64 k0 = 0; k0 < end; k0 += BN) {
    __syncthreads();
    load_rows(k, p.k, batch, shared_head, k0, p.keys, BN, p.dim, 1);
    load_rows(v, p.v, batch, shared_head, k0, p.keys, BN, p.value_dim, 1);
    __syncthreads();
    float s[R][C];
    dot(s, rows, k);
#pragma unroll
    for (int i = 0; i < R; i++) {
      float m = top[i], sum = 0;
#pragma unroll
      for (int j = 0; j < C; j++) {
        s[i][j] = seen(p, batch, head, first + row_of(i), k0 + col_of(j), s[i][j]);
        m = fmaxf(m, s[i][j]);
      }
      m = row_max(m);
      const float safe = m == -INF ? 0.0f : m, alpha = weight(top[i] - safe);
#pragma unroll
      for (int j = 0; j < C; j++) {
        const float x = weight(s[i][j] - safe);
        sum += x;
        s[i][j] = rounded(x);
      }
      top[i] = m, total[i] = total[i] * alpha + row_sum(sum);
#pragma unroll
      for (int j = 0; j < O; j++) o[i][j] *= alpha;
    }
    put_weights(w, s);
    wait_for_weights();
    add_product(o, s, w, v);
  }
  float factor[R];
  for (int i = 0; i < R; i++) {
    const i64 row = first + row_of(i);
    factor[i] = total[i] == 0 ? 0.0f : 1 / total[i];
    if (row < p.queries && threadIdx.x % LANES == 0) {
      p.lse[(batch * p.heads + head) * p.queries + row] = total[i] == 0 ? INF : top[i] + logf(total[i]);
    }
  }
  store(p.out, batch, head, first, p.queries, p.value_dim, o, factor);
}

#elif VARIANT & 1024
// The sum of grad * out of each query.
KERNEL BOUNDS(256) attention_delta(Problem p) {
  const i64 i = thread_number();
  if (i >= p.batch * p.heads * p.queries) return;
  const i64 row = i % p.queries, head = i / p.queries % p.heads, batch = i / p.queries / p.heads;
  const T0 *g = row_at(p.grad, batch, head, row), *o = row_at(p.out, batch, head, row);
  float sum = 0;
  for (int c = 0; c < p.value_dim; c++) {
    sum = fmaf(Num<T0>::up(g[c * p.grad.s[3]]), Num<T0>::up(o[c * p.out.s[3]]), sum);
  }
  p.delta[i] = sum;
}

KERNEL BOUNDS(128) attention_dq(Problem p) {
  DYNAMIC_SHARED(memory);
  float *q = memory, *g = q + BM * LD, *k = g + BM * LD, *v = k + BN * LD, *w = v + BN * LD;
  const i64 tiles = (p.queries + BM - 1) / BM, id = blockIdx.x, first = (tiles - 1 - id % tiles) * BM;
  const i64 head = id / tiles % p.heads, batch = id / tiles / p.heads, shared_head = head / (p.heads / p.kv_heads);
  load_rows(q, p.q, batch, head, first, p.queries, BM, p.dim, p.scale);
  load_rows(g, p.grad, batch, head, first, p.queries, BM, p.value_dim, 1);
  __syncthreads();
  Held queries, grads;
  hold(queries, q), hold(grads, g);
  float o[R][O], lse[R], delta[R], factor[R];
  clear(o);
  for (int i = 0; i < R; i++) {
    const i64 row = first + row_of(i), at = (batch * p.heads + head) * p.queries + row;
    lse[i] = row < p.queries ? p.lse[at] : INF, delta[i] = row < p.queries ? p.delta[at] : 0, factor[i] = p.scale;
  }
  const i64 end = p.causal ? least(p.keys, first + BM) : p.keys;
  for (i64 k0 = 0; k0 < end; k0 += BN) {
    __syncthreads();
    load_rows(k, p.k, batch, shared_head, k0, p.keys, BN, p.dim, 1);
    load_rows(v, p.v, batch, shared_head, k0, p.keys, BN, p.value_dim, 1);
    __syncthreads();
    float s[R][C], d[R][C];
    dot(s, queries, k);
    dot(d, grads, v);
#pragma unroll
    for (int i = 0; i < R; i++) {
#pragma unroll
      for (int j = 0; j < C; j++) {
        const float x = weight(seen(p, batch, head, first + row_of(i), k0 + col_of(j), s[i][j]) - lse[i]);
        s[i][j] = rounded(x * (d[i][j] - delta[i]));
      }
    }
    put_weights(w, s);
    wait_for_weights();
    add_product(o, s, w, k);
  }
  store(p.dq, batch, head, first, p.queries, p.dim, o, factor);
}

#else
// Rows are keys, columns queries.
KERNEL BOUNDS(128) attention_dkv(Problem p) {
  DYNAMIC_SHARED(memory);
  float *k = memory, *v = k + BM * LD, *q = v + BM * LD, *g = q + BN * LD, *w = g + BN * LD, *u = w + BM * LP;
  float *lse = u + BM * LP, *delta = lse + BN;
  const i64 tiles = (p.keys + BM - 1) / BM, id = blockIdx.x, first = id % tiles * BM;
  const i64 shared_head = id / tiles % p.kv_heads, batch = id / tiles / p.kv_heads, group = p.heads / p.kv_heads;
  load_rows(k, p.k, batch, shared_head, first, p.keys, BM, p.dim, 1);
  load_rows(v, p.v, batch, shared_head, first, p.keys, BM, p.value_dim, 1);
  __syncthreads();
  Held keys, values;
  hold(keys, k), hold(values, v);
  float dk[R][O], dv[R][O], factor[R];
  clear(dk), clear(dv);
  for (int i = 0; i < R; i++) factor[i] = 1;
  for (i64 head = shared_head * group; head < (shared_head + 1) * group; head++) {
    for (i64 q0 = p.causal ? first : 0; q0 < p.queries; q0 += BN) {
      __syncthreads();
      load_rows(q, p.q, batch, head, q0, p.queries, BN, p.dim, p.scale);
      load_rows(g, p.grad, batch, head, q0, p.queries, BN, p.value_dim, 1);
      if (threadIdx.x < BN) {
        const i64 row = q0 + threadIdx.x, at = (batch * p.heads + head) * p.queries + row;
        lse[threadIdx.x] = row < p.queries ? p.lse[at] : INF, delta[threadIdx.x] = row < p.queries ? p.delta[at] : 0;
      }
      __syncthreads();
      float s[R][C], d[R][C];
      dot(s, keys, q);
      dot(d, values, g);
#pragma unroll
      for (int i = 0; i < R; i++) {
#pragma unroll
        for (int j = 0; j < C; j++) {
          const int c = col_of(j);
          const float x = weight(seen(p, batch, head, q0 + c, first + row_of(i), s[i][j]) - lse[c]);
          s[i][j] = rounded(x), d[i][j] = rounded(x * (d[i][j] - delta[c]));
        }
      }
      put_weights(w, s), put_weights(u, d);
      wait_for_weights();
      add_product(dv, s, w, g);
      add_product(dk, d, u, q);
    }
  }
  store(p.dk, batch, shared_head, first, p.keys, p.dim, dk, factor);
  store(p.dv, batch, shared_head, first, p.keys, p.value_dim, dv, factor);
}
#endif
)cuda"};

struct Operand {
  void* data = nullptr;
  int64_t strides[4] = {};
};
struct Mask {
  const void* data = nullptr;
  int64_t strides[4] = {};
  int64_t is_bool = 0;
};
struct Problem {
  int64_t batch, heads, kv_heads, queries, keys;
  int32_t dim, value_dim, causal;
  float scale;
  Operand q, k, v, out, grad, dq, dk, dv;
  Mask mask;
  float *lse, *delta;
};

Operand operand(const ExternView& v, DType dtype) {
  LUTRA_CHECK(v.dim == 4 && v.dtype == dtype, "an operand of attention");
  Operand o;
  o.data = v.data;
  std::copy(v.strides, v.strides + 4, o.strides);
  return o;
}

Problem problem(const ExternCall& call, const ExternView* qkv, const ExternView& mask) {
  const ExternView &q = qkv[0], &k = qkv[1], &v = qkv[2];
  Problem p{};
  p.q = operand(q, q.dtype), p.k = operand(k, q.dtype), p.v = operand(v, q.dtype);
  p.batch = q.sizes[0], p.heads = q.sizes[1], p.kv_heads = k.sizes[1], p.queries = q.sizes[2], p.keys = k.sizes[2];
  p.dim = int32_t(q.sizes[3]), p.value_dim = int32_t(v.sizes[3]);
  p.causal = call.ints[0] != 0;
  const double scale = call.scalars[0];
  p.scale = std::isnan(scale) ? float(1 / std::sqrt(double(p.dim))) : float(scale);
  if (mask.data) {
    LUTRA_CHECK(mask.dim == 4 && (mask.dtype == DType::kBool || mask.dtype == DType::kFloat32), "a mask of attention");
    p.mask.data = mask.data, p.mask.is_bool = mask.dtype == DType::kBool;
    std::copy(mask.strides, mask.strides + 4, p.mask.strides);
  }
  return p;
}

int features(const ExternView* qkv) {
  const int64_t most = std::max(qkv[0].sizes[3], qkv[2].sizes[3]);
  return most <= 32 ? 32 : most <= 64 ? 64 : most <= 128 ? 128 : 256;
}

// Shared memory: tiles of whole blocks and of columns, matrices of weights, two floats a column.
int shared_bytes(int padded, int rows, int columns, int weights) {
  return 4 * ((rows * kRows + columns * kColumns) * (padded + 4) + weights * kRows * (kColumns + 4) + 2 * kColumns);
}

KernelId kernel(const char* name, int part, DType dtype, int padded, int shared) {
  const bool cores = is_half(dtype) || matmul_precision() != MatmulPrecision::kHighest;
  return {kSource, name, {dtype}, padded + (cores ? 512 : 0) + part, shared};
}

int64_t tiles(int64_t n) { return (n + kRows - 1) / kRows; }

}  // namespace

bool attention_supports(DType dtype) { return dtype == DType::kFloat32 || is_half(dtype); }

// Whether features fit, and tiles of them into a block's shared memory.
bool attention_takes(const ExternCall& call) {
  const ExternView* qkv = call.in.data() + (call.op == OpId::flash_attention ? 0 : 1);
  if (qkv[0].sizes[3] > 256 || qkv[2].sizes[3] > 256) return false;
  const bool forward = call.op == OpId::flash_attention;
  const int bytes = forward ? shared_bytes(features(qkv), 1, 2, 1) : shared_bytes(features(qkv), 2, 2, 2);
  return emulated() || bytes <= context(call.device).shared_bytes;
}

void run_attention(const ExternCall& call) {
  Launcher l(call);
  Problem p = problem(call, call.in.data(), call.in[3]);
  const DType dtype = call.in[0].dtype;
  LUTRA_CHECK(call.out[1].dtype == DType::kFloat32, "logsumexp");
  p.out = operand(call.out[0], dtype), p.lse = static_cast<float*>(call.out[1].data);
  const int padded = features(call.in.data());
  l.run(kernel("attention_forward", 0, dtype, padded, shared_bytes(padded, 1, 2, 1)),
        {tiles(p.queries) * p.heads * p.batch}, kThreads, p);
}

void run_attention_backward(const ExternCall& call) {
  Launcher l(call);
  const ExternView* qkv = call.in.data() + 1;
  const DType dtype = qkv[0].dtype;
  Problem p = problem(call, qkv, call.in[6]);
  const int64_t rows = p.batch * p.heads * p.queries;
  if (rows * p.keys == 0) {
    // Results of empty problems are dense.
    for (const ExternView& v : call.out) l.zero(v.data, size_t(v.numel()) * size_of(v.dtype));
    return;
  }
  LUTRA_CHECK(call.in[5].dtype == DType::kFloat32, "logsumexp");
  p.grad = operand(call.in[0], dtype), p.out = operand(call.in[4], dtype);
  p.dq = operand(call.out[0], dtype), p.dk = operand(call.out[1], dtype), p.dv = operand(call.out[2], dtype);
  p.lse = static_cast<float*>(call.in[5].data), p.delta = l.scratch<float>(rows);
  const int padded = features(qkv);
  l.run(kernel("attention_delta", 1024, dtype, padded, 0), {(rows + 255) / 256}, 256, p);
  l.run(kernel("attention_dq", 1024, dtype, padded, shared_bytes(padded, 2, 2, 1)),
        {tiles(p.queries) * p.heads * p.batch}, kThreads, p);
  l.run(kernel("attention_dkv", 2048, dtype, padded, shared_bytes(padded, 2, 2, 2)),
        {tiles(p.keys) * p.kv_heads * p.batch}, kThreads, p);
}

}  // namespace lutra::cuda
