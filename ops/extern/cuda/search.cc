// searchsorted, isin and histc: find for each element its place among others, whether it is one of them, or how many
// elements each range has. Counts are integers, so the order of counting does not matter.
#include <algorithm>
#include <bit>

#include "ops/extern/cuda/kernels.h"
#include "ops/extern/cuda/sort.h"
#include "ops/extern/search_type.h"

namespace lutra::cuda {
namespace {

// T0: the boundaries. T1: the input. T2: the type in which both are compared. T3: the result.
const ExternSource kSearch = {"searchsorted", R"cuda(
template <class T> struct Compare { typedef T type; static DEV T of(T v) { return v; } };
template <> struct Compare<bool8> { typedef u8 type; static DEV u8 of(bool8 v) { return v.v; } };
template <> struct Compare<half16> { typedef float type; static DEV float of(half16 v) { return from_half(v); } };
template <> struct Compare<bfloat> { typedef float type; static DEV float of(bfloat v) { return from_bfloat(v); } };

KERNEL check_sorter(View sorter, i64 total, i64 n, Fault* fault, i64 site) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= total) return;
  const i64 v = ((const i64*)sorter.data)[place(sorter, i)];
  if (v < 0 || v >= n) report(fault, site, 0, v, n);
}
// Finds the first of n boundaries that is >= v (right: > v). A NaN is above all numbers.
KERNEL search(View sorted, View input, View sorter, T3* out, i64 total, double number, int is_number, int right) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= total) return;
  const int last = sorted.dim - 1;
  const i64 n = sorted.sizes[last], each = input.dim ? input.sizes[input.dim - 1] : 1;
  i64 base = 0, order = 0;
  if (sorted.dim > 1) {
    i64 row = i / each;
    for (int d = last - 1; d >= 0; d--) {
      const i64 c = row % sorted.sizes[d];
      base += c * sorted.strides[d], order += c * sorter.strides[d];
      row /= sorted.sizes[d];
    }
  }
  const T2 given = is_number ? element_of<T2>(number) : convert<T2, T1>(((const T1*)input.data)[place(input, i)]);
  const Compare<T2>::type v = Compare<T2>::of(given);
  i64 low = 0, high = n;
  while (low < high) {
    const i64 mid = low + (high - low) / 2;
    i64 at = mid;
    if (sorter.data) at = ((const i64*)sorter.data)[order + mid * sorter.strides[last]];
    if (at < 0 || at >= n) return;
    const Compare<T2>::type b = Compare<T2>::of(convert<T2, T0>(((const T0*)sorted.data)[base + at * sorted.strides[last]]));
    if (right ? !(b > v) : !(b >= v)) low = mid + 1; else high = mid;
  }
  out[i] = (T3)low;
}
)cuda"};

const ExternSource kIsin = {"isin", R"cuda(
DEV bool is_nan(T0 v) { return Num<T0>::wide(v) != Num<T0>::wide(v); }
KERNEL isin_keys(View tests, u64* keys, i64 n) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i < n) keys[i] = sort_key(((const T0*)tests.data)[place(tests, i)]);
}
KERNEL isin_find(View in, const u64* keys, i64 n, u8* out, i64 total, int invert) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= total) return;
  const T0 v = ((const T0*)in.data)[place(in, i)];
  const u64 key = sort_key(v);
  i64 low = 0, high = n;
  while (low < high) {
    const i64 mid = low + (high - low) / 2;
    if (keys[mid] < key) low = mid + 1; else high = mid;
  }
  const bool found = !is_nan(v) && low < n && keys[low] == key;
  out[i] = found != (invert != 0);
}
)cuda"};

