// Scattering into a tensor: index_put, index_add and kin, scatter and kin, the gradient of embedding.
//
// Invariants:
// 1. Elements that meet in one place are combined in the order of the positions, as on the CPU, so bits agree with it.
//    There are four ways. One thread walks through the positions of a line. Or a warp does, 32 at a time; the first
//    lane that goes to a place takes what the others bring there. Or the positions of each line are sorted by place,
//    and one thread for each element of the slice takes those of one place in turn. Or a block lists the positions of
//    its place in order. Elements of different lines never meet.
// 2. A position out of bounds is reported and skipped. The next wait for the GPU raises it.
#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/extern/cuda/kernels.h"
#include "ops/extern/cuda/sort.h"
#include "ops/extern/scatter_walk.h"

namespace lutra::cuda {
namespace {

constexpr int64_t kSerial = 32;    // positions of a line that one thread walks through
constexpr int64_t kByWarp = 4096;  // positions of a line that a warp walks through

// VARIANT: the mode, plus 8 if sources are multiplied first. This is the text that the kernels share. Each kernel is
// compiled alone, because all of them together take a second.
const char kWalkText[] = R"cuda(
#define MODE (VARIANT & 7)
#define SCALED (VARIANT & 8)
#define AHEAD 8
enum { SET, ADD, MUL, MAX, MIN };
struct Operand {
  const void* data;
  i64 strides[8], size, stride;
  int is64, dim;
};
struct Walk {
  int dims, count, slice_dims, wraps;
  i64 positions, slice, skip;
  i64 sizes[8], dst[8], src[8], slice_sizes[8], slice_dst[8], slice_src[8];
  Operand index[8];
};
struct Finish { double alpha; int include_self, mean, by_count; };

// Reduces one element into another. kKind: 0 integer, 1 floating, 2 bool.
template <class T, int kKind> struct Reducer {
  typedef typename Num<T>::A A;
  static DEV T go(T to, T from, double alpha) {
    if (SCALED) return Num<T>::down((A)(Num<T>::up(to) + (A)(element_of<A>(alpha) * Num<T>::up(from))));
    if (MODE == ADD) return Num<T>::down((A)(Num<T>::up(to) + Num<T>::up(from)));
    if (MODE == MUL) return Num<T>::down((A)(Num<T>::up(to) * Num<T>::up(from)));
    if (MODE == MAX) return to < from ? from : to;
    if (MODE == MIN) return from < to ? from : to;
    return from;
  }
  static DEV T identity() {
    const T least = (T)-1 < (T)0 ? (T)((u64)1 << (8 * sizeof(T) - 1)) : (T)0;
    return MODE == MAX ? least : MODE == MIN ? (T)~least : (T)(MODE == MUL);
  }
  static DEV T mean(T v, i64 n) {
    const i64 a = (i64)v;
    return (T)(a / n - (a % n != 0 && a < 0));
  }
};
template <class T> struct Reducer<T, 1> {
  typedef typename Num<T>::A A;
  static DEV T go(T to, T from, double alpha) {
    const A a = Num<T>::up(to), b = Num<T>::up(from);
    if (SCALED) return Num<T>::down(a + (A)alpha * b);
    if (MODE == ADD) return Num<T>::down(a + b);
    if (MODE == MUL) return Num<T>::down(a * b);
    if (MODE == MAX) return a == a && (b != b || b > a) ? from : to;
    if (MODE == MIN) return a == a && (b != b || b < a) ? from : to;
    return from;
  }
  static DEV T identity() {
    return Num<T>::down(MODE == MAX ? (A)-INF : MODE == MIN ? (A)INF : (A)(MODE == MUL));
  }
  static DEV T mean(T v, i64 n) { return Num<T>::down(Num<T>::up(v) / Num<T>::up(Num<T>::down((A)n))); }
};
template <class T> struct Reducer<T, 2> {
  static DEV T go(T to, T from, double alpha) {
    if (SCALED) to.v |= from.v & (alpha != 0);
    else if (MODE == ADD || MODE == MAX) to.v |= from.v;
    else if (MODE == MUL || MODE == MIN) to.v &= from.v;
    else to = from;
    return to;
  }
  static DEV T identity() { T r; r.v = MODE == MUL || MODE == MIN; return r; }
  static DEV T mean(T v, i64) { return v; }
};
template <class T> struct Kind { enum { k = Num<T>::floating }; };
template <> struct Kind<bool8> { enum { k = 2 }; };
typedef Reducer<T0, Kind<T0>::k> R;

// Finds the destination and the source of position p. Returns false if an index is out of bounds or is to be skipped.
DEV bool resolve(const Walk& w, i64 p, i64& dst, i64& src, Fault* fault, i64 site) {
  i64 at[8];
  dst = src = 0;
#pragma unroll
  for (int d = 7; d >= 0; d--) {
    at[d] = 0;
    if (d >= w.dims) continue;
    const i64 q = d ? p / w.sizes[d] : 0;
    at[d] = p - q * w.sizes[d];
    p = q;
    dst += at[d] * w.dst[d], src += at[d] * w.src[d];
  }
  for (int k = 0; k < w.count; k++) {
    const Operand& o = w.index[k];
    i64 from = 0;
#pragma unroll
    for (int d = 0; d < 8; d++) from += d < w.dims ? at[d] * o.strides[d] : 0;
    const i64 given = o.is64 ? ((const i64*)o.data)[from] : (i64)((const i32*)o.data)[from];
    const i64 v = given < 0 && w.wraps ? given + o.size : given;
    if (v < 0 || v >= o.size) {
      report(fault, site, o.dim, given, o.size);
      return false;
    }
    if (v == w.skip) return false;
    dst += v * o.stride;
  }
  return true;
}
// The variants for several dims are not inlined: inlined, they would take most of the compilation time.
CALLED i64 source_in_dims(const Walk& w, i64 p) {
  i64 src = 0;
  for (int d = w.dims - 1; d >= 0; d--) {
    const i64 q = d ? p / w.sizes[d] : 0;
    src += (p - q * w.sizes[d]) * w.src[d];
    p = q;
  }
  return src;
}
DEV i64 source_of(const Walk& w, i64 p) { return w.dims <= 1 ? p * w.src[0] : source_in_dims(w, p); }
CALLED i64 slice_in_dims(const Walk& w, i64 e, const i64* strides) {
  i64 at = 0;
  for (int d = w.slice_dims - 1; d >= 0; d--) {
    const i64 q = d ? e / w.slice_sizes[d] : 0;
    at += (e - q * w.slice_sizes[d]) * strides[d];
    e = q;
  }
  return at;
}
DEV void in_slice(const Walk& w, i64 e, i64& dst, i64& src) {
  if (w.slice_dims == 1)
    dst += e * w.slice_dst[0], src += e * w.slice_src[0];
  else
    dst += slice_in_dims(w, e, w.slice_dst), src += slice_in_dims(w, e, w.slice_src);
}
)cuda";

const ExternSource kSerialSource = {"scatter_serial",
                                    R"cuda(
// A thread walks through the `length` positions of a line, `step` apart, for one element of their slices.
KERNEL scatter_serial(const __grid_constant__ Walk w, i64 lines, i64 length, i64 step, T0* to, const T0* from,
                      Finish f, Fault* fault, i64 site) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= lines * w.slice) return;
  const i64 line = i / w.slice, e = i % w.slice;
  // The first position of the line. The dims inside the dim that is walked have `step` positions.
  const i64 first = line / step * step * length + line % step;
  i64 slice_dst = 0, slice_src = 0;
  in_slice(w, e, slice_dst, slice_src);
  for (i64 k = 0; k < length; k++) {
    i64 dst, src;
    if (!resolve(w, first + k * step, dst, src, fault, site)) continue;
    T0& target = to[dst + slice_dst];
    target = R::go(target, from[src + slice_src], f.alpha);
  }
}
)cuda",
                                    {kWalkText}};

