// The kernels of attention, compiled once for each instruction set. A file that includes this has defined Vec, kWidth,
// kTileRows and the functions load, store, splat, fma of its set, in its own namespace.
//
// Invariants:
// 1. Scores are transposed: a row for each key, vectors along queries. So maxima and sums over keys need no horizontal
//    step, and keys and values are read in place, with any strides.
// 2. Keys are taken in blocks of kAttentionKeys from the first on, whichever thread runs them. So a query's bits are a
//    function of sizes alone.
// 3. The gradient of a score is the small difference of two sums over features (weigh). Both sums add up kRun terms
//    separately before they add them to the sum.
// 4. Padding queries have a logsumexp of +inf, so that their probabilities are 0.
// Nothing is included here or after the pragma that selects the set: a header's inline functions must not be compiled
// for that set.

constexpr int64_t kQ = kAttentionQueries, kK = kAttentionKeys, kRun = 16;

inline int64_t padded(int64_t n) { return (n + kWidth - 1) / kWidth * kWidth; }

// Computes R x (N vectors) of C = A B, or C += A B. A is read by scalars at any strides. Rows of B and C are whole
// vectors.
template <int R, int N>
inline __attribute__((always_inline)) void tile(int64_t depth, const float* a, int64_t a_row, int64_t a_k,
                                                const float* b, int64_t b_k, float* c, int64_t c_row, bool add) {
  Vec acc[R][N];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) acc[r][n] = splat(0);
  }
  for (int64_t k = 0; k < depth; k++) {
    Vec bv[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) bv[n] = load(b + k * b_k + n * kWidth);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const Vec av = splat(a[r * a_row + k * a_k]);
#pragma GCC unroll 4
      for (int n = 0; n < N; n++) acc[r][n] = fma(av, bv[n], acc[r][n]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
      float* to = c + r * c_row + n * kWidth;
      store(to, add ? load(to) + acc[r][n] : acc[r][n]);
    }
  }
}

struct Product {
  int64_t rows, cols, depth;  // cols: a multiple of kWidth
  const float* a;
  int64_t a_row, a_k;
  const float* b;
  int64_t b_k;
  float* c;
  int64_t c_row;
  bool add;
};

template <int N>
inline __attribute__((always_inline)) void column(const Product& p, int64_t col) {
  int64_t r = 0;
  for (; r + kTileRows <= p.rows; r += kTileRows) {
    tile<kTileRows, N>(p.depth, p.a + r * p.a_row, p.a_row, p.a_k, p.b + col, p.b_k, p.c + r * p.c_row + col, p.c_row,
                       p.add);
  }
  for (; r < p.rows; r++) {
    tile<1, N>(p.depth, p.a + r * p.a_row, p.a_row, p.a_k, p.b + col, p.b_k, p.c + r * p.c_row + col, p.c_row, p.add);
  }
}

void multiply(const Product& p) {
  int64_t col = 0;
  for (; col + 2 * kWidth <= p.cols; col += 2 * kWidth) column<2>(p, col);
  for (; col < p.cols; col += kWidth) column<1>(p, col);
}

// Multiplies with separate sums over runs of kRun steps of depth.
void multiply_exactly(const Product& p) {
  Product run = p;
  for (int64_t k = 0; k == 0 || k < p.depth; k += kRun) {
    run.depth = p.depth - k < kRun ? p.depth - k : kRun;
    run.a = p.a + k * p.a_k, run.b = p.b + k * p.b_k;
    run.add = p.add || k > 0;
    multiply(run);
  }
}

// Returns e^x for x that is not large. Below -87 it is 0. NaN stays NaN.
inline Vec exponential(Vec x) {
  const Vec low = splat(-87.0f), magic = splat(12582912.0f);
  const auto tiny = x < low;
  const Vec y = tiny ? low : x;
  const Vec shifted = fma(y, splat(1.44269504088896341f), magic);
  const Vec n = shifted - magic;
  Vec r = fma(n, splat(-0.693359375f), y);
  r = fma(n, splat(2.12194440e-4f), r);
  Vec p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p * r, r, r + splat(1.0f));
  const Vec power = (Vec)(((IntVec)shifted << 23) + (IntVec)splat(1.0f));
  return tiny ? splat(0) : p * power;
}

