// The text of attention's kernels. attention.cc describes their arguments and invariants.
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

// VARIANT: features, padded (32, 64, 128 or 256); plus 512 for TF32 on tensor cores; 1024 for the backward; 2048 for
// blocks of 128 rows instead of 64; 4096 with a mask; 8192 for half types.
const char kAttentionText[] = R"cuda(
#define D (VARIANT & 511)
#define HALVES (VARIANT & 8192)
#define LD (D + (HALVES ? 8 : 4))
#define BM (VARIANT & 2048 ? 128 : 64)
#define THREADS (2 * BM)
// The number of blocks that a multiprocessor's shared memory has room for.
#define FORWARD_HALVES (HALVES && !(VARIANT & 1024))
#define BLOCKS (BM == 128 ? 2 : D == 32 ? 4 : D == 64 ? 3 : D == 128 ? (FORWARD_HALVES ? 3 : 2) : 1)
// STAGE: columns in shared memory at a time. BN: columns of a tile.
#define STAGE (D == 32 || (HALVES && D == 64) ? 128 : D == 64 || (HALVES && D == 128) ? 64 : 32)
#define BN 32
#define LP (BN + 4)
#define LOG2E 1.4426950408889634f
struct Operand { void* data; i64 s[4]; i64 packed; };
struct Mask { const void* data; i64 s[4]; i64 is_bool; };
struct Problem {
  i64 batch, heads, kv_heads;
  int queries, keys, dim, value_dim, causal;
  float scale;
  Operand q, k, v, out, grad, dq, dk, dv;
  Mask mask;
  float* lse;
};

// An engine assigns elements to threads: rows row_of(0 .. R-1) of a block (a warp has 16 rows), columns
// col_of(0 .. C-1) of a tile of scores, features feature_of(0 .. O-1) of a result. LANES neighbours share their rows.
#if HALVES || VARIANT & 512
enum { R = 2, C = BN / 4, O = D / 4, LANES = 4 };
DEV int row_of(int i) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * i; }
DEV int col_of(int j) { return j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2; }
DEV int feature_of(int j) { return col_of(j); }
#endif
#if HALVES
typedef T0 Shared;
// Shared memory holds the elements as memory has them. Scores are scaled after their product. Their gradients are
// scaled before they are rounded, because float16 has few exponents. Weights are rounded for products, but not for
// row sums.
DEV float rounded(float x) { return x; }
DEV float factor_before(float) { return 1; }
DEV float factor_after(float) { return 1; }
// The rows of a warp as left operands of products. A forward of few features keeps them in registers (kKept).
enum { kKept = !(VARIANT & 1024) && D <= 128 };
DEV void left_part(u32 (&to)[4], const Shared* a, int k) {
  const int lane = threadIdx.x % 32;
  load_matrices<false>(to, a + (threadIdx.x / 32 * 16 + lane % 16) * LD + k + lane / 16 * 8);
}
struct Left {
  const Shared* rows;
  u32 parts[kKept ? D / 16 : 1][4];
};
DEV Left left_of(const Shared* a) {
  Left l;
  l.rows = a;
  if (kKept) {
#pragma unroll
    for (int k = 0; k < D; k += 16) left_part(l.parts[kKept ? k / 16 : 0], a, k);
  }
  return l;
}
// Computes s = a b^T for rows in shared memory.
DEV void dot(float (&s)[R][C], const Left& a, const Shared* b) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < C; j++) s[0][j] = s[1][j] = 0;
  b += (lane / 16 * 8 + lane % 8) * LD + lane / 8 % 2 * 8;