const ExternSource kWarpSource = {"scatter_warp",
                                  R"cuda(
// Returns the bits of an element, so that lanes of a warp can exchange it.
DEV u64 packed(T0 v) {
  u64 r = 0;
  memcpy(&r, &v, sizeof v);
  return r;
}
DEV T0 unpacked(u64 bits) {
  T0 r;
  memcpy(&r, &bits, sizeof r);
  return r;
}
// A warp walks through the positions of a line; slices have one element. It reads the next elements while it writes the
// ones before.
KERNEL BOUNDS(128) scatter_warp(Walk w, i64 lines, i64 length, i64 step, T0* to, const T0* from, Finish f, Fault* fault,
                                i64 site) {
  sync_dependencies();
  const i64 line = thread_number() / 32;
  const int lane = threadIdx.x % 32;
  if (line >= lines) return;
  const i64 first = line / step * step * length + line % step;
  i64 dst = 0, src;
  bool in = lane < length && resolve(w, first + lane * step, dst, src, fault, site);
  T0 v = from[in ? src : 0];
  for (i64 k = 0; k < length; k += 32) {
    const i64 next = k + 32 + lane;
    i64 next_dst = 0;
    const bool next_in = next < length && resolve(w, first + next * step, next_dst, src, fault, site);
    const T0 next_v = from[next_in ? src : 0];
    const u32 same = __match_any_sync(0xffffffffu, in ? (u64)dst : ~(u64)lane);
    u32 rest = (same & ((1u << lane) - 1)) ? 0 : same & (same - 1);  // the lanes behind the first one
    const bool leads = in && !(same & ((1u << lane) - 1));
    T0 sum = v;
    if (leads) sum = R::go(to[dst], v, f.alpha);
    while (__ballot_sync(0xffffffffu, rest != 0)) {
      const T0 other = unpacked(__shfl_sync(0xffffffffu, packed(v), rest ? __ffs(rest) - 1 : lane));
      if (rest) sum = R::go(sum, other, f.alpha);
      rest &= rest - 1;
    }
    if (leads) to[dst] = sum;
    __syncwarp();
    in = next_in, dst = next_dst, v = next_v;
  }
}
)cuda",
                                  {kWalkText}};

