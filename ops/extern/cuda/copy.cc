// Views in, their elements in other views out: any strides, any pair of dtypes.
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {
namespace {

const ExternSource kSource = {"copy", R"cuda(
KERNEL copy_elements(View from, View to, i64 n) {
  const i64 i = thread_number();
  if (i >= n) return;
  ((T1*)to.data)[place(to, i)] = convert<T1, T0>(((const T0*)from.data)[place(from, i)]);
}
KERNEL copy_row(const T0* from, T1* to, i64 n) {
  const i64 i = thread_number();
  if (i < n) to[i] = convert<T1, T0>(from[i]);
}
)cuda"};

// Dims that lie as one in both are one; those of size 1 are none.
void collapse(ExternView& a, ExternView& b) {
  ExternView x = a, y = b;
  x.dim = y.dim = 0;
  for (int32_t d = 0; d < a.dim; d++) {
    if (a.sizes[d] == 1) continue;
    const int32_t last = x.dim - 1;
    if (last >= 0 && x.strides[last] == a.strides[d] * a.sizes[d] && y.strides[last] == b.strides[d] * a.sizes[d]) {
      x.sizes[last] *= a.sizes[d], x.strides[last] = a.strides[d], y.strides[last] = b.strides[d];
    } else {
      x.sizes[x.dim] = a.sizes[d], x.strides[x.dim] = a.strides[d], y.strides[x.dim] = b.strides[d];
      x.dim = y.dim = x.dim + 1;
    }
    y.sizes[x.dim - 1] = x.sizes[x.dim - 1];
  }
  a = x, b = y;
}

// Elements are only moved: one kernel for all dtypes of a size.
DType carrier(DType t) {
  switch (size_of(t)) {
    case 1: return DType::kUInt8;
    case 2: return DType::kInt16;
    case 4: return DType::kInt32;
    default: return DType::kInt64;
  }
}

}  // namespace

bool is_row_major(const ExternView& v) {
  int64_t want = 1;
  for (int d = v.dim; d-- > 0;) {
    if (v.sizes[d] != 1 && v.strides[d] != want) return false;
    want *= v.sizes[d];
  }
  return true;
}

void copy_view(Launcher& l, const ExternView& from, const ExternView& to) {
  const int64_t n = to.numel();
  if (n == 0) return;
  ExternView a = from, b = to;
  collapse(a, b);
  const bool same = from.dtype == to.dtype;
  const bool dense = a.dim == 0 || (a.dim == 1 && a.strides[0] == 1 && b.strides[0] == 1);
  if (same && dense) return l.copy(to.data, from.data, size_t(n) * size_of(to.dtype));
  const DType t0 = same ? carrier(from.dtype) : from.dtype, t1 = same ? t0 : to.dtype;
  if (dense) return l.each({kSource, "copy_row", {t0, t1}}, n, from.data, to.data, n);
  l.each({kSource, "copy_elements", {t0, t1}}, n, a, b, n);
}

ExternView contiguous_copy(Launcher& l, const ExternView& v, DType dtype) {
  ExternView r = v;
  r.dtype = dtype;
  int64_t stride = 1;
  for (int d = v.dim; d-- > 0;) r.strides[d] = stride, stride *= v.sizes[d];
  r.data = l.scratch_bytes(size_t(stride > 0 ? stride : 1) * size_of(dtype));
  copy_view(l, v, r);
  return r;
}

ExternView broadcast_view(const ExternView& v, const ExternView& shape) {
  ExternView r = v;
  r.dim = shape.dim;
  for (int d = 0; d < shape.dim; d++) {
    const int at = d - (shape.dim - v.dim);
    r.sizes[d] = shape.sizes[d];
    r.strides[d] = at < 0 || v.sizes[at] == 1 ? 0 : v.strides[at];
  }
  return r;
}

}  // namespace lutra::cuda
