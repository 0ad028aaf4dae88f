// Ops whose result's shape depends on elements: nonzero, masked_select, bincount. They count, allocate, write.
#include <algorithm>
#include <cstring>

#include "ops/core/interrupt.h"
#include "ops/defs/call.h"
#include "ops/defs/to_device.h"
#include "ops/extern/cpu/elements.h"
#include "ops/extern/cpu/strided.h"
#include "ops/extern/cpu/views.h"
#include "ops/meta/unbacked.h"

namespace lutra {
namespace {

constexpr int64_t kGrain = 1 << 16;  // elements that are worth a thread

// One byte for each element in row-major order, nonzero if the element is.
struct Flags {
  std::vector<uint8_t> own;
  const uint8_t* data;
  int64_t count;

  explicit Flags(const ExternView& v) : count(v.numel()) {
    if (is_bool(v.dtype) && is_contiguous(v)) {
      data = static_cast<const uint8_t*>(v.data);
      return;
    }
    own.resize(size_t(count));
    with_element_type(v.dtype, [&]<class T>() {
      const T* from = static_cast<const T*>(v.data);
      int64_t n = 0;
      each_element(v, [&](int64_t at) { own[size_t(n++)] = to_double(from[at]) != 0; });
    });
    data = own.data();
  }
};

// Returns how many flags are set before each chunk of kGrain elements, and the total.
std::vector<int64_t> counts_before(const Flags& flags, ParallelFor parallel) {
  const int64_t chunks = (flags.count + kGrain - 1) / kGrain;
  std::vector<int64_t> before(size_t(chunks) + 1, 0);
  parallel(chunks, 1, [&](int64_t lo, int64_t hi) {
    for (int64_t c = lo; c < hi; c++) {
      const int64_t end = std::min(flags.count, (c + 1) * kGrain);
      int64_t n = 0;
      for (int64_t i = c * kGrain; i < end; i++) n += flags.data[i] != 0;
      before[size_t(c) + 1] = n;
    }
  });
  for (size_t c = 1; c < before.size(); c++) before[c] += before[c - 1];
  return before;
}

}  // namespace

Results dynamic_to_device(const Args& args, ParallelFor) {
  return {copy_to(args[0].as<Tensor>(), args[1].as<Device>())};
}

Results dynamic_tell_number(const Args& args, ParallelFor) {
  Tensor out = make_tensor({}, DType::kFloat64);
  *out->data_as<double>() = *args[0].tensor()->data_as<double>();
  return {out};
}

Results dynamic_nonzero(const Args& args, ParallelFor parallel) {
  const ExternView v = view_of(args[0].tensor());
  const Flags flags(v);
  const std::vector<int64_t> before = counts_before(flags, parallel);
  const int rank = v.dim;
  const int64_t found = before.back();
  Tensor out = make_tensor({found, rank}, {1, found}, DType::kInt64);  // x[mask] reads one column a dimension
  auto* to = out->data_as<int64_t>();
  parallel(int64_t(before.size()) - 1, 1, [&](int64_t lo, int64_t hi) {
    for (int64_t c = lo; c < hi; c++) {
      int64_t at[kExternDims] = {}, rest = c * kGrain;
      for (int d = rank; d-- > 0;) at[d] = rest % v.sizes[d], rest /= v.sizes[d];
      const int64_t end = before[size_t(c) + 1];
      int64_t row = before[size_t(c)];
      for (int64_t i = c * kGrain; row != end; i++) {
        if (flags.data[i]) {
          for (int d = 0; d < rank; d++) to[d * found + row] = at[d];
          row++;
        }
        for (int d = rank; d-- > 0;) {
          if (++at[d] < v.sizes[d]) break;
          at[d] = 0;
        }
      }
    }
  });
  return {out};
}

Results dynamic_masked_select(const Args& args, ParallelFor parallel) {
  ExternView in = view_of(args[0].tensor()), mask = view_of(args[1].tensor());
  broadcast_views(in, mask);
  const Flags flags(mask);
  const std::vector<int64_t> before = counts_before(flags, parallel);
  Tensor out = make_tensor({before.back()}, in.dtype);
  with_element_type(info(in.dtype).carrier, [&]<class T>() {
    T* to = out->data_as<T>();
    const T* from = static_cast<const T*>(in.data);
    if (!is_contiguous(in)) {
      int64_t i = 0;
      each_element(in, [&](int64_t at) {
        if (flags.data[i++]) *to++ = from[at];
      });
      return;
    }
    parallel(int64_t(before.size()) - 1, 1, [&](int64_t lo, int64_t hi) {
      for (int64_t c = lo; c < hi; c++) {
        T *p = to + before[size_t(c)], *const end = to + before[size_t(c) + 1];
        for (int64_t i = c * kGrain; p != end; i++) {
          *p = from[i];  // kept if the flag advances p
          p += flags.data[i] != 0;
        }
      }
    });
  });
  return {out};
}

namespace {

// Returns f after calling f(n) for each whole number n of v. A copy of f goes through each contiguous run, so that its
// state stays in registers.
template <class F>
F each_whole(const ExternView& v, F f) {
  with_element_type(v.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      const T* from = static_cast<const T*>(v.data);
      if (!is_contiguous(v)) return each_element(v, [&](int64_t at) { f(int64_t(from[at])); });
      in_stretches(v.numel(), [&](int64_t begin, int64_t end) {
        F own = f;
        for (int64_t i = begin; i < end; i++) own(int64_t(from[i]));
        if constexpr (std::is_copy_assignable_v<F>) f = own;  // else f captures by reference what it changes
      });
    }
  });
  return f;
}