const ExternSource kSortedSource = {"scatter_sorted",
                                    R"cuda(
// Returns position k of a line. The dims inside the dim that is walked have `step` positions.
DEV i64 position_of(i64 line, i64 k, i64 length, i64 step) {
  return step == 1 ? line * length + k : line / step * step * length + line % step + k * step;
}
// Writes the keys. Those of a line are contiguous.
KERNEL scatter_keys(Walk w, i64 length, i64 step, u64* keys, Fault* fault, i64 site) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= w.positions) return;
  i64 dst, src;
  const i64 line = length == w.positions ? 0 : i / length;
  keys[i] = resolve(w, position_of(line, i - line * length, length, step), dst, src, fault, site) ? (u64)dst : ~0ull;
}
// The thread of the first sorted position of a place reduces all of them; if only the last counts, it takes that one.
KERNEL scatter_sorted(const __grid_constant__ Walk w, i64 length, i64 step, const u64* keys, const u32* at, T0* to,
                      const T0* from, Finish f) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= w.positions * w.slice) return;
  const i64 s = i / w.slice, e = i - s * w.slice, line = length == w.positions ? 0 : s / length;
  const u64 key = keys[s];
  if (key == ~0ull) return;
  i64 dst = (i64)key, src = 0;
  if (MODE == SET && !SCALED) {
    if (s + 1 < w.positions && keys[s + 1] == key) return;
    in_slice(w, e, dst, src);
    to[dst] = from[source_of(w, position_of(line, at[s], length, step)) + src];
    return;
  }
  if (s > 0 && keys[s - 1] == key) return;
  in_slice(w, e, dst, src);
  i64 end = s + 1;
  T0 value = f.include_self ? to[dst] : R::identity();
  const i64 last = w.positions - 1;
  double alpha = f.alpha;
  if (f.by_count) {
    while (end < w.positions && keys[end] == key) end++;
    alpha = 1.0 / (double)(end - s);
  }
  value = R::go(value, from[source_of(w, position_of(line, at[s], length, step)) + src], alpha);
  // Several at a time, so that their loads overlap.
  for (end = s + 1; end <= last && keys[end] == key;) {
    i64 place[AHEAD];
    T0 next[AHEAD];
    int n = 0;
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
      const i64 j = end + k < last ? end + k : last;
      n += end + k <= last && keys[j] == key;
      place[k] = source_of(w, position_of(line, at[j], length, step)) + src;
    }
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
      if (k < n) next[k] = from[place[k]];
    }
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
      if (k < n) value = R::go(value, next[k], alpha);
    }
    end += n;
    if (n < AHEAD) break;
  }
  const i64 n = end - s + (f.include_self ? 1 : 0);
  to[dst] = f.mean && n > 1 ? R::mean(value, n) : value;
}
)cuda",
                                    {kWalkText}};

