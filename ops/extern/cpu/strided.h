// Walks over strided views in row-major order of their indices. They check now and then whether the program must stop.
#pragma once
#include <algorithm>

#include "ops/core/interrupt.h"
#include "ops/extern/extern.h"

namespace lutra {

// Calls f(offset in a, offset in b) for each index of two views of one shape.
template <class F>
void each_pair(const ExternView& a, const ExternView& b, F&& f) {
  int64_t at[kExternDims] = {};
  if (a.numel() == 0) return;
  const int inner = a.dim - 1;
  if (inner < 0) return f(int64_t(0), int64_t(0));
  const int64_t n = a.sizes[inner], sa = a.strides[inner], sb = b.strides[inner];
  int64_t oa = 0, ob = 0, unseen = 0;
  while (true) {
    in_stretches(n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) f(oa + i * sa, ob + i * sb);
    });
    if ((unseen += n) >= kStretch) unseen = 0, look_in_loop();
    int d = inner - 1;
    for (; d >= 0; d--) {
      oa += a.strides[d], ob += b.strides[d];
      if (++at[d] < a.sizes[d]) break;
      oa -= at[d] * a.strides[d], ob -= at[d] * b.strides[d];
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

template <class F>
void each_element(const ExternView& v, F&& f) {
  each_pair(v, v, [&](int64_t at, int64_t) { f(at); });
}

// Returns the offset of element i, counted in row-major order of the first `dims` dimensions.
inline int64_t offset_of(const ExternView& v, int64_t i, int dims) {
  int64_t o = 0;
  for (int d = dims; d-- > 0;) o += i % v.sizes[d] * v.strides[d], i /= v.sizes[d];
  return o;
}

// Returns the view with dimensions joined where one step of the outer one is all steps of the inner one.
inline ExternView with_joined_dims(const ExternView& v) {
  ExternView r = v;
  r.dim = 0;
  for (int d = 0; d < v.dim; d++) {
    if (v.sizes[d] == 1) continue;
    const bool joins = r.dim > 0 && r.strides[r.dim - 1] == v.sizes[d] * v.strides[d];
    if (!joins) r.sizes[r.dim++] = 1;
    r.sizes[r.dim - 1] *= v.sizes[d], r.strides[r.dim - 1] = v.strides[d];
  }
  if (r.dim == 0) r.sizes[0] = 1, r.strides[0] = 0, r.dim = 1;
  return r;
}

// Calls f(offset, count, stride) for rows of the elements begin to end - 1 of a view with joined dims, in row-major
// order. A row is not longer than kStretch.
template <class F>
void each_row_within(const ExternView& v, int64_t begin, int64_t end, F&& f) {
  const int64_t n = v.sizes[v.dim - 1], stride = v.strides[v.dim - 1];
  for (int64_t i = begin; i < end;) {
    const int64_t at = offset_of(v, i, v.dim), count = std::min(n - i % n, end - i);
    in_stretches(count, [&](int64_t from, int64_t to) { f(at + from * stride, to - from, stride); });
    i += count;
  }
}

// Returns whether the elements are contiguous in row-major order.
inline bool is_contiguous(const ExternView& v) {
  int64_t want = 1;
  for (int d = v.dim; d-- > 0;) {
    if (v.sizes[d] != 1 && v.strides[d] != want) return false;
    want *= v.sizes[d];
  }
  return true;
}

// Returns v expanded to the sizes of `shape`.
inline ExternView broadcast_view(const ExternView& v, const ExternView& shape) {
  ExternView r = v;
  r.dim = shape.dim;
  for (int d = 0; d < shape.dim; d++) {
    const int at = d - (shape.dim - v.dim);
    r.sizes[d] = shape.sizes[d];
    r.strides[d] = at < 0 || v.sizes[at] == 1 ? 0 : v.strides[at];
  }
  return r;
}

// Writes into each page of fresh memory, in order, with checks for a stop. Otherwise the first writes could make the
// system clear all of its pages between two checks.
void touch(void* memory, size_t bytes, ParallelFor parallel);

// Copies `from` into `to`, which has the same shape and dtype.
void copy_elements(const ExternView& from, const ExternView& to, ParallelFor parallel);

}  // namespace lutra
