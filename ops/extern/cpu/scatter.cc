// Scattering into a tensor: stores or reduces a source's elements into a copy of the input, at the places of an index
// (or several). One walk serves index_put, index_add, index_copy, index_fill, index_reduce, scatter and its kin, and
// the gradient of embedding.
//
// A walk has positions (the index's own dims, row-major) and, for each, a slice (the dims that no index takes).
// Invariants:
// 1. Elements that meet in one place are combined in the order of the positions, at any number of threads. Threads
//    divide slices, or positions whose elements cannot meet.
// 2. All indices are checked before the first element is written.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "ops/core/interrupt.h"
#include "ops/extern/cpu/elements.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/strided.h"
#include "ops/extern/scatter_walk.h"

namespace lutra {
namespace {

using Walk = ScatterWalk;
using Mode = ScatterMode;

constexpr int64_t kBlock = 256;                   // positions that are resolved at a time
constexpr int64_t kParallelWork = 32768;          // with fewer elements, threads cost more than they gain
constexpr int64_t kMinRun = 16, kLongRun = 1024;  // elements of a slice's rows in a piece
constexpr int64_t kShortRow = 16;                 // elements of a row that is too short for a call

// The threads that share the work. Without `parallel` this thread does it alone.
struct Workers {
  ParallelFor parallel = nullptr;
  int64_t threads = 1;
  explicit Workers(const ExternCall& call) : parallel(call.parallel), threads(std::max(call.threads, 1)) {}
  Workers() = default;
};

// Returns the least number of a slice's n elements in a piece, each at `positions` places. Every piece touches every
// row in memory, and reading short parts of rows is slow. So there are no more pieces than threads, unless they are
// long.
int64_t least_run(const Workers& w, int64_t n, int64_t positions) {
  const int64_t share = std::min((n + w.threads - 1) / w.threads, kLongRun);
  return std::max({kMinRun, share, kParallelWork / std::max<int64_t>(positions, 1)});
}

int64_t load_index(const ExternView& v, int64_t at) {
  return v.dtype == DType::kInt64 ? static_cast<const int64_t*>(v.data)[at] : static_cast<const int32_t*>(v.data)[at];
}

// -- blocks of positions

// A run of positions along their innermost dim: coordinates [first, last), and the offsets of coordinate 0.
struct Line {
  int64_t first = 0, last = 1, dst = 0, src = 0;
  const int64_t* at = nullptr;  // coordinates in the other dims
};

// Calls f(line) for positions whose coordinate in dim `split` is in [begin, end).
template <class F>
void each_line(const Walk& w, int split, int64_t begin, int64_t end, F&& f) {
  int64_t lo[kExternDims] = {}, hi[kExternDims], at[kExternDims];
  for (int d = 0; d < w.dims; d++) {
    hi[d] = w.sizes[d];
    if (d == split) lo[d] = begin, hi[d] = end;
    if (lo[d] >= hi[d]) return;
    at[d] = lo[d];
  }
  const int inner = w.dims - 1;
  Line line;
  line.at = at;
  const int64_t first = inner < 0 ? 0 : lo[inner], last = inner < 0 ? 1 : hi[inner];
  for (int64_t unseen = 0;;) {
    line.dst = line.src = 0;
    for (int d = 0; d < inner; d++) line.dst += at[d] * w.dst[d], line.src += at[d] * w.src[d];
    in_stretches(last - first, [&](int64_t from, int64_t to) {
      line.first = first + from, line.last = first + to;
      f(line);
    });
    if ((unseen += last - first) >= kStretch) unseen = 0, look_in_loop();
    int d = inner - 1;
    for (; d >= 0 && ++at[d] == hi[d]; d--) at[d] = lo[d];
    if (d < 0) return;
  }
}

// Calls f(p, step, wrap, stride): p[k * step] is the index at coordinate k. If it is negative, wrap is added to it.
template <class F>
void with_index(const Walk& w, const IndexOperand& index, const Line& line, F&& f) {
  const int inner = w.dims - 1;
  int64_t o = 0;
  for (int d = 0; d < inner; d++) o += line.at[d] * index.strides[d];
  const int64_t step = inner < 0 ? 0 : index.strides[inner], wrap = w.wraps ? index.size : 0;
  if (index.view->dtype == DType::kInt64) {
    f(static_cast<const int64_t*>(index.view->data) + o, step, wrap, index.stride);
  } else {
    f(static_cast<const int32_t*>(index.view->data) + o, step, wrap, index.stride);
  }
}

// Calls f(dst offsets, src offsets, n) for the same positions in blocks.
template <class F>
void each_block(const Walk& w, int split, int64_t begin, int64_t end, F&& f) {
  const int inner = w.dims - 1;
  const int64_t dst_step = inner < 0 ? 0 : w.dst[inner], src_step = inner < 0 ? 0 : w.src[inner];
  int64_t to[kBlock], from[kBlock], unseen = 0;
  each_line(w, split, begin, end, [&](const Line& line) {
    for (int64_t i = line.first; i < line.last; i += kBlock) {
      const int64_t n = std::min(kBlock, line.last - i);
      for (int64_t k = 0; k < n; k++) {
        to[k] = line.dst + (i + k) * dst_step, from[k] = line.src + (i + k) * src_step;
      }
      for (const IndexOperand& index : w.indices) {
        with_index(w, index, line, [&](const auto* p, int64_t step, int64_t wrap, int64_t stride) {
          for (int64_t k = 0; k < n; k++) {
            const int64_t v = p[(i + k) * step];
            to[k] += (v + (v < 0 ? wrap : 0)) * stride;
          }
        });
      }
      f(to, from, n);
      if ((unseen += n * w.slice()) >= kStretch) unseen = 0, look_in_loop();
    }
  });
}

[[noreturn]] void out_of_bounds(const Walk& w, const IndexOperand& index, int64_t v) {
  throw Error(ErrorKind::kData,
              str(w.op, ": index ", v, " is out of bounds for dimension ", index.dim, " with size ", index.size));
}

// Returns whether all are in [low, last]. A difference overflows only for an index outside.
template <class I>
[[gnu::optimize("O3")]] bool are_within(const I* index, int64_t n, int64_t low, int64_t last) {
  uint64_t signs = 0;
  for (int64_t i = 0; i < n; i++) {
    const auto v = uint64_t(int64_t(index[i]));
    signs |= (v - uint64_t(low)) | (uint64_t(last) - v);
  }
  return signs >> 63 == 0;
}

// Checks an expanded element once.
bool are_within(ExternView v, int64_t low, int64_t last, const Workers& workers) {
  for (int32_t d = 0; d < v.dim; d++) {
    if (v.strides[d] == 0) v.sizes[d] = std::min<int64_t>(v.sizes[d], 1);
  }
  if (!is_contiguous(v)) {
    bool good = true;
    each_element(v, [&](int64_t at) {
      const int64_t i = load_index(v, at);
      good &= i >= low && i <= last;
    });
    return good;
  }
  std::atomic<bool> good{true};
  const auto run = [&](int64_t begin, int64_t end) {
    in_stretches(end - begin, [&](int64_t from, int64_t to) {
      const int64_t at = begin + from, n = to - from;
      const bool fits = size_of(v.dtype) == sizeof(int64_t)
                            ? are_within(static_cast<const int64_t*>(v.data) + at, n, low, last)
                            : are_within(static_cast<const int32_t*>(v.data) + at, n, low, last);
      if (!fits) good = false;
    });
  };
  if (v.numel() < kParallelWork || !workers.parallel)
    run(0, v.numel());
  else
    workers.parallel(v.numel(), kParallelWork, run);
  return good;
}

// Checks all indices. As in PyTorch, it checks none if nothing is written.
void check_indices(const Walk& w, const Workers& workers) {
  if (w.positions() == 0 || w.slice() == 0) return;
  for (const IndexOperand& index : w.indices) {
    const ExternView& v = *index.view;
    const int64_t low = w.wraps ? -index.size : 0;
    // Checks all in one pass. A second pass only finds the bad one.
    if (are_within(v, low, index.size - 1, workers)) continue;
    each_element(v, [&](int64_t at) {
      const int64_t i = load_index(v, at);
      if (i < low || i >= index.size) out_of_bounds(w, index, i);
    });
  }
}

// -- reducing into an element

template <class T, Mode kMode>
struct Reduce {
  using A = typename Arithmetic<T>::type;
  void operator()(T& to, T from) const {
    if constexpr (kMode == Mode::kSet) {
      to = from;
    } else if constexpr (kMode == Mode::kAdd) {
      to = T(A(to) + A(from));
    } else if constexpr (kMode == Mode::kMul) {
      to = T(A(to) * A(from));
    } else if constexpr (std::is_integral_v<T>) {
      to = kMode == Mode::kMax ? std::max(to, from) : std::min(to, from);
    } else {
      const A a(to), b(from);
      to = a == a && (b != b || (kMode == Mode::kMax ? b > a : b < a)) ? from : to;  // without a branch
    }
  }
};

template <Mode kMode>
struct Reduce<Bool8, kMode> {
  void operator()(Bool8& to, Bool8 from) const {
    if constexpr (kMode == Mode::kSet) {
      to = from;
    } else if constexpr (kMode == Mode::kAdd || kMode == Mode::kMax) {
      to.v |= from.v;
    } else {
      to.v &= from.v;
    }
  }
};

// Adds alpha * from, rounded once.
template <class T>
struct AddScaled {
  double alpha;
  void operator()(T& to, T from) const {
    if constexpr (std::is_same_v<T, Bool8>) {
      to.v |= from.v & (alpha != 0);
    } else {
      using A = typename Arithmetic<T>::type;
      to = T(A(to) + A(element_of<A>(alpha)) * A(from));
    }
  }
};

// Written rows may be anywhere in memory, so their first cache lines are prefetched some positions ahead.
constexpr int64_t kAhead = 4, kAheadBytes = 1024;
template <class T>
void fetch_row(const T* row, int64_t n) {
  const int64_t most = std::min(n, kAheadBytes / int64_t(sizeof(T)));
  for (int64_t i = 0; i < most; i += 64 / sizeof(T)) __builtin_prefetch(row + i, 1);
}

// Reduces contiguous elements. The source is never the result.
template <class T, class R>
[[gnu::always_inline]] inline void reduce_short(const R& reduce, T* __restrict to, const T* __restrict from,
                                                int64_t n) {
  for (int64_t i = 0; i < n; i++) reduce(to[i], from[i]);
}

// Does the same for a row that is long enough for a call.
template <class T, class R>
[[gnu::optimize("O3")]] void reduce_row(const R& reduce, T* __restrict to, const T* __restrict from, int64_t n,
                                        int64_t dst, int64_t src) {
  if (dst == 1 && src == 1) {
    reduce_short(reduce, to, from, n);
  } else {
    for (int64_t i = 0; i < n; i++) reduce(to[i * dst], from[i * src]);
  }
}

// Reduces one element into each element of such a row.
template <class T, class R>
[[gnu::always_inline]] inline void reduce_all(const R& reduce, T* to, T from, int64_t n) {
  for (int64_t i = 0; i < n; i++) reduce(to[i], from);
}

// Reduces contiguous elements, each into the place of its index. `stride`: from one index to the next. `across`: the
// element's own position is added. Most calls are such, and knowing the strides saves two thirds of the time.
template <class T, class R, class I>
void reduce_places(const R& reduce, T* to, const T* from, const I* index, int64_t n, int64_t stride, bool across) {
  if (!across) {
    for (int64_t k = 0; k < n; k++) reduce(to[index[k]], from[k]);
  } else {
    for (int64_t k = 0; k < n; k++) reduce(to[int64_t(index[k]) * stride + k], from[k]);
  }
}

// Reduces a slice, with its dim `split` cut to [begin, end).
template <class T, class R>
void reduce_slice(const Walk& w, const R& reduce, T* to, const T* from, int dim, int split, int64_t begin,
                  int64_t end) {
  const int64_t lo = dim == split ? begin : 0, hi = dim == split ? end : w.slice_sizes[dim];
  const int64_t dst = w.slice_dst[dim], src = w.slice_src[dim];
  if (dim + 1 == w.slice_dims) {
    return in_stretches(hi - lo, [&](int64_t first, int64_t last) {
      reduce_row<T>(reduce, to + (lo + first) * dst, from + (lo + first) * src, last - first, dst, src);
    });
  }
  for (int64_t i = lo; i < hi; i++) {
    if (i % kBlock == 0) look_in_loop();
    reduce_slice<T>(w, reduce, to + i * dst, from + i * src, dim + 1, split, begin, end);
  }
}

// Returns the dim along which a slice is split; -1 if it has none.
int longest_slice_dim(const Walk& w) {
  int longest = -1;
  for (int d = 0; d < w.slice_dims; d++) {
    if (longest < 0 || w.slice_sizes[d] > w.slice_sizes[longest]) longest = d;
  }
  return longest;
}

// Removes element d from arrays of n elements.
void drop_dim(int n, int d, std::initializer_list<int64_t*> arrays) {
  for (int64_t* a : arrays) std::copy(a + d + 1, a + n, a + d);
}

// Turns dims of positions along which all indices stay the same, and elements do not meet, into dims of slices.
void expanded_to_slices(Walk& w) {
  for (int d = w.dims - 1; d >= 0; d--) {
    const bool fixed = std::all_of(w.indices.begin(), w.indices.end(),
                                   [&](const IndexOperand& index) { return index.strides[d] == 0; });
    if (w.sizes[d] != 1 && !(fixed && w.dst[d] != 0 && w.slice_dims < kExternDims)) continue;
    if (w.sizes[d] != 1) {
      for (int64_t* a : {w.slice_sizes, w.slice_dst, w.slice_src})
        std::copy_backward(a, a + w.slice_dims, a + w.slice_dims + 1);
      w.slice_sizes[0] = w.sizes[d], w.slice_dst[0] = w.dst[d], w.slice_src[0] = w.src[d];
      w.slice_dims++;
    }
    for (IndexOperand& index : w.indices) drop_dim(w.dims, d, {index.strides});
    drop_dim(w.dims--, d, {w.sizes, w.dst, w.src});
  }
  w.apart = -1;
  for (int d = 0; d < w.dims && w.apart < 0; d++) w.apart = w.dst[d] != 0 ? d : -1;
}

// Returns the same walk with fewer, longer dims: a row of a slice is one run, and an expanded index is read once.
Walk simplified(Walk w) {
  expanded_to_slices(w);
  const auto follows = [](const int64_t* strides, int d, int64_t inner) {
    return strides[d] == strides[d + 1] * inner;
  };
  for (int d = w.slice_dims - 2; d >= 0; d--) {
    const int64_t inner = w.slice_sizes[d + 1];
    if (!follows(w.slice_dst, d, inner) || !follows(w.slice_src, d, inner)) continue;
    w.slice_sizes[d + 1] *= w.slice_sizes[d];
    drop_dim(w.slice_dims--, d, {w.slice_sizes, w.slice_dst, w.slice_src});
  }
  return w;
}

template <class T, class R>
void run_walk(const Walk& given, const R& reduce, T* to, const T* from, const Workers& workers) {
  const Walk w = simplified(given);
  const int64_t positions = w.positions(), slice = w.slice();
  if (positions == 0 || slice == 0) return;
  const int split = longest_slice_dim(w);
  // If there is no slice, goes element by element.
  const auto elements = [&](int part, int64_t begin, int64_t end) {
    if (w.indices.size() != 1 || w.dims == 0) {
      return each_block(w, part, begin, end, [&](const int64_t* dst, const int64_t* src, int64_t n) {
        for (int64_t k = 0; k < n; k++) reduce(to[dst[k]], from[src[k]]);
      });
    }
    const int64_t dst_step = w.dst[w.dims - 1], src_step = w.src[w.dims - 1];
    each_line(w, part, begin, end, [&](const Line& line) {
      with_index(w, w.indices[0], line, [&](const auto* p, int64_t step, int64_t wrap, int64_t stride) {
        const bool along = dst_step == 0 && stride == 1, across = dst_step == 1;
        if (step == 1 && src_step == 1 && wrap == 0 && (along || across)) {
          T* first = to + line.dst + (across ? line.first : 0);
          return reduce_places<T>(reduce, first, from + line.src + line.first, p + line.first, line.last - line.first,
                                  stride, across);
        }
        for (int64_t k = line.first; k < line.last; k++) {
          const int64_t v = p[k * step];
          reduce(to[line.dst + k * dst_step + (v + (v < 0 ? wrap : 0)) * stride], from[line.src + k * src_step]);
        }
      });
    });
  };
  const auto slices = [&](int64_t begin, int64_t end) {
    each_block(w, -1, 0, 0, [&](const int64_t* dst, const int64_t* src, int64_t n) {
      const bool side_by_side = w.slice_dims == 1 && w.slice_dst[0] == 1 && w.slice_src[0] == 1;
      if (side_by_side && end - begin <= kShortRow) {
        for (int64_t k = 0; k < n; k++) reduce_short(reduce, to + dst[k] + begin, from + src[k] + begin, end - begin);
        return;
      }
      if (w.slice_dims == 1 && w.slice_dst[0] == 1 && w.slice_src[0] == 0 && end - begin <= kShortRow) {
        for (int64_t k = 0; k < n; k++) reduce_all(reduce, to + dst[k] + begin, from[src[k]], end - begin);
        return;
      }
      for (int64_t k = 0; k < n; k++) {
        if (side_by_side && k + kAhead < n) fetch_row(to + dst[k + kAhead] + begin, end - begin);
        reduce_slice<T>(w, reduce, to + dst[k], from + src[k], 0, split, begin, end);
      }
    });
  };
  const auto positions_apart = [&](int64_t begin, int64_t end) {
    if (w.slice_dims == 0) return elements(w.apart, begin, end);
    each_block(w, w.apart, begin, end, [&](const int64_t* dst, const int64_t* src, int64_t n) {
      for (int64_t k = 0; k < n; k++) reduce_slice<T>(w, reduce, to + dst[k], from + src[k], 0, -1, 0, 0);
    });
  };
  const bool large = positions * slice >= kParallelWork && workers.parallel;
  if (large && w.apart >= 0 && w.sizes[w.apart] > 1) {
    const int64_t each = positions * slice / w.sizes[w.apart];
    workers.parallel(w.sizes[w.apart], std::max<int64_t>(1, kParallelWork / std::max<int64_t>(each, 1)),
                     positions_apart);
  } else if (large && split >= 0 && w.slice_sizes[split] >= 32) {
    const int64_t n = w.slice_sizes[split];
    workers.parallel(n, least_run(workers, n, positions * slice / n), slices);
  } else if (w.slice_dims == 0) {
    elements(-1, 0, 0);
  } else {
    slices(0, w.slice_sizes[split]);
  }
}

template <class T>
void run_mode(const Walk& w, Mode mode, T* to, const T* from, const Workers& workers) {
  switch (mode) {
    case Mode::kSet: return run_walk<T>(w, Reduce<T, Mode::kSet>{}, to, from, workers);
    case Mode::kAdd: return run_walk<T>(w, Reduce<T, Mode::kAdd>{}, to, from, workers);
    case Mode::kMul: return run_walk<T>(w, Reduce<T, Mode::kMul>{}, to, from, workers);
    case Mode::kMax: return run_walk<T>(w, Reduce<T, Mode::kMax>{}, to, from, workers);
    case Mode::kMin: return run_walk<T>(w, Reduce<T, Mode::kMin>{}, to, from, workers);
  }
}

// Returns the value that leaves the other operand unchanged.
template <class T>
T identity(Mode mode) {
  if constexpr (std::is_same_v<T, Bool8>) {
    return Bool8{uint8_t(mode == Mode::kMul || mode == Mode::kMin)};
  } else if constexpr (std::is_integral_v<T>) {
    if (mode == Mode::kMax) return std::numeric_limits<T>::min();
    if (mode == Mode::kMin) return std::numeric_limits<T>::max();
    return T(mode == Mode::kMul);
  } else {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    return T(mode == Mode::kMax ? -infinity : mode == Mode::kMin ? infinity : float(mode == Mode::kMul));
  }
}

// Returns the same walk with a source of one element for all positions.
Walk constant_source(Walk w) {
  std::fill(w.src, w.src + kExternDims, 0);
  std::fill(w.slice_src, w.slice_src + kExternDims, 0);
  return w;
}

// Divides the sums by the number of summed elements. The input's own element counts if it is included. A place to which
// nothing was added does not change.
template <class T>
void divide_by_counts(const Walk& w, const ExternView& out, bool include_self) {
  // Counts have the result's layout.
  int64_t extent = 1;
  for (int32_t d = 0; d < out.dim; d++) extent += std::max<int64_t>(out.sizes[d] - 1, 0) * out.strides[d];
  std::vector<int64_t> counts(size_t(extent), include_self ? 1 : 0);
  const int64_t one = 1;
  run_walk<int64_t>(constant_source(w), Reduce<int64_t, Mode::kAdd>{}, counts.data(), &one, Workers());
  T* data = static_cast<T*>(out.data);
  each_element(out, [&](int64_t at) {
    const int64_t n = counts[size_t(at)];
    if (n <= 1) return;
    if constexpr (std::is_same_v<T, Bool8>) {
      return;
    } else if constexpr (std::is_integral_v<T>) {
      const auto a = int64_t(data[at]);
      data[at] = T(a / n - (a % n != 0 && a < 0));  // floor
    } else {
      using A = typename Arithmetic<T>::type;
      data[at] = T(A(data[at]) / A(T(A(n))));
    }
  });
}

// Copies the input into the result, then walks. Without include_self, the places that are reduced into start anew.
void scatter(const Walk& w, const ExternCall& call, const ExternView& source, ScatterReduction r, bool include_self) {
  const ExternView& out = call.out[0];
  check_indices(w, Workers(call));
  if (out.data != call.in[0].data) copy_elements(call.in[0], out, call.parallel);
  with_element_type(out.dtype, [&]<class T>() {
    T* to = static_cast<T*>(out.data);
    if (!include_self) {
      const T start = identity<T>(r.mode);
      run_mode<T>(constant_source(w), Mode::kSet, to, &start, Workers(call));
    }
    run_mode<T>(w, r.mode, to, static_cast<const T*>(source.data), Workers(call));
    if (r.mean) divide_by_counts<T>(w, out, include_self);
  });
}

// A number in place of a source.
struct Constant {
  alignas(8) char bytes[8];
  ExternView view;
  Constant(double v, DType dtype) {
    view.data = bytes, view.dtype = dtype;
    with_element_type(dtype, [&]<class T>() {
      const T e = element_of<T>(v);
      std::memcpy(bytes, &e, sizeof e);
    });
  }
};

// Converts a 0-dim source to the result's dtype.
Constant constant_of(const ExternView& v, DType dtype) {
  double d = 0;
  with_element_type(v.dtype, [&]<class T>() { d = to_double(*static_cast<const T*>(v.data)); });
  return {d, dtype};
}

}  // namespace

void run_index_put(const ExternCall& call) {
  const bool accumulate = call.ints.back() != 0;
  scatter(index_put_walk(call), call, call.in.back(), {accumulate ? Mode::kAdd : Mode::kSet}, true);
}

void run_index_add(const ExternCall& call) {
  const Walk w = slice_walk("index_add", call.out[0], call.ints[0], call.in[1], call.in[2]);
  if (call.scalars[0] == 1) return scatter(w, call, call.in[2], {Mode::kAdd}, true);
  const ExternView& out = call.out[0];
  check_indices(w, Workers(call));
  if (out.data != call.in[0].data) copy_elements(call.in[0], out, call.parallel);
  with_element_type(out.dtype, [&]<class T>() {
    run_walk<T>(w, AddScaled<T>{call.scalars[0]}, static_cast<T*>(out.data), static_cast<const T*>(call.in[2].data),
                Workers(call));
  });
}

void run_index_copy(const ExternCall& call) {
  const Walk w = slice_walk("index_copy", call.out[0], call.ints[0], call.in[1], call.in[2]);
  scatter(w, call, call.in[2], {Mode::kSet}, true);
}

void run_index_fill(const ExternCall& call) {
  const DType type = call.out[0].dtype;
  const Constant value = call.in.size() > 2 ? constant_of(call.in[2], type) : Constant(call.scalars[0], type);
  Walk w = slice_walk("index_fill", call.out[0], call.ints[0], call.in[1], value.view);
  w.wraps = true;
  scatter(w, call, value.view, {Mode::kSet}, true);
}

void run_index_reduce(const ExternCall& call) {
  const Walk w = slice_walk("index_reduce", call.out[0], call.ints[0], call.in[1], call.in[2]);
  scatter(w, call, call.in[2], scatter_reduction(call.strings[0]), call.ints[1] != 0);
}

void run_scatter(const ExternCall& call) {
  const bool tensor = call.in.size() > 2;
  const Constant value(tensor ? 0 : call.scalars[0], call.out[0].dtype);
  const ExternView& src = tensor ? call.in[2] : value.view;
  const Walk w = elementwise_walk("scatter", call.out[0], call.ints[0], call.in[1], src);
  scatter(w, call, src, scatter_reduction(call.strings[0]), true);
}

void run_scatter_add(const ExternCall& call) {
  const Walk w = elementwise_walk("scatter_add", call.out[0], call.ints[0], call.in[1], call.in[2]);
  scatter(w, call, call.in[2], {Mode::kAdd}, true);
}

void run_scatter_reduce(const ExternCall& call) {
  const Walk w = elementwise_walk("scatter_reduce", call.out[0], call.ints[0], call.in[1], call.in[2]);
  scatter(w, call, call.in[2], scatter_reduction(call.strings[0]), call.ints[1] != 0);
}

// Sums rows of the gradient into rows of zeros. Rows of padding_idx are left out. With scale_grad_by_freq each row is
// divided by how often its index occurs.
void run_embedding_backward(const ExternCall& call) {
  const ExternView &g = call.in[0], &index = call.in[1], &out = call.out[0];
  const int64_t pad = call.ints[1];
  const Walk w = embedding_walk(call);
  check_indices(w, Workers(call));
  with_element_type(out.dtype, [&]<class T>() {
    T* to = static_cast<T*>(out.data);
    std::memset(static_cast<void*>(to), 0, size_t(out.numel()) * sizeof(T));
    const T* from = static_cast<const T*>(g.data);
    const int64_t n = out.sizes[1], rows = w.positions();
    if (rows * n == 0) return;
    std::vector<int64_t> counts;
    if (call.ints[2]) {
      counts.assign(size_t(out.sizes[0]), 0);
      each_element(index, [&](int64_t at) { counts[size_t(load_index(index, at))]++; });
    }
    const auto columns = [&](int64_t begin, int64_t end) {
      each_block(w, -1, 0, 0, [&](const int64_t* dst, const int64_t* src, int64_t n) {
        for (int64_t k = 0; k < n; k++) {
          const int64_t row = dst[k] / out.strides[0];
          if (row == pad) continue;
          if (counts.empty()) {
            reduce_slice<T>(w, Reduce<T, Mode::kAdd>{}, to + dst[k], from + src[k], 0, 0, begin, end);
          } else {
            const double scale = 1.0 / double(counts[size_t(row)]);
            reduce_slice<T>(w, AddScaled<T>{scale}, to + dst[k], from + src[k], 0, 0, begin, end);
          }
        }
      });
    };
    if (rows * n < kParallelWork || !call.parallel) return columns(0, n);
    call.parallel(n, least_run(Workers(call), n, rows), columns);
  });
}

}  // namespace lutra