const ExternSource kConstantSource = {"constant", R"cuda(
KERNEL make_constant(T0* to, double v) { sync_dependencies(); *to = element_of<T0>(v); }
)cuda"};

const ExternSource kRowsSource = {"embedding_rows", R"cuda(
#define CHUNK 2048
#define BATCH 128
typedef Num<T0> N;
// A block computes 32 features of a row of the result. It lists, in order, the positions of each chunk that go there.
// It loads their elements in batches, and its first warp adds them.
KERNEL BOUNDS(256) embedding_rows(const void* index, int is64, i64 positions, i64 rows, i64 skip, const T0* from,
                                  i64 position_stride, i64 feature_stride, T0* to, i64 to_row, i64 to_feature,
                                  i64 features, Fault* fault, i64 site) {
  sync_dependencies();
  __shared__ u32 list[CHUNK];
  __shared__ T0 values[BATCH][32];
  __shared__ u32 counts[8];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const i64 tiles = (features + 31) / 32, row = blockIdx.x / tiles, feature = blockIdx.x % tiles * 32 + lane;
  const bool in = feature < features;
  T0 sum = N::down((N::A)0);
  for (i64 start = 0; start < positions; start += CHUNK) {
    i64 given[8];
    u32 bits[8], n = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) {
      const i64 p = start + warp * 256 + k * 32 + lane;
      given[k] = p >= positions ? 0 : is64 ? ((const i64*)index)[p] : (i64)((const i32*)index)[p];
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
      const i64 p = start + warp * 256 + k * 32 + lane;
      if (blockIdx.x == 0 && (given[k] < 0 || given[k] >= rows)) report(fault, site, 0, given[k], rows);
      bits[k] = __ballot_sync(0xffffffffu, p < positions && given[k] == row && row != skip);
      n += __popc(bits[k]);
    }
    if (lane == 0) counts[warp] = n;
    __syncthreads();
    u32 at = 0, total = 0;
    for (int w = 0; w < 8; w++) at += w < warp ? counts[w] : 0, total += counts[w];
#pragma unroll
    for (int k = 0; k < 8; k++) {
      if (bits[k] >> lane & 1) list[at + __popc(bits[k] & ((1u << lane) - 1))] = warp * 256 + k * 32 + lane;
      at += __popc(bits[k]);
    }
    __syncthreads();
    for (u32 b = 0; b < total; b += BATCH) {
      T0 got[BATCH / 8];
#pragma unroll
      for (int k = 0; k < BATCH / 8; k++) {
        const u32 j = b + k * 8 + warp;
        if (in && j < total) got[k] = from[(start + list[j]) * position_stride + feature * feature_stride];
      }
#pragma unroll
      for (int k = 0; k < BATCH / 8; k++) {
        if (in && b + k * 8 + warp < total) values[k * 8 + warp][lane] = got[k];
      }
      __syncthreads();
      const u32 many = total - b < BATCH ? total - b : BATCH;
      if (warp == 0 && in) {
#pragma unroll 8
        for (u32 j = 0; j < many; j++) sum = N::down((N::A)(N::up(sum) + N::up(values[j][lane])));
      }
      __syncthreads();
    }
  }
  if (warp == 0 && in) to[row * to_row + feature * to_feature] = sum;
}
)cuda"};