#pragma unroll (kKept ? D / 16 : 4)
  for (int k = 0; k < D; k += 16) {
    u32 fresh[4];
    if (!kKept) left_part(fresh, a.rows, k);
    const u32* fa = kKept ? a.parts[kKept ? k / 16 : 0] : fresh;
#pragma unroll
    for (int n = 0; n < BN / 8; n += 2) {
      u32 fb[4];
      load_matrices<false>(fb, b + n * 8 * LD + k);
      mma(s[0][2 * n], s[0][2 * n + 1], s[1][2 * n], s[1][2 * n + 1], fa, fb[0], fb[1]);
      mma(s[0][2 * n + 2], s[0][2 * n + 3], s[1][2 * n + 2], s[1][2 * n + 3], fa, fb[2], fb[3]);
    }
  }
}
// Computes o += s v. In registers a tile of scores has the layout of the left operand of mma.
DEV void add_product(float (&o)[R][O], const float (&s)[R][C], float*, const Shared* v) {
  const int lane = threadIdx.x % 32;
  v += lane % 16 * LD + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < BN; k += 16) {
    const int j = k / 4;
    const u32 fa[4] = {pair_of(s[0][j], s[0][j + 1]), pair_of(s[1][j], s[1][j + 1]),
                       pair_of(s[0][j + 2], s[0][j + 3]), pair_of(s[1][j + 2], s[1][j + 3])};
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      u32 fb[4];
      load_matrices<true>(fb, v + k * LD + n * 8);
      mma(o[0][2 * n], o[0][2 * n + 1], o[1][2 * n], o[1][2 * n + 1], fa, fb[0], fb[1]);
      mma(o[0][2 * n + 2], o[0][2 * n + 3], o[1][2 * n + 2], o[1][2 * n + 3], fa, fb[2], fb[3]);
    }
  }
}
#else
typedef float Shared;
typedef const float* Left;
DEV Left left_of(const float* a) { return a; }
DEV float factor_before(float scale) { return scale; }
DEV float factor_after(float scale) { return scale; }
#if VARIANT & 512
DEV float rounded(float x) { return tf32(x); }
DEV void dot(float (&s)[R][C], const float* a, const float* b) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < C; j++) s[0][j] = s[1][j] = 0;
  a += row_of(0) * LD + t, b += g * LD + t;