struct Bounds {
  int64_t least = 0, most = -1;
  void operator()(int64_t n) { least = std::min(least, n), most = std::max(most, n); }
};

// If another thread writes the input meanwhile, counts are wrong, but nothing is written outside of them.
struct Counts {
  int64_t *counts, size;
  void operator()(int64_t n) {
    if (uint64_t(n) < uint64_t(size)) counts[n]++;
  }
};

}  // namespace

Results dynamic_bincount(const Args& args, ParallelFor) {
  const ExternView v = view_of(args[0].tensor());
  const Bounds bounds = each_whole(v, Bounds());
  if (bounds.least < 0 || bounds.most == INT64_MAX) {
    each_whole(v, [](int64_t n) {  // reports the first bad one
      if (n < 0) throw Error(ErrorKind::kData, str("bincount: the input must not be negative, got ", n));
      if (n == INT64_MAX) throw Error(ErrorKind::kData, str("bincount: ", n, " is too large"));
    });
  }
  const int64_t size = std::max(args[2].sym_int().hint, bounds.most + 1);
  if (args[1].is_none() || v.numel() == 0) {
    Tensor out = make_tensor({size}, DType::kInt64);
    auto* counts = out->data_as<int64_t>();
    in_stretches(size, [&](int64_t begin, int64_t end) { std::fill(counts + begin, counts + end, 0); });
    each_whole(v, Counts{counts, size});
    return {out};
  }
  const ExternView weights = view_of(args[1].tensor());
  std::vector<int64_t> values;
  values.reserve(size_t(v.numel()));
  each_whole(v, [&](int64_t n) { values.push_back(n); });
  Tensor out = make_tensor({size}, sums_of_weights(args[1].tensor()));
  const auto sum = [&](auto* sums) {
    using S = std::remove_reference_t<decltype(*sums)>;
    in_stretches(size, [&](int64_t begin, int64_t end) { std::fill(sums + begin, sums + end, S(0)); });
    size_t i = 0;
    with_element_type(weights.dtype, [&]<class T>() {
      const T* w = static_cast<const T*>(weights.data);
      each_element(weights, [&](int64_t at) {
        const int64_t n = values[i++];
        if (uint64_t(n) < uint64_t(size)) sums[n] += S(to_double(w[at]));
      });
    });
  };
  out->dtype == DType::kFloat32 ? sum(out->data_as<float>()) : sum(out->data_as<double>());
  return {out};
}

}  // namespace lutra