// These mirror the device's structs.
struct DeviceOperand {
  const void* data;
  int64_t strides[8], size, stride;
  int32_t is64, dim;
};
struct DeviceWalk {
  int32_t dims, count, slice_dims, wraps;
  int64_t positions, slice, skip;
  int64_t sizes[8], dst[8], src[8], slice_sizes[8], slice_dst[8], slice_src[8];
  DeviceOperand index[8];
};
struct Finish {
  double alpha = 1;
  int32_t include_self = 1, mean = 0, by_count = 0;
};

// Joins position dims that are contiguous in all operands. Positions keep their numbers.
void merge_dims(DeviceWalk& w) {
  for (int d = w.dims - 2; d >= 0; d--) {
    const int64_t n = w.sizes[d + 1];
    bool merges = w.dst[d] == w.dst[d + 1] * n && w.src[d] == w.src[d + 1] * n;
    for (int k = 0; k < w.count; k++) merges &= w.index[k].strides[d] == w.index[k].strides[d + 1] * n;
    if (!merges) continue;
    const auto drop = [&](int64_t* a) { std::copy(a + d + 1, a + w.dims, a + d); };
    w.sizes[d + 1] *= w.sizes[d];
    drop(w.sizes), drop(w.dst), drop(w.src);
    for (int k = 0; k < w.count; k++) drop(w.index[k].strides);
    w.dims--;
  }
}

constexpr int kWalkDims = 8;

DeviceWalk device_walk(const ScatterWalk& w, int64_t skip) {
  const int most = std::max({w.dims, w.slice_dims, int(w.indices.size())});
  if (most > kWalkDims) fail("scattering on a GPU: at most ", kWalkDims, " dimensions are supported, got ", most);
  DeviceWalk r{};
  r.dims = w.dims, r.count = int32_t(w.indices.size()), r.slice_dims = w.slice_dims, r.wraps = w.wraps;
  r.positions = w.positions(), r.slice = w.slice(), r.skip = skip;
  std::copy(w.sizes, w.sizes + w.dims, r.sizes), std::copy(w.dst, w.dst + w.dims, r.dst);
  std::copy(w.src, w.src + w.dims, r.src);
  std::copy(w.slice_sizes, w.slice_sizes + w.slice_dims, r.slice_sizes);
  std::copy(w.slice_dst, w.slice_dst + w.slice_dims, r.slice_dst);
  std::copy(w.slice_src, w.slice_src + w.slice_dims, r.slice_src);
  for (size_t k = 0; k < w.indices.size(); k++) {
    const IndexOperand& o = w.indices[k];
    DeviceOperand& to = r.index[k];
    to.data = o.view->data, to.size = o.size, to.stride = o.stride, to.dim = int32_t(o.dim);
    to.is64 = o.view->dtype == DType::kInt64;
    std::copy(o.strides, o.strides + kWalkDims, to.strides);
  }
  merge_dims(r);
  return r;
}

struct Scatter {
  ScatterMode mode;
  Finish finish;
  bool scaled = false;
  int64_t skip = INT64_MIN;  // positions with this index are skipped
};

// Returns how many bits distinguish the places of a view's elements from each other, and from a key of all ones.
int bits_of_places(const ExternView& out) {
  int64_t last = 0;
  for (int d = 0; d < out.dim; d++) last += std::max<int64_t>(0, out.sizes[d] - 1) * out.strides[d];
  return std::bit_width(uint64_t(last + 1));
}

