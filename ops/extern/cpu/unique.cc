// unique and unique_consecutive: the different elements, or slices along a dim; for each input the index of its value;
// and how often each value occurs.
#include <algorithm>

#include "ops/core/interrupt.h"
#include "ops/defs/call.h"
#include "ops/extern/cpu/elements.h"
#include "ops/extern/cpu/order.h"
#include "ops/extern/cpu/strided.h"
#include "ops/extern/cpu/views.h"

namespace lutra {
namespace {

// Checks for a stop now and then, at element i of a long loop.
void look(int64_t i) {
  if (i % kStretch == 0) look_in_loop();
}

// The starts of runs of equal things in an order of n.
struct Runs {
  std::vector<int64_t> first;
  int64_t n;

  template <class Equal>
  Runs(int64_t n, const Equal& equal_to_previous) : n(n) {
    first.reserve(size_t(n));  // growing would copy everything at once, without a check
    for (int64_t i = 0; i < n; i++) {
      look(i);
      if (i == 0 || !equal_to_previous(i)) first.push_back(i);
    }
  }
  int64_t count() const { return int64_t(first.size()); }
  int64_t end(int64_t run) const { return run + 1 < count() ? first[size_t(run) + 1] : n; }
};

// The results that are requested besides the values.
struct Wanted {
  bool inverse, counts;
};

template <class T>
bool same_element(T a, T b) {
  if constexpr (std::is_arithmetic_v<T>) {
    return a == b;
  } else {
    return to_double(a) == to_double(b);
  }
}

template <class T>
std::vector<T> elements_of(const ExternView& v) {
  std::vector<T> flat;
  flat.reserve(size_t(v.numel()));
  const T* from = static_cast<const T*>(v.data);
  each_element(v, [&](int64_t at) { flat.push_back(from[at]); });
  return flat;
}

// Returns the values, the run of each thing and the lengths of the runs. The latter are empty unless requested.
Results results_of(const Tensor& values, const Runs& runs, const std::vector<uint32_t>& order, const Sizes& sizes,
                   Wanted wanted) {
  Tensor inverse = make_tensor(wanted.inverse ? sizes : Sizes{0}, DType::kInt64);
  Tensor counts = make_tensor({wanted.counts ? runs.count() : 0}, DType::kInt64);
  auto *to_inverse = inverse->data_as<int64_t>(), *to_counts = counts->data_as<int64_t>();
  if (wanted.inverse) touch(to_inverse, inverse->storage->nbytes, nullptr);
  for (int64_t run = 0; run < runs.count(); run++) {
    const int64_t begin = runs.first[size_t(run)], end = runs.end(run);
    if (wanted.counts) to_counts[run] = end - begin;
    look(run);
    for (int64_t i = begin; wanted.inverse && i < end; i++) look(i), to_inverse[order[size_t(i)]] = run;
  }
  return {values, inverse, counts};
}

std::vector<uint32_t> in_place_order(int64_t n) {
  std::vector<uint32_t> order;
  order.reserve(size_t(n));
  for (int64_t i = 0; i < n; i++) look(i), order.push_back(uint32_t(i));
  return order;
}

Results unique_elements(const Tensor& t, Wanted wanted, ParallelFor parallel) {
  const ExternView v = view_of(t);
  const int64_t n = v.numel();
  Results results;
  with_element_type(v.dtype, [&]<class T>() {
    std::vector<T> flat = elements_of<T>(v);
    ExternView row;
    row.data = flat.data(), row.dtype = v.dtype, row.dim = 1, row.sizes[0] = n, row.strides[0] = 1;
    const std::vector<uint32_t> order = stable_order(row, parallel);
    std::vector<T> sorted;
    sorted.reserve(flat.size());
    for (size_t i = 0; i < flat.size(); i++) look(int64_t(i)), sorted.push_back(flat[order[i]]);
    flat.swap(sorted);
    const Runs runs(n, [&](int64_t i) { return same_element(flat[size_t(i)], flat[size_t(i - 1)]); });
    Tensor values = make_tensor({runs.count()}, v.dtype);
    T* to = values->data_as<T>();
    for (int64_t r = 0; r < runs.count(); r++) look(r), to[r] = flat[size_t(runs.first[size_t(r)])];
    results = results_of(values, runs, order, t->sizes, wanted);
  });
  return results;
}

// Runs of elements as they stand: counted first, so that the results have their sizes, then written.
Results consecutive_elements(const Tensor& t, Wanted wanted) {
  const ExternView v = view_of(t);
  const int64_t n = v.numel();
  Results results;
  with_element_type(v.dtype, [&]<class T>() {
    const std::vector<T> copy = t->is_contiguous() ? std::vector<T>() : elements_of<T>(v);
    const T* from = t->is_contiguous() ? static_cast<const T*>(v.data) : copy.data();
    // Calls visit(i) for each i > 0 with whether a run begins there.
    const auto each_pair = [&](const auto& visit) {
      in_stretches(n, [&](int64_t begin, int64_t end) {
        for (int64_t i = std::max<int64_t>(begin, 1); i < end; i++) visit(i, !same_element(from[i], from[i - 1]));
      });
    };
    int64_t count = n > 0 ? 1 : 0;
    each_pair([&](int64_t, bool begins) { count += begins; });
    Tensor values = make_tensor({count}, v.dtype);
    Tensor inverse = make_tensor(wanted.inverse ? t->sizes : Sizes{0}, DType::kInt64);
    Tensor counts = make_tensor({wanted.counts ? count : 0}, DType::kInt64);
    if (n == 0) return void(results = {values, inverse, counts});
    T* to = values->data_as<T>();
    auto *to_inverse = inverse->data_as<int64_t>(), *to_counts = counts->data_as<int64_t>();
    int64_t run = 0, first = 0;
    to[0] = from[0];
    each_pair([&](int64_t i, bool begins) {
      if (!begins) return;
      if (wanted.counts) to_counts[run] = i - first;
      to[++run] = from[i], first = i;
    });
    if (wanted.counts) to_counts[run] = n - first;
    if (wanted.inverse) {
      int64_t at = to_inverse[0] = 0;
      each_pair([&](int64_t i, bool begins) { to_inverse[i] = at += begins; });
    }
    results = {values, inverse, counts};
  });
  return results;
}

// Calls visit(slice, first) for each slice along dim: a view of size 1 there, and the slice's first element.
template <class F>
void each_slice(const ExternView& v, int64_t dim, const F& visit) {
  ExternView slice = v;
  slice.sizes[dim] = 1;
  for (int64_t i = 0; i < v.sizes[dim]; i++) visit(slice, i * v.strides[dim]);
}

// The slices of a tensor along a dimension, as rows of one matrix.
template <class T>
struct SliceRows {
  std::vector<T> elements;
  int64_t width;  // of a row