const ExternSource kHistc = {"histc", R"cuda(
typedef Num<T0>::A A;
struct Range { A low, high; int bad, pad; };
// Finds the range that is counted: the given one, or that of the elements if it is empty. Runs as one block.
KERNEL histc_range(View in, i64 n, double min, double max, Range* range, Fault* fault, i64 site) {
  sync_dependencies();
  __shared__ A lows[256], highs[256];
  __shared__ int nans[256];
  A low = Num<T0>::up(Num<T0>::down((A)min)), high = Num<T0>::up(Num<T0>::down((A)max));
  const int t = threadIdx.x;
  if (low == high && n > 0) {
    A least = (A)INF, most = (A)-INF;
    int nan = 0;
    for (i64 i = t; i < n; i += 256) {
      const A v = Num<T0>::up(((const T0*)in.data)[place(in, i)]);
      if (v < least) least = v;
      if (v > most) most = v;
      nan |= v != v;
    }
    lows[t] = least, highs[t] = most, nans[t] = nan;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
      if (t < s) {
        if (lows[t + s] < lows[t]) lows[t] = lows[t + s];
        if (highs[t + s] > highs[t]) highs[t] = highs[t + s];
        nans[t] |= nans[t + s];
      }
      __syncthreads();
    }
    low = lows[0], high = highs[0];
    if (nans[0]) low = high = (A)QNAN;
  }
  if (t > 0) return;
  if (low == high) low -= 1, high += 1;
  const bool finite = low - low == 0 && high - high == 0;
  range->low = low, range->high = high, range->bad = !finite || low > high;
  if (!finite) report(fault, site, 0, (i64)bits_of((double)low), (i64)bits_of((double)high));
  else if (low > high) report(fault, site, 1, 0, 0);
}
KERNEL histc_count(View in, i64 n, i64 bins, const Range* range, u64* counts) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= n || range->bad) return;
  const A v = Num<T0>::up(((const T0*)in.data)[place(in, i)]), low = range->low, high = range->high;
  if (!(v >= low && v <= high)) return;
  i64 bin = (i64)((v - low) * (A)bins / (high - low));
  if (bin > bins - 1) bin = bins - 1;
  atomicAdd(&counts[bin], (u64)1);
}
KERNEL histc_put(const u64* counts, T0* out, i64 bins) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i < bins) out[i] = Num<T0>::down((A)counts[i]);
}
)cuda"};

int64_t histc_site() {
  return fault_site("histc range", [](const LaunchFault& f) {
    if (f.arg == 1) return Error(ErrorKind::kData, "histc: max must not be less than min");
    return Error(ErrorKind::kData, str("histc: the range from ", std::bit_cast<double>(f.index), " to ",
                                       std::bit_cast<double>(f.bound), " is not finite"));
  });
}

}  // namespace

void run_searchsorted(const ExternCall& call) {
  Launcher l(call);
  const bool number = call.in.size() == 2;  // boundaries and sorter
  const int right = call.ints[1] != 0 || call.strings[0] == "right";
  const ExternView &sorted = call.in[0], &input = number ? ExternView() : call.in[1], &sorter = call.in.back();
  const ExternView& out = call.out[0];
  const DType from = number ? sorted.dtype : input.dtype;
  const DType type = number ? number_search_type(sorted.dtype, call.scalars[0]) : promote_types(sorted.dtype, from);
  const int64_t n = sorted.sizes[sorted.dim - 1], total = out.numel();
  const KernelId search{kSearch, "search", {sorted.dtype, from, type, out.dtype}};
  const double value = number ? call.scalars[0] : 0.0;
  if (sorter.data) {
    const int64_t site = fault_site("searchsorted sorter", [](const LaunchFault& f) {
      return Error(ErrorKind::kData,
                   str("searchsorted: the sorter has ", f.index, ", beyond the ", f.bound, " boundaries"));
    });
    const KernelId check{kSearch, "check_sorter", {sorted.dtype, from, type, out.dtype}};
    l.each(check, sorter.numel(), sorter, sorter.numel(), n, l.fault(), site);
  }
  l.each(search, total, sorted, input, sorter, out.data, total, value, int(number), right);
}

void run_isin(const ExternCall& call) {
  Launcher l(call);
  const ExternView &in = call.in[0], &tests = call.in[1];
  const int64_t n = tests.numel(), total = in.numel();
  if (n > INT32_MAX) fail("isin: ", n, " test elements are too many");
  auto* keys = l.scratch<uint64_t>(n);
  if (n) {
    l.each({kIsin, "isin_keys", {in.dtype}}, n, tests, keys, n);
    keys = sort_rows(l, keys, 1, n, 8 * int(size_of(in.dtype))).keys;
  }
  l.each({kIsin, "isin_find", {in.dtype}}, total, in, keys, n, call.out[0].data, total, int(call.ints[0] != 0));
}

void run_histc(const ExternCall& call) {
  Launcher l(call);
  const ExternView& in = call.in[0];
  const int64_t n = in.numel(), bins = call.out[0].sizes[0];
  auto* counts = l.scratch<uint64_t>(bins);
  void* range = l.scratch_bytes(32);
  l.zero(counts, size_t(bins) * 8);
  const double min = call.scalars[0], max = call.scalars[1];
  l.run({kHistc, "histc_range", {in.dtype}}, {1}, 256, in, n, min, max, range, l.fault(), histc_site());
  l.each({kHistc, "histc_count", {in.dtype}}, n, in, n, bins, range, counts);
  l.each({kHistc, "histc_put", {in.dtype}}, bins, counts, call.out[0].data, bins);
}

}  // namespace lutra::cuda