// Combines the content of `out` with the source's elements.
void scatter(Launcher& l, const ScatterWalk& walk, const void* source, const Scatter& s) {
  const ExternView& out = l.call.out[0];
  const DeviceWalk w = device_walk(walk, s.skip);
  if (w.positions == 0 || w.slice == 0) return;
  const int variant = int(s.mode) + (s.scaled ? 8 : 0);
  LaunchFault* fault = l.fault();
  const int64_t site = index_fault_site(walk.op);
  // Chooses the position dim to walk: the one along which elements meet, or all as one.
  int64_t length = w.positions, step = 1;
  if (walk.apart >= 0) {
    for (int d = 0; d < walk.dims; d++) {
      if (walk.dst[d] != 0 || walk.sizes[d] == 1) continue;
      length = walk.sizes[d];
      for (int k = d + 1; k < walk.dims; k++) step *= walk.sizes[k];
    }
    if (length == w.positions) length = 1, step = 1;  // every dim is apart
  }
  const bool plain = s.finish.include_self && !s.finish.mean && !s.finish.by_count;
  const int64_t lines = w.positions / length;
  if (plain && length <= kSerial) {
    return l.each({kSerialSource, "scatter_serial", {out.dtype}, variant}, lines * w.slice, w, lines, length, step,
                  out.data, source, s.finish, fault, site);
  }
  if (plain && w.slice == 1 && length <= std::min(kByWarp, 64 * lines)) {
    return l.run({kWarpSource, "scatter_warp", {out.dtype}, variant}, {(lines + 3) / 4}, 128, w, lines, length, step,
                 out.data, source, s.finish, fault, site);
  }
  if (w.positions > INT32_MAX) fail(name(l.call.op), ": an index of ", w.positions, " positions is too large");
  auto* keys = l.scratch<uint64_t>(w.positions);
  l.each({kSortedSource, "scatter_keys", {out.dtype}, variant}, w.positions, w, length, step, keys, fault, site);
  const SortedRows sorted = sort_rows(l, keys, lines, length, bits_of_places(out));
  l.each({kSortedSource, "scatter_sorted", {out.dtype}, variant}, w.positions * w.slice, w, length, step, sorted.keys,
         sorted.positions, out.data, source, s.finish);
}

// Copies the input into the result, then scatters.
void scatter_into(Launcher& l, const ScatterWalk& w, const void* source, const Scatter& s) {
  const ExternView& out = l.call.out[0];
  if (out.data != l.call.in[0].data) copy_view(l, l.call.in[0], out);
  scatter(l, w, source, s);
}

// Returns a number in device memory, in place of a source.
void* constant(Launcher& l, double v, DType dtype) {
  void* p = l.scratch_bytes(8);
  l.run({kConstantSource, "make_constant", {dtype}}, {1}, 1, p, v);
  return p;
}

}  // namespace

void run_index_put(const ExternCall& call) {
  Launcher l(call);
  const ScatterMode mode = call.ints.back() != 0 ? ScatterMode::kAdd : ScatterMode::kSet;
  scatter_into(l, index_put_walk(call), call.in.back().data, {mode, {}});
}

void run_index_add(const ExternCall& call) {
  Launcher l(call);
  const ScatterWalk w = slice_walk("index_add", call.out[0], call.ints[0], call.in[1], call.in[2]);
  Scatter s{ScatterMode::kAdd, {}};
  s.finish.alpha = call.scalars[0], s.scaled = call.scalars[0] != 1;
  scatter_into(l, w, call.in[2].data, s);
}

void run_index_copy(const ExternCall& call) {
  Launcher l(call);
  const ScatterWalk w = slice_walk("index_copy", call.out[0], call.ints[0], call.in[1], call.in[2]);
  scatter_into(l, w, call.in[2].data, {ScatterMode::kSet, {}});
}