  SliceRows(const ExternView& v, int64_t dim) : width(v.sizes[dim] ? v.numel() / v.sizes[dim] : 0) {
    elements.reserve(size_t(v.sizes[dim] * width));
    each_slice(v, dim, [&](const ExternView& slice, int64_t first) {
      const T* from = static_cast<const T*>(v.data) + first;
      each_element(slice, [&](int64_t at) { elements.push_back(from[at]); });
    });
  }
  const T& at(uint32_t row, int64_t k) const { return elements[size_t(row * width + k)]; }
  // Compares from the first element on.
  bool is_less(uint32_t a, uint32_t b) const {
    for (int64_t k = 0; k < width; k++) {
      look(k);
      const auto x = order::key(at(a, k)), y = order::key(at(b, k));
      if (x != y) return x < y;
    }
    return false;
  }
  bool is_same(uint32_t a, uint32_t b) const {
    for (int64_t k = 0; k < width; k++) {
      look(k);
      if (!same_element(at(a, k), at(b, k))) return false;
    }
    return true;
  }
};

// Returns the first slice of each run as a tensor, in which dim comes first in memory.
template <class T>
Tensor first_slices(const SliceRows<T>& rows, const Runs& runs, const std::vector<uint32_t>& order, const Tensor& t,
                    int64_t dim) {
  Sizes sizes = t->sizes, one = t->sizes;
  sizes[size_t(dim)] = runs.count(), one[size_t(dim)] = 1;
  Sizes strides = contiguous_strides(one);
  strides[size_t(dim)] = std::max<int64_t>(rows.width, 1);
  Tensor values = make_tensor(sizes, strides, t->dtype);
  int64_t run = 0;
  each_slice(view_of(values), dim, [&](const ExternView& slice, int64_t first) {
    T* to = values->data_as<T>() + first;
    const uint32_t row = order[size_t(runs.first[size_t(run++)])];
    int64_t k = 0;
    each_element(slice, [&](int64_t at) { to[at] = rows.at(row, k++); });
  });
  return values;
}

Results unique_slices(const Tensor& t, int64_t dim, bool sort, Wanted wanted) {
  const ExternView v = view_of(t);
  const int64_t n = v.sizes[dim];
  Results results;
  with_element_type(v.dtype, [&]<class T>() {
    const SliceRows<T> rows(v, dim);
    std::vector<uint32_t> order = in_place_order(n);
    const auto is_less = [&](uint32_t a, uint32_t b) { return rows.is_less(a, b); };
    if (sort) std::stable_sort(order.begin(), order.end(), is_less);
    const Runs runs(n, [&](int64_t i) { return rows.is_same(order[size_t(i)], order[size_t(i - 1)]); });
    results = results_of(first_slices(rows, runs, order, t, dim), runs, order, {n}, wanted);
  });
  return results;
}

Results unique(const Args& args, bool sort, ParallelFor parallel) {
  const Tensor t = args[0].tensor();
  const size_t last = args.size() - 1;
  const Wanted wanted{args[last - 2].as<bool>(), args[last - 1].as<bool>()};
  if (args[last].is_none() || t->dim() == 0) {
    return sort ? unique_elements(t, wanted, parallel) : consecutive_elements(t, wanted);
  }
  const int64_t dim = args[last].sym_int().hint;
  return unique_slices(t, dim < 0 ? dim + t->dim() : dim, sort, wanted);
}

}  // namespace

Results dynamic_unique(const Args& args, ParallelFor parallel) { return unique(args, true, parallel); }
Results dynamic_unique_consecutive(const Args& args, ParallelFor parallel) { return unique(args, false, parallel); }

}  // namespace lutra