#pragma unroll 4
  for (int k = 0; k < D; k += 8) {
    const float fa[4] = {a[k], a[8 * LD + k], a[k + 4], a[8 * LD + k + 4]};
#pragma unroll
    for (int n = 0; n < BN / 8; n++) {
      const float* p = b + n * 8 * LD + k;
      mma(s[0][2 * n], s[0][2 * n + 1], s[1][2 * n], s[1][2 * n + 1], fa, p[0], p[4]);
    }
  }
}
// Computes o += s v. Weights stay in registers: a tile of scores has the layout of the left operand of mma, except that
// columns 2t and 2t + 1 stand for t and t + 4. The rows of the right operand are read in that order.
DEV void add_product(float (&o)[R][O], const float (&s)[R][C], float*, const float* v) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  v += 2 * t * LD + g;
#pragma unroll
  for (int k = 0; k < BN; k += 8) {
    const float fa[4] = {s[0][k / 4], s[1][k / 4], s[0][k / 4 + 1], s[1][k / 4 + 1]};
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
      const float* p = v + k * LD + n * 8;
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
DEV void dot(float (&s)[R][C], const float* a, const float* b) {
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
// Lanes that share rows exchange their weights through `w`, which is shared memory.
DEV void add_product(float (&o)[R][O], const float (&s)[R][C], float* w, const float* v) {
  __syncwarp();
#pragma unroll
  for (int i = 0; i < R; i++) {
#pragma unroll
    for (int j = 0; j < C; j++) w[row_of(i) * LP + col_of(j)] = s[i][j];
  }
  __syncwarp();
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

// The rows of an operand's matrix from `first` on; `rows` of them exist.
struct Rows { T0* data; i64 row, col; int rows, dim; bool packed; };
DEV Rows rows_of(const Operand& x, i64 batch, i64 head, int first, int total, int dim) {
  return {(T0*)x.data + batch * x.s[0] + head * x.s[1] + first * x.s[2], x.s[2], x.s[3], total - first, dim,
          x.packed != 0};
}
struct alignas(4 * sizeof(T0)) Four { T0 v[4]; };
// Loads four features of a row; features that do not exist are 0. Packed loads have no branch, so that they overlap.
template <bool kPacked> DEV Four four_of(const Rows& x, int r, int c) {
  const bool in = r < x.rows && c < x.dim;
  const T0 zero = element_of<T0>(0);
  Four f;
  if (kPacked) {
    f = *(const Four*)(x.data + (in ? r * x.row + c : 0));
#pragma unroll
    for (int i = 0; i < 4; i++) f.v[i] = in ? f.v[i] : zero;
  } else {
    const T0* p = x.data + r * x.row + c * x.col;
#pragma unroll
    for (int i = 0; i < 4; i++) f.v[i] = in && c + i < x.dim ? p[i * x.col] : zero;
  }
  return f;
}
struct alignas(4 * sizeof(Shared)) SharedFour { Shared v[4]; };
DEV SharedFour shared_four(const Four& f, float factor) {
  SharedFour r;
#pragma unroll
  for (int i = 0; i < 4; i++) {
#if HALVES
    r.v[i] = f.v[i];
#else
    r.v[i] = rounded(Num<T0>::up(f.v[i]) * factor);
#endif
  }
  return r;
}
// Copies kRows rows, times a factor, to shared memory. A thread has kAhead loads in flight.
template <int kRows, bool kPacked, int kAhead> DEV void load_rows_by(Shared* to, const Rows& x, float factor) {
#pragma unroll 1
  for (int s = threadIdx.x; s < kRows * D / 4; s += kAhead * THREADS) {
    Four v[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; i++) {
      v[i] = four_of<kPacked>(x, (s + i * THREADS) / (D / 4), (s + i * THREADS) % (D / 4) * 4);
    }
#pragma unroll
    for (int i = 0; i < kAhead; i++) {
      Shared* at = to + (s + i * THREADS) / (D / 4) * LD + (s + i * THREADS) % (D / 4) * 4;
      *(SharedFour*)at = shared_four(v[i], factor);
    }
  }
}
template <int kRows> DEV void load_rows(Shared* to, const Rows& x, float factor) {
  if (x.packed) load_rows_by<kRows, true, 4>(to, x, factor);
  else load_rows_by<kRows, false, 1>(to, x, factor);
}
DEV void clear(float (&o)[R][O]) {
#pragma unroll
  for (int i = 0; i < R; i++) {
#pragma unroll
    for (int j = 0; j < O; j++) o[i][j] = 0;
  }
}
DEV void store(const Rows& to, const float (&o)[R][O], const float (&factor)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) {
    if (row_of(i) >= to.rows) continue;
    T0* p = to.data + row_of(i) * to.row;
#pragma unroll
    for (int j = 0; j < O; j++) {
      const int c = feature_of(j);
      if (c < to.dim) p[c * to.col] = Num<T0>::down(o[i][j] * factor[i]);
    }
  }
}

// Returns -inf for a score outside the problem or above the causal diagonal; otherwise adds the mask to the score.
DEV float seen(const Problem& p, i64 batch, i64 head, int query, int key, float score) {
  if (query >= p.queries || key >= p.keys || (p.causal && key > query)) return -INF;
#if VARIANT & 4096
  const i64 at = batch * p.mask.s[0] + head * p.mask.s[1] + query * p.mask.s[2] + key * p.mask.s[3];
  if (p.mask.is_bool) return ((const u8*)p.mask.data)[at] ? score : -INF;
  return score + ((const float*)p.mask.data)[at];
#else
  return score;
#endif
}
// all_seen: no score of the warp's tile is masked. none_seen: all are.
DEV bool all_seen(const Problem& p, int query, int queries, int key, int keys) {
  if (VARIANT & 4096) return false;
  return query + queries <= p.queries && key + keys <= p.keys && !(p.causal && key + keys - 1 > query);
}
DEV bool none_seen(const Problem& p, int query, int queries, int key) { return p.causal && key > query + queries - 1; }
// Computes the scores of a tile. Scales them if the operands were not scaled.
DEV void scores(float (&s)[R][C], const Left& a, const Shared* b, float scale) {
  dot(s, a, b);
#if HALVES
#pragma unroll
  for (int i = 0; i < R; i++) {
#pragma unroll
    for (int j = 0; j < C; j++) s[i][j] *= scale;
  }
#endif
}
// Masks the scores of a tile. Its rows are keys if by_key, otherwise queries.
DEV void hide(float (&s)[R][C], const Problem& p, i64 batch, i64 head, int row, int column, bool by_key) {
#pragma unroll
  for (int i = 0; i < R; i++) {
#pragma unroll
    for (int j = 0; j < C; j++) {
      const int r = row + row_of(i), c = column + col_of(j);
      s[i][j] = seen(p, batch, head, by_key ? c : r, by_key ? r : c, s[i][j]);
    }
  }
}

#if !(VARIANT & 1024)
// Turns the scores of a tile into weights exp(score - highest score so far of the row). Rescales earlier sums to it.
DEV void weigh(float (&s)[R][C], float (&o)[R][O], float (&top)[R], float (&total)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) {
    float m = top[i], sum = 0;
#pragma unroll
    for (int j = 0; j < C; j++) m = fmaxf(m, s[i][j]);
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
}

KERNEL BOUNDS(THREADS, BLOCKS) attention_forward(const Problem p) {
  sync_dependencies();
  DYNAMIC_SHARED(memory);
  Shared *q = (Shared*)memory, *k = q + BM * LD, *v = k + STAGE * LD;
  float* w = (float*)(v + STAGE * LD);
  const i64 heads = p.batch * p.heads, id = blockIdx.x % heads, head = id % p.heads, batch = id / p.heads;
  const i64 shared_head = head / (p.heads / p.kv_heads);
  const int first = ((p.queries + BM - 1) / BM - 1 - (int)(blockIdx.x / heads)) * BM;
  const int mine = first + row_of(0) / 16 * 16;
  load_rows<BM>(q, rows_of(p.q, batch, head, first, p.queries, p.dim), factor_before(p.scale));
  __syncthreads();
  const Left left = left_of(q);
  float o[R][O], top[R], total[R];
  clear(o);
  for (int i = 0; i < R; i++) top[i] = -INF, total[i] = 0;
  const int end = p.causal && first + BM < p.keys ? first + BM : p.keys;
  for (int k0 = 0; k0 < end; k0 += STAGE) {
    __syncthreads();
    load_rows<STAGE>(k, rows_of(p.k, batch, shared_head, k0, p.keys, p.dim), 1);
    load_rows<STAGE>(v, rows_of(p.v, batch, shared_head, k0, p.keys, p.value_dim), 1);
    __syncthreads();
#pragma unroll 1
    for (int at = 0; at < STAGE; at += BN) {
      const int key = k0 + at;
      if (key >= end || none_seen(p, mine, 16, key)) break;
      float s[R][C];
      scores(s, left, k + at * LD, p.scale);
      if (!all_seen(p, mine, 16, key, BN)) hide(s, p, batch, head, first, key, false);
      weigh(s, o, top, total);
      add_product(o, s, w, v + at * LD);
    }
  }
  float factor[R];
  for (int i = 0; i < R; i++) {
    const int row = first + row_of(i);
    factor[i] = total[i] == 0 ? 0.0f : 1 / total[i];
    if (row < p.queries && threadIdx.x % LANES == 0) {
      p.lse[(batch * p.heads + head) * p.queries + row] = total[i] == 0 ? INF : top[i] + logf(total[i]);
    }
  }
  store(rows_of(p.out, batch, head, first, p.queries, p.value_dim), o, factor);
}

#else
// Computes the sums of a * b over each of `count` rows. Four threads share a row.
template <bool kPacked> DEV void sum_products(float* to, const Rows& a, const Rows& b, int count) {
#pragma unroll 1
  for (int r = threadIdx.x / 4; r < count; r += THREADS / 4) {
    float sum = 0;
#pragma unroll (kPacked ? 4 : 1)
    for (int c = threadIdx.x % 4 * 4; c < D; c += 16) {
      const Four x = four_of<kPacked>(a, r, c), y = four_of<kPacked>(b, r, c);
#pragma unroll
      for (int i = 0; i < 4; i++) sum = fmaf(Num<T0>::up(x.v[i]), Num<T0>::up(y.v[i]), sum);
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (threadIdx.x % 4 == 0) to[r] = sum;
  }
}
// Loads the logsumexp of `count` queries from `first` on, and computes their sums of grad * out.
DEV void load_sums(const Problem& p, float* lse, float* delta, i64 batch, i64 head, int first, int count) {
  const float* from = p.lse + (batch * p.heads + head) * p.queries + first;
  for (int r = threadIdx.x; r < count; r += THREADS) lse[r] = first + r < p.queries ? from[r] : INF;
  const Rows grad = rows_of(p.grad, batch, head, first, p.queries, p.value_dim);
  const Rows out = rows_of(p.out, batch, head, first, p.queries, p.value_dim);
  if (grad.packed && out.packed) sum_products<true>(delta, grad, out, count);
  else sum_products<false>(delta, grad, out, count);
}

// Returns x. The compiler does not know that, so it selects by x at the use, and keeps no selected values in registers.
DEV bool late(bool x) {
  int v = x;
#ifndef LUTRA_EMULATED
  asm volatile("" : "+r"(v));
#endif
  return v != 0;
}

// Turns the scores of a tile into weights p, and d = b y^T into ds. lse and delta are by column, own_* by row.
DEV void differentiate(float (&s)[R][C], float (&d)[R][C], const float* lse, const float* delta, int at,
                       const float (&own_lse)[R], const float (&own_delta)[R], bool by_key, float scale) {
#pragma unroll
  for (int j = 0; j < C; j++) {
    const float column_lse = lse[at + col_of(j)], column_delta = delta[at + col_of(j)];
#pragma unroll
    for (int i = 0; i < R; i++) {
      const float z = weight(s[i][j] - (by_key ? column_lse : own_lse[i]));
      const float slope = z * (d[i][j] - (by_key ? column_delta : own_delta[i]));
      s[i][j] = rounded(z), d[i][j] = rounded(HALVES ? slope * scale : slope);
    }
  }
}

// The work of a block: rows of one head, keys or queries, from `first` on. A warp has 16 of them, from `mine` on.
struct Part { bool by_key; int rows, columns, first, mine; i64 batch, head, group; };
DEV Part part_of(const Problem& p) {
  i64 id = blockIdx.x, heads = p.batch * p.kv_heads;
  const i64 key_blocks = (p.keys + BM - 1) / BM * heads, group = p.heads / p.kv_heads;
  const bool by_key = id < key_blocks;
  if (!by_key) id -= key_blocks, heads = p.batch * p.heads;
  const int rows = by_key ? p.keys : p.queries, columns = by_key ? p.queries : p.keys;
  // The longest tiles run first (under a causal mask): the first keys, the last queries.
  const int tile = by_key ? (int)(id / heads) : (rows + BM - 1) / BM - 1 - (int)(id / heads);
  const i64 heads_of_one = by_key ? p.kv_heads : p.heads, head = id % heads_of_one, batch = id % heads / heads_of_one;
  const int first = tile * BM, mine = first + row_of(0) / 16 * 16;
  return {by_key, rows, columns, first, mine, batch, head, group};
}

// a, b are the matrices of the rows, x, y those of the columns. With p = exp(a x^T - lse) it computes
// ds = p * (b y^T - delta), da = ds x, and for keys db = p y. If rows are queries, a, b are q and grad, and x, y are
// keys and values. If rows are keys, it is the other way round.
KERNEL BOUNDS(THREADS, BLOCKS) attention_backward(const Problem p) {
  sync_dependencies();
  DYNAMIC_SHARED(memory);
  Shared *a = (Shared*)memory, *b = a + BM * LD, *x = b + BM * LD, *y = x + STAGE * LD;
  float *lse = (float*)(y + STAGE * LD), *delta = lse + 128, *w = delta + 128;
  const auto [by_key, rows, columns, first, mine, batch, own, group] = part_of(p);
  const float of_q = factor_before(p.scale);
  load_rows<BM>(a, rows_of(by_key ? p.k : p.q, batch, own, first, rows, p.dim), by_key ? 1.0f : of_q);
  load_rows<BM>(b, rows_of(by_key ? p.v : p.grad, batch, own, first, rows, p.value_dim), 1);
  if (!by_key) load_sums(p, lse, delta, batch, own, first, BM);
  __syncthreads();
  const Left left_a = left_of(a), left_b = left_of(b);
  float da[R][O], db[R][O], own_lse[R], own_delta[R], factor[R];
  clear(da), clear(db);
  for (int i = 0; i < R; i++) own_lse[i] = lse[row_of(i)], own_delta[i] = delta[row_of(i)];
  const int begin = by_key && p.causal ? first : 0;
  const int end = !by_key && p.causal && first + BM < columns ? first + BM : columns;
  const i64 first_head = by_key ? own * group : own, end_head = by_key ? first_head + group : own + 1;
  for (i64 head = first_head; head < end_head; head++) {
    const i64 other = by_key ? head : head / group;
    for (int c0 = begin; c0 < end; c0 += STAGE) {
      __syncthreads();
      const bool of_queries = late(by_key);
      load_rows<STAGE>(x, rows_of(of_queries ? p.q : p.k, batch, other, c0, columns, p.dim), of_queries ? of_q : 1.0f);
      load_rows<STAGE>(y, rows_of(of_queries ? p.grad : p.v, batch, other, c0, columns, p.value_dim), 1);
      if (of_queries) load_sums(p, lse, delta, batch, head, c0, STAGE);
      __syncthreads();
#pragma unroll 1
      for (int at = 0; at < STAGE && c0 + at < end; at += BN) {
        const int column = c0 + at;
        if (by_key ? none_seen(p, column, BN, mine) : none_seen(p, mine, 16, column)) continue;
        float s[R][C], d[R][C];
        scores(s, left_a, x + at * LD, p.scale);
        dot(d, left_b, y + at * LD);
        if (by_key ? !all_seen(p, column, BN, mine, 16) : !all_seen(p, mine, 16, column, BN)) {
          hide(s, p, batch, head, first, column, by_key);
        }
        differentiate(s, d, lse, delta, at, own_lse, own_delta, by_key, p.scale);
        if (by_key) add_product(db, s, w, y + at * LD);
        add_product(da, d, w, x + at * LD);
      }
    }
  }
  const bool of_keys = late(by_key);
  for (int i = 0; i < R; i++) factor[i] = of_keys ? 1.0f : factor_after(p.scale);
  store(rows_of(of_keys ? p.dk : p.dq, batch, own, first, rows, p.dim), da, factor);
  for (int i = 0; i < R; i++) factor[i] = 1;
  if (by_key) store(rows_of(p.dv, batch, own, first, rows, p.value_dim), db, factor);
}
#endif
)cuda";

}  // namespace lutra::cuda