void run_index_fill(const ExternCall& call) {
  Launcher l(call);
  const DType type = call.out[0].dtype;
  const bool tensor = call.in.size() > 2;
  const void* value = tensor ? contiguous_copy(l, call.in[2], type).data : constant(l, call.scalars[0], type);
  ScatterWalk w = slice_walk("index_fill", call.out[0], call.ints[0], call.in[1], ExternView());
  w.wraps = true;
  scatter_into(l, w, value, {ScatterMode::kSet, {}});
}

namespace {

Scatter reduction(const ExternCall& call, bool include_self) {
  const ScatterReduction r = scatter_reduction(call.strings[0]);
  Scatter s{r.mode, {}};
  s.finish.include_self = include_self, s.finish.mean = r.mean;
  return s;
}

}  // namespace

void run_index_reduce(const ExternCall& call) {
  Launcher l(call);
  const ScatterWalk w = slice_walk("index_reduce", call.out[0], call.ints[0], call.in[1], call.in[2]);
  scatter_into(l, w, call.in[2].data, reduction(call, call.ints[1] != 0));
}

void run_scatter(const ExternCall& call) {
  Launcher l(call);
  const bool tensor = call.in.size() > 2;
  const ExternView none;
  const ScatterWalk w = elementwise_walk("scatter", call.out[0], call.ints[0], call.in[1], tensor ? call.in[2] : none);
  const void* source = tensor ? call.in[2].data : constant(l, call.scalars[0], call.out[0].dtype);
  scatter_into(l, w, source, reduction(call, true));
}

void run_scatter_add(const ExternCall& call) {
  Launcher l(call);
  const ScatterWalk w = elementwise_walk("scatter_add", call.out[0], call.ints[0], call.in[1], call.in[2]);
  scatter_into(l, w, call.in[2].data, {ScatterMode::kAdd, {}});
}

void run_scatter_reduce(const ExternCall& call) {
  Launcher l(call);
  const ScatterWalk w = elementwise_walk("scatter_reduce", call.out[0], call.ints[0], call.in[1], call.in[2]);
  scatter_into(l, w, call.in[2].data, reduction(call, call.ints[1] != 0));
}

namespace {

// Takes a block for each row and 32 features, which reads the whole index. Returns false if there are too many rows for
// that.
bool embedding_by_rows(Launcher& l, const ScatterWalk& walk, int64_t skip) {
  const ExternView& out = l.call.out[0];
  const int64_t rows = out.sizes[0], features = out.sizes[1], blocks = rows * ((features + 31) / 32);
  const DeviceWalk w = device_walk(walk, skip);
  const int64_t chunks = (w.positions + 2047) / 2048;
  if (w.dims > 1 || w.positions > INT32_MAX || blocks > INT32_MAX) return false;
  if (w.dims == 1 && w.sizes[0] > 1 && w.index[0].strides[0] != 1) return false;
  // If many positions go to a row, the other way adds them slowly, so this way is still used.
  if (blocks * chunks > 16384 && blocks * rows > 1 << 18) return false;
  l.run({kRowsSource, "embedding_rows", {out.dtype}}, {blocks}, 256, w.index[0].data, w.index[0].is64, w.positions,
        rows, skip, l.call.in[0].data, w.dims ? w.src[0] : int64_t(0), walk.slice_src[0], out.data, out.strides[0],
        out.strides[1], features, l.fault(), index_fault_site(walk.op));
  return true;
}

}  // namespace

void run_embedding_backward(const ExternCall& call) {
  Launcher l(call);
  const ExternView& out = call.out[0];
  const ScatterWalk walk = embedding_walk(call);
  const int64_t skip = call.ints[1] < 0 ? INT64_MIN : call.ints[1];
  if (call.ints[2] == 0 && embedding_by_rows(l, walk, skip)) return;
  l.zero(out.data, size_t(out.numel()) * size_of(out.dtype));
  Scatter s{ScatterMode::kAdd, {}};
  s.skip = skip;
  s.scaled = call.ints[2] != 0, s.finish.by_count = s.scaled;
  scatter(l, walk, call.in[0].data, s);
}

}  // namespace lutra::cuda
