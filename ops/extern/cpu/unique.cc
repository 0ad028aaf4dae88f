// unique and unique_consecutive: elements, or slices along a dim, in; the different ones, for each where it went, and
// how often each occurs, out.
#include <algorithm>
#include <numeric>

#include "ops/defs/call.h"
#include "ops/extern/cpu/elements.h"
#include "ops/extern/cpu/order.h"
#include "ops/extern/cpu/strided.h"
#include "ops/extern/cpu/views.h"

namespace lutra {
namespace {

// Runs of equal things in an order: run[i] of the i-th thing of it.
struct Runs {
  std::vector<int64_t> run, first, count;

  template <class Equal>
  Runs(int64_t n, const Equal& equal_to_previous) {
    for (int64_t i = 0; i < n; i++) {
      if (i == 0 || !equal_to_previous(i)) first.push_back(i), count.push_back(0);
      run.push_back(int64_t(first.size()) - 1);
      count.back()++;
    }
  }
};

template <class T>
bool same_element(T a, T b) {
  return to_double(a) == to_double(b);
}
inline bool same_element(int64_t a, int64_t b) { return a == b; }

Tensor of_list(const std::vector<int64_t>& list, const Sizes& sizes) {
  Tensor t = make_tensor(sizes, DType::kInt64);
  std::copy(list.begin(), list.end(), t->data_as<int64_t>());
  return t;
}

std::vector<int64_t> inverse_of(const Runs& runs, const std::vector<uint32_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); i++) inverse[order[i]] = runs.run[i];
  return inverse;
}

std::vector<uint32_t> in_place_order(int64_t n) {
  std::vector<uint32_t> order(size_t(n), 0);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

Results unique_elements(const Tensor& t, bool sort, ParallelFor parallel) {
  const ExternView v = view_of(t);
  const int64_t n = v.numel();
  Results results;
  with_element_type(v.dtype, [&]<class T>() {
    std::vector<T> flat;
    flat.reserve(size_t(n));
    const T* from = static_cast<const T*>(v.data);
    each_element(v, [&](int64_t at) { flat.push_back(from[at]); });
    ExternView row;
    row.data = flat.data(), row.dtype = v.dtype, row.dim = 1, row.sizes[0] = n, row.strides[0] = 1;
    const std::vector<uint32_t> order = sort ? stable_order(row, parallel) : in_place_order(n);
    const Runs runs(n, [&](int64_t i) { return same_element(flat[order[size_t(i)]], flat[order[size_t(i - 1)]]); });
    const auto count = int64_t(runs.first.size());
    Tensor values = make_tensor({count}, v.dtype);
    T* to = values->data_as<T>();
    for (int64_t k = 0; k < count; k++) to[k] = flat[order[size_t(runs.first[size_t(k)])]];
    results = {values, of_list(inverse_of(runs, order), t->sizes), of_list(runs.count, {count})};
  });
  return results;
}

// The slices along dim as rows of one matrix, compared from their first element on.
Results unique_slices(const Tensor& t, int64_t dim, bool sort) {
  ExternView v = view_of(t);
  const int64_t n = v.sizes[dim], width = n ? v.numel() / n : 0;
  Results results;
  with_element_type(v.dtype, [&]<class T>() {
    std::vector<T> rows(size_t(n * width));
    for (int64_t i = 0; i < n; i++) {
      ExternView slice = v;
      slice.sizes[dim] = 1;
      const T* from = static_cast<const T*>(v.data) + i * v.strides[dim];
      int64_t k = i * width;
      each_element(slice, [&](int64_t at) { rows[size_t(k++)] = from[at]; });
    }
    std::vector<uint32_t> order = in_place_order(n);
    const auto compare = [&](uint32_t a, uint32_t b) {
      for (int64_t k = 0; k < width; k++) {
        const auto x = order::key(rows[size_t(a * width + k)]), y = order::key(rows[size_t(b * width + k)]);
        if (x != y) return x < y;
      }
      return false;
    };
    if (sort) std::stable_sort(order.begin(), order.end(), compare);
    const Runs runs(n, [&](int64_t i) {
      const int64_t a = order[size_t(i)], b = order[size_t(i - 1)];
      for (int64_t k = 0; k < width; k++) {
        if (!same_element(rows[size_t(a * width + k)], rows[size_t(b * width + k)])) return false;
      }
      return true;
    });
    const auto count = int64_t(runs.first.size());
    Sizes sizes = t->sizes;
    sizes[size_t(dim)] = count;
    Tensor values = make_tensor(sizes, v.dtype);
    const ExternView out = view_of(values);
    for (int64_t j = 0; j < count; j++) {
      ExternView slice = out;
      slice.sizes[dim] = 1;
      T* to = values->data_as<T>() + j * out.strides[dim];
      int64_t k = int64_t(order[size_t(runs.first[size_t(j)])]) * width;
      each_element(slice, [&](int64_t at) { to[at] = rows[size_t(k++)]; });
    }
    results = {values, of_list(inverse_of(runs, order), {n}), of_list(runs.count, {count})};
  });
  return results;
}

Results unique(const Args& args, bool sort, ParallelFor parallel) {
  const Tensor t = args[0].tensor();
  if (args.back().is_none() || t->dim() == 0) return unique_elements(t, sort, parallel);
  const int64_t dim = args.back().sym_int().hint;
  return unique_slices(t, dim < 0 ? dim + t->dim() : dim, sort);
}

}  // namespace

Results dynamic_unique(const Args& args, ParallelFor parallel) { return unique(args, true, parallel); }
Results dynamic_unique_consecutive(const Args& args, ParallelFor parallel) { return unique(args, false, parallel); }

}  // namespace lutra