// Four floats, whatever the width of the set's vectors.
using Vec4 = float __attribute__((vector_size(16)));
inline Vec4 load4(const float* p) {
  Vec4 v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void store4(float* p, Vec4 v) { __builtin_memcpy(p, &v, sizeof v); }
using Order4 = int __attribute__((vector_size(16)));
inline Vec4 interleave_low(Vec4 a, Vec4 b) { return __builtin_shuffle(a, b, Order4{0, 4, 1, 5}); }
inline Vec4 interleave_high(Vec4 a, Vec4 b) { return __builtin_shuffle(a, b, Order4{2, 6, 3, 7}); }

// to[c][r] = from[r][c] * scale for rows x cols. Other elements of `to` are not written.
void transpose(int64_t rows, int64_t cols, const float* from, int64_t from_row, int64_t from_col, float* to,
               int64_t to_row, float scale) {
  int64_t r = 0;
  const Vec4 s = {scale, scale, scale, scale};
  for (; from_col == 1 && r + 4 <= rows; r += 4) {
    const float* f = from + r * from_row;
    int64_t c = 0;
    for (; c + 4 <= cols; c += 4) {
      const Vec4 x0 = load4(f + c), x1 = load4(f + from_row + c);
      const Vec4 x2 = load4(f + 2 * from_row + c), x3 = load4(f + 3 * from_row + c);
      const Vec4 a = interleave_low(x0, x2), b = interleave_high(x0, x2);
      const Vec4 d = interleave_low(x1, x3), e = interleave_high(x1, x3);
      float* t = to + c * to_row + r;
      store4(t, interleave_low(a, d) * s), store4(t + to_row, interleave_high(a, d) * s);
      store4(t + 2 * to_row, interleave_low(b, e) * s), store4(t + 3 * to_row, interleave_high(b, e) * s);
    }
    for (; c < cols; c++) {
      for (int64_t i = 0; i < 4; i++) to[c * to_row + r + i] = f[i * from_row + c] * scale;
    }
  }
  for (; r < rows; r++) {
    for (int64_t c = 0; c < cols; c++) to[c * to_row + r] = from[r * from_row + c * from_col] * scale;
  }
}

// Stores the transpose of a block of n queries (or of their gradients). Columns beyond n are zero.
void load_transposed(int64_t n, int64_t dim, const AttentionOperand& x, const float* from, float* to, float scale) {
  transpose(n, dim, from, x.strides[2], x.strides[3], to, kQ, scale);
  for (int64_t e = 0; n < kQ && e < dim; e++) {
    for (int64_t i = n; i < kQ; i++) to[e * kQ + i] = 0;
  }
}

// Stores the rows of such a block, padded with zeros to whole vectors.
void load_rows(int64_t n, int64_t dim, const AttentionOperand& x, const float* from, float* to, float scale) {
  const int64_t width = padded(dim);
  for (int64_t i = 0; i < n; i++) {
    for (int64_t e = 0; e < dim; e++) to[i * width + e] = from[i * x.strides[2] + e * x.strides[3]] * scale;
    for (int64_t e = dim; e < width; e++) to[i * width + e] = 0;
  }
}

// Adds the mask to the scores of n queries from q on against `count` keys from k on. A hidden key gets minus infinity.
void apply_mask(const AttentionProblem& p, int64_t batch, int64_t head, int64_t q, int64_t n, int64_t k, int64_t count,
                float* scores) {
  const float hidden = -__builtin_inff();
  if (p.mask.data) {
    const int64_t* s = p.mask.strides;
    const int64_t base = batch * s[0] + head * s[1] + q * s[2] + k * s[3];
    const auto* bytes = static_cast<const uint8_t*>(p.mask.data) + base;
    const auto* floats = static_cast<const float*>(p.mask.data) + base;
    for (int64_t j = 0; j < count; j++) {
      float* row = scores + j * kQ;
      if (s[2] == 0) {  // the same for all queries
        if (!p.mask.is_bool) {
          for (int64_t i = 0; i < n; i++) row[i] += floats[j * s[3]];
        } else if (!bytes[j * s[3]]) {
          for (int64_t i = 0; i < n; i++) row[i] = hidden;
        }
        continue;
      }
      for (int64_t i = 0; i < n; i++) {
        const int64_t at = i * s[2] + j * s[3];
        if (!p.mask.is_bool)
          row[i] += floats[at];
        else if (!bytes[at])
          row[i] = hidden;
      }
    }
  }
  if (!p.causal) return;
  for (int64_t j = k > q ? 0 : q + 1 - k; j < count; j++) {
    const int64_t visible = k + j - q;  // queries before this one do not see the key
    for (int64_t i = 0; i < kQ && i < visible; i++) scores[j * kQ + i] = hidden;
  }
}

// Returns the end of the keys that the block of n queries from q on sees. They begin at 0.
int64_t visible_keys(const AttentionProblem& p, int64_t q, int64_t n) {
  return p.causal && q + n < p.keys ? q + n : p.keys;
}

// Computes the scores of a block: the keys' rows against the transposed queries.
void scores_of(const AttentionProblem& p, const float* keys, int64_t count, const float* queries, float* scores) {
  multiply({count, kQ, p.dim, keys, p.key.strides[2], p.key.strides[3], queries, kQ, scores, kQ, false});
}

// Turns scores into weights relative to a running maximum. `alpha` gets the factors for earlier sums.
void soften(int64_t count, float* scores, float* maximum, float* total, float* alpha) {
  const Vec none = splat(-__builtin_inff());
  for (int64_t col = 0; col < kQ; col += kWidth) {
    const Vec before = load(maximum + col);
    Vec top = before;
    for (int64_t j = 0; j < count; j++) {
      const Vec s = load(scores + j * kQ + col);
      top = top < s ? s : top;
    }
    const Vec safe = top == none ? splat(0) : top;
    const Vec a = exponential(before - safe);
    Vec sum = load(total + col) * a;
    for (int64_t j = 0; j < count; j++) {
      const Vec w = exponential(load(scores + j * kQ + col) - safe);
      store(scores + j * kQ + col, w);
      sum = sum + w;
    }
    store(maximum + col, top), store(total + col, sum), store(alpha + col, a);
  }
}

void rescale(int64_t rows, float* values, const float* alpha) {
  for (int64_t e = 0; e < rows; e++) {
    for (int64_t col = 0; col < kQ; col += kWidth) {
      store(values + e * kQ + col, load(values + e * kQ + col) * load(alpha + col));
    }
  }
}

void clear(float* x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = 0;
}

int64_t scratch(const AttentionProblem& p, int64_t keys) {
  const int64_t widths = padded(p.dim) + padded(p.value_dim);
  return 8 * kQ + 2 * kK * kQ + 4 * kQ * widths + keys * widths;
}

void forward(const AttentionProblem& p, int64_t batch, int64_t head, int64_t q, float* memory) {
  const int64_t n = p.queries - q < kQ ? p.queries - q : kQ, kv_head = head / (p.heads / p.kv_heads);
  float *maximum = memory, *total = memory + kQ, *alpha = memory + 2 * kQ, *scores = memory + 3 * kQ;
  float *queries = scores + kK * kQ, *values = queries + p.dim * kQ;
  load_transposed(n, p.dim, p.query, p.query.at(batch, head, q), queries, p.scale);
  clear(total, kQ), clear(values, p.value_dim * kQ);
  for (int64_t i = 0; i < kQ; i++) maximum[i] = -__builtin_inff();
  const int64_t end = visible_keys(p, q, n);
  for (int64_t k = 0; k < end; k += kK) {
    const int64_t count = end - k < kK ? end - k : kK;
    p.look();
    scores_of(p, p.key.at(batch, kv_head, k), count, queries, scores);
    apply_mask(p, batch, head, q, n, k, count, scores);
    soften(count, scores, maximum, total, alpha);
    if (k > 0) rescale(p.value_dim, values, alpha);
    multiply({p.value_dim, kQ, count, p.value.at(batch, kv_head, k), p.value.strides[3], p.value.strides[2], scores, kQ,
              values, kQ, true});
  }
  float* lse = p.logsumexp + (batch * p.heads + head) * p.queries + q;
  for (int64_t i = 0; i < kQ; i++) {
    const bool blind = total[i] == 0;
    if (i < n) lse[i] = blind ? __builtin_inff() : maximum[i] + __builtin_logf(total[i]);
    alpha[i] = blind ? 0 : 1 / total[i];
  }
  rescale(p.value_dim, values, alpha);
  transpose(p.value_dim, n, values, kQ, 1, p.out.at(batch, head, q), p.out.strides[2], 1);
}

// The scratch memory of backward for a block of queries.
struct Block {
  float *lse, *delta;             // one for each query
  float *queries, *grads;         // transposed
  float *query_rows, *grad_rows;  // padded rows
  float* dq;                      // transposed
  float *weights, *dweights;      // keys by queries
};

// Loads lse, delta (the sum of grad * out) and the block's operands.
void load_block(const AttentionProblem& p, int64_t batch, int64_t head, int64_t q, int64_t n, const Block& b) {
  const float *query = p.query.at(batch, head, q), *grad = p.grad.at(batch, head, q);
  load_transposed(n, p.value_dim, p.out, p.out.at(batch, head, q), b.grads, 1);
  float* out = b.dweights;  // not in use yet; takes at most kK rows of value_dim at a time
  clear(b.delta, kQ);
  load_transposed(n, p.dim, p.query, query, b.queries, p.scale);
  for (int64_t e = 0; e < p.value_dim; e += kK) {
    const int64_t rows = p.value_dim - e < kK ? p.value_dim - e : kK;
    load_transposed(n, rows, p.grad, grad + e * p.grad.strides[3], out, 1);
    for (int64_t r = 0; r < rows; r += kRun) {
      const int64_t last = rows - r < kRun ? rows : r + kRun;
      for (int64_t col = 0; col < kQ; col += kWidth) {
        Vec sum = splat(0);
        for (int64_t i = r; i < last; i++) {
          const Vec g = load(out + i * kQ + col);
          float* from = b.grads + (e + i) * kQ + col;
          sum = fma(g, load(from), sum);
          store(from, g);
        }
        store(b.delta + col, load(b.delta + col) + sum);
      }
    }
  }
  load_rows(n, p.dim, p.query, query, b.query_rows, p.scale);
  load_rows(n, p.value_dim, p.grad, grad, b.grad_rows, 1);
  const float* lse = p.logsumexp + (batch * p.heads + head) * p.queries + q;
  for (int64_t i = 0; i < kQ; i++) b.lse[i] = i < n ? lse[i] : __builtin_inff();
}

// Sets weights = e^(scores - lse), and dweights to the gradient of the scores.
void weigh(int64_t count, const Block& b) {
  for (int64_t j = 0; j < count; j++) {
    for (int64_t col = 0; col < kQ; col += kWidth) {
      float *w = b.weights + j * kQ + col, *d = b.dweights + j * kQ + col;
      const Vec weight = exponential(load(w) - load(b.lse + col));
      store(w, weight);
      store(d, weight * (load(d) - load(b.delta + col)));
    }
  }
}

void backward(const AttentionProblem& p, const AttentionRange& r, float* memory) {
  const int64_t width = padded(p.dim), value_width = padded(p.value_dim), keys = r.key_end - r.key_begin;
  Block b;
  const auto take = [&memory](int64_t n) { return (memory += n) - n; };
  b.lse = take(kQ), b.delta = take(kQ);
  b.queries = take(width * kQ), b.grads = take(value_width * kQ);
  b.query_rows = take(width * kQ), b.grad_rows = take(value_width * kQ);
  b.dq = take(width * kQ), b.weights = take(kK * kQ), b.dweights = take(kK * kQ);
  float *dk = take(keys * width), *dv = take(keys * value_width);
  if (r.want_dkv) clear(dk, keys * width), clear(dv, keys * value_width);
  for (int64_t head = r.first_head; head < r.last_head; head++) {
    for (int64_t q = r.query_begin; q < r.query_end; q += kQ) {
      const int64_t n = p.queries - q < kQ ? p.queries - q : kQ;
      int64_t end = visible_keys(p, q, n);
      end = end < r.key_end ? end : r.key_end;
      if (end <= r.key_begin && !r.want_dq) continue;
      load_block(p, r.batch, head, q, n, b);
      clear(b.dq, p.dim * kQ);
      for (int64_t k = r.key_begin; k < end; k += kK) {
        const int64_t count = end - k < kK ? end - k : kK;
        const float *key = p.key.at(r.batch, r.kv_head, k), *value = p.value.at(r.batch, r.kv_head, k);
        p.look();
        scores_of(p, key, count, b.queries, b.weights);
        apply_mask(p, r.batch, head, q, n, k, count, b.weights);
        multiply_exactly({count, kQ, p.value_dim, value, p.value.strides[2], p.value.strides[3], b.grads, kQ,
                          b.dweights, kQ, false});
        weigh(count, b);
        if (r.want_dkv) {
          const int64_t at = k - r.key_begin;
          multiply({count, value_width, n, b.weights, kQ, 1, b.grad_rows, value_width, dv + at * value_width,
                    value_width, true});
          multiply({count, width, n, b.dweights, kQ, 1, b.query_rows, width, dk + at * width, width, true});
        }
        if (r.want_dq) {
          multiply({p.dim, kQ, count, key, p.key.strides[3], p.key.strides[2], b.dweights, kQ, b.dq, kQ, true});
        }
      }
      if (r.want_dq) transpose(p.dim, n, b.dq, kQ, 1, p.dq.at(r.batch, head, q), p.dq.strides[2], p.scale);
    }
  }
  for (int64_t j = 0; r.want_dkv && j < keys; j++) {
    float *to_k = p.dk.at(r.batch, r.kv_head, r.key_begin + j), *to_v = p.dv.at(r.batch, r.kv_head, r.key_begin + j);
    for (int64_t e = 0; e < p.dim; e++) to_k[e] = dk[j * width + e];
    for (int64_t e = 0; e < p.value_dim; e++) to_v[e] = dv[j * value_width + e];
  }
}
