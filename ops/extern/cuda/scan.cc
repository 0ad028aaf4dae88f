// Running sums, products and extremes along one dimension of contiguous views. Floats are summed in float64 and rounded
// when they are stored. Many short lines side by side take a thread each. Other lines take a block each, which goes
// through its line in tiles. The choice is a function of sizes alone.
#include "ops/core/half.h"
#include "ops/extern/cuda/kernels.h"
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {
namespace {

// VARIANT: the op.
const ExternSource kSource = {"scan", R"cuda(
// Macros, because the preprocessor compares them.
#define SUM 0
#define PROD 1
#define LOGSUMEXP 2
#define MAX 3
#define MIN 4
template <class T> struct Acc { typedef u64 type; };
template <> struct Acc<float> { typedef double type; };
template <> struct Acc<double> { typedef double type; };

DEV double log_add_exp(double a, double b) {
  const double low = b < a ? b : a, high = b < a ? a : b;
  if (a != a || b != b) return a + b;
  if (low == high && isinf(low)) return low;
  return high + log1p(exp(low - high));
}
// The state of a scan: a value, or a value and its position.
struct Value {
  typedef Acc<T0>::type A;
  A v;
  static DEV Value start() {
    Value r;
    r.v = VARIANT == SUM ? (A)0 : VARIANT == PROD ? (A)1 : (A)-INF;
    return r;
  }
  static DEV Value of(T0 x, i64) { Value r; r.v = (A)x; return r; }
  static DEV Value join(Value a, Value b) {
    Value r;
#if VARIANT == SUM
    r.v = a.v + b.v;
#elif VARIANT == PROD
    r.v = a.v * b.v;
#else
    r.v = (A)log_add_exp((double)a.v, (double)b.v);
#endif
    return r;
  }
  DEV void put(T0* out, i64*, i64 at) const { out[at] = (T0)v; }
};
// After a NaN the result stays NaN, at the position of the latest NaN. Of equal values the last one counts.
struct Extreme {
  T0 v;
  i64 at;
  static DEV Extreme start() { Extreme r; r.v = (T0)0, r.at = -1; return r; }
  static DEV Extreme of(T0 x, i64 k) { Extreme r; r.v = x, r.at = k; return r; }
  static DEV Extreme join(Extreme a, Extreme b) {
    if (a.at < 0) return b;
    if (b.at < 0) return a;
    const bool wins = VARIANT == MAX ? b.v >= a.v : b.v <= a.v;
    return b.v != b.v || (a.v == a.v && wins) ? b : a;
  }
  DEV void put(T0* out, i64* index, i64 i) const { out[i] = v, index[i] = at; }
};
#if VARIANT >= MAX
typedef Extreme S;
#else
typedef Value S;
#endif

KERNEL scan_threads(const T0* in, T0* out, i64* index, i64 outer, i64 n, i64 inner, int reverse) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= outer * inner) return;
  const i64 base = i / inner * n * inner + i % inner;
  S acc = S::start();
  for (i64 k = 0; k < n; k++) {
    const i64 place = reverse ? n - 1 - k : k, at = base + place * inner;
    acc = S::join(acc, S::of(in[at], place));
    acc.put(out, index, at);
  }
}

#define EACH 4
KERNEL scan_blocks(const T0* in, T0* out, i64* index, i64 n, i64 inner, int reverse) {
  sync_dependencies();
  __shared__ S sums[2][256];
  const i64 line = blockIdx.x, base = line / inner * n * inner + line % inner;
  const int t = threadIdx.x;
  S carry = S::start();
  for (i64 tile = 0; tile < n; tile += 256 * EACH) {
    S own[EACH];
    S sum = S::start();
    for (int e = 0; e < EACH; e++) {
      const i64 k = tile + t * EACH + e, place = reverse ? n - 1 - k : k;
      if (k < n) sum = S::join(sum, S::of(in[base + place * inner], place));
      own[e] = sum;
    }
    int from = 0;
    sums[0][t] = sum;
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
      sums[1 - from][t] = t >= step ? S::join(sums[from][t - step], sums[from][t]) : sums[from][t];
      from = 1 - from;
      __syncthreads();
    }
    const S before = t ? S::join(carry, sums[from][t - 1]) : carry;
    for (int e = 0; e < EACH; e++) {
      const i64 k = tile + t * EACH + e, place = reverse ? n - 1 - k : k;
      if (k < n) S::join(before, own[e]).put(out, index, base + place * inner);
    }
    carry = S::join(carry, sums[from][255]);
    __syncthreads();
  }
}
)cuda"};

int variant_of(OpId op) {
  switch (op) {
    case OpId::scan_sum: return 0;
    case OpId::scan_prod: return 1;
    case OpId::scan_logsumexp: return 2;
    case OpId::scan_max: return 3;
    case OpId::scan_min: return 4;
    default: fail_internal("scan: ", name(op));
  }
}

}  // namespace

bool scan_supports(DType dtype) { return !is_bool(dtype) && !is_half(dtype); }

void run_scan(const ExternCall& call) {
  const ExternView& v = call.in[0];
  int64_t outer = 1, n = 1, inner = 1;
  for (int32_t d = 0; d < v.dim; d++) (d < call.ints[0] ? outer : d == call.ints[0] ? n : inner) *= v.sizes[d];
  if (outer * n * inner == 0) return;
  Launcher l(call);
  const KernelId threads{kSource, "scan_threads", {v.dtype}, variant_of(call.op)};
  const KernelId blocks{kSource, "scan_blocks", {v.dtype}, variant_of(call.op)};
  void* index = call.out.size() > 1 ? call.out[1].data : nullptr;
  const int reverse = call.ints[1] != 0;
  const int64_t lines = outer * inner;
  if (n <= 32 || (inner >= 32 && lines >= 16384)) {
    l.each(threads, lines, v.data, call.out[0].data, index, outer, n, inner, reverse);
  } else {
    l.run(blocks, {lines}, 256, v.data, call.out[0].data, index, n, inner, reverse);
  }
}

}  // namespace lutra::cuda
