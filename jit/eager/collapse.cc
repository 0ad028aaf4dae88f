// Sorts dims by the result's strides, drops dims of size 1, and merges neighbours that are contiguous in every operand.
#include "jit/eager/collapse.h"

#include <algorithm>
#include <array>

#include "ops/core/error.h"

namespace lutra {
namespace {

// The common case: all operands have the result's sizes and strides, and these are contiguous.
bool all_contiguous(const TensorImpl* const* operands, int count) {
  const TensorImpl& out = *operands[0];
  int64_t expected = 1;
  for (size_t d = out.sizes.size(); d-- > 0;) {
    if (out.strides[d].hint != expected) return false;
    expected *= out.sizes[d].hint;
  }
  for (int k = 1; k < count; k++) {
    const TensorImpl& t = *operands[k];
    if (t.sizes.empty()) continue;
    if (t.sizes.size() != out.sizes.size()) return false;
    for (size_t d = 0; d < out.sizes.size(); d++) {
      if (t.sizes[d].hint != out.sizes[d].hint || t.strides[d].hint != out.strides[d].hint) return false;
    }
  }
  return true;
}

bool mergeable(const Collapsed& c, int outer, int inner) {
  for (int k = 0; k < c.operands; k++) {
    if (c.strides[k][outer] != c.strides[k][inner] * c.sizes[inner]) return false;
  }
  return true;
}

void move_dim(Collapsed& c, int from, int to) {
  c.sizes[to] = c.sizes[from];
  for (int k = 0; k < c.operands; k++) c.strides[k][to] = c.strides[k][from];
}

// Insertion sort, stable: dims of equal stride keep their order.
void sort_dims(Collapsed& c) {
  for (int d = 1; d < c.dims; d++) {
    for (int e = d; e > 0 && c.strides[0][e - 1] < c.strides[0][e]; e--) {
      std::swap(c.sizes[e - 1], c.sizes[e]);
      for (int k = 0; k < c.operands; k++) std::swap(c.strides[k][e - 1], c.strides[k][e]);
    }
  }
}

void merge_dims(Collapsed& c) {
  int last = 0;
  for (int d = 1; d < c.dims; d++) {
    if (mergeable(c, last, d)) {
      const int64_t size = c.sizes[last] * c.sizes[d];
      move_dim(c, d, last);
      c.sizes[last] = size;
    } else {
      move_dim(c, d, ++last);
    }
  }
  c.dims = last + 1;
}

}  // namespace

bool Collapsed::writes_each_once() const {
  std::array<int, kDims> order;
  for (int d = 0; d < dims; d++) order[size_t(d)] = d;
  std::sort(order.begin(), order.begin() + dims, [&](int a, int b) { return strides[0][a] < strides[0][b]; });
  int64_t reach = 0;
  for (int d = 0; d < dims; d++) {
    const auto at = size_t(order[size_t(d)]);
    if (strides[0][at] <= reach) return false;
    reach += (sizes[at] - 1) * strides[0][at];
  }
  return true;
}

Collapsed collapse(const TensorImpl* const* operands, int count, bool in_order) {
  Collapsed c;
  const TensorImpl& out = *operands[0];
  LUTRA_CHECK(count <= Collapsed::kOperands);
  c.operands = count;
  for (SymInt s : out.sizes) c.elements *= s.hint;
  if (c.elements <= 1 || all_contiguous(operands, count)) {
    c.dims = 1;
    c.sizes[0] = c.elements;
    for (int k = 0; k < count; k++) c.strides[k][0] = operands[k]->sizes.empty() && k ? 0 : 1;
    return c;
  }
  const size_t rank = out.sizes.size();
  LUTRA_CHECK(rank <= size_t(Collapsed::kDims));
  for (size_t d = 0; d < rank; d++) {
    if (out.sizes[d].hint == 1) continue;
    c.sizes[c.dims] = out.sizes[d].hint;
    for (int k = 0; k < count; k++) {
      const TensorImpl& t = *operands[k];
      const size_t missing = rank - t.sizes.size();
      const bool broadcast = d < missing || t.sizes[d - missing].hint == 1;
      c.strides[k][c.dims] = broadcast ? 0 : t.strides[d - missing].hint;
    }
    c.dims++;
  }
  if (!in_order) sort_dims(c);
  merge_dims(c);
  return c;
}

}  // namespace lutra
