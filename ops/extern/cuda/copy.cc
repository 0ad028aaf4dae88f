// Copies elements between views of any strides and any pair of dtypes.
#include <utility>

#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {
namespace {

const ExternSource kSource = {"copy", R"cuda(
KERNEL copy_elements(View from, View to, i64 n) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= n) return;
  ((T1*)to.data)[place(to, i)] = convert<T1, T0>(((const T0*)from.data)[place(from, i)]);
}
KERNEL copy_row(const T0* from, T1* to, i64 n) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i < n) to[i] = convert<T1, T0>(from[i]);
}
// Copies rows to rows of another stride. A thread has eight elements in flight.
KERNEL copy_rows(const T0* from, T0* to, i64 columns, i64 parts, i64 from_row, i64 to_row) {
  sync_dependencies();
  const i64 row = blockIdx.x / parts, first = blockIdx.x % parts * 2048 + threadIdx.x;
  from += row * from_row, to += row * to_row;
  T0 v[8];
#pragma unroll
  for (int i = 0; i < 8; i++) {
    if (first + i * 256 < columns) v[i] = from[first + i * 256];
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {
    if (first + i * 256 < columns) to[first + i * 256] = v[i];
  }
}
// Copies rows to columns, 32 x 32 elements at a time. Reads and writes run along the innermost dims.
struct Transposition { i64 rows, columns, row_tiles, column_tiles, from_row, to_column, from_batch, to_batch; };
KERNEL copy_tiles(const T0* from, T0* to, Transposition t) {
  sync_dependencies();
  __shared__ T0 tile[32][33];
  const int x = threadIdx.x % 32, y = threadIdx.x / 32;
  const i64 column = blockIdx.x % t.column_tiles * 32, row = blockIdx.x / t.column_tiles % t.row_tiles * 32;
  const i64 batch = blockIdx.x / t.column_tiles / t.row_tiles;
  from += batch * t.from_batch, to += batch * t.to_batch;
  for (int i = y; i < 32; i += 8) {
    if (row + i < t.rows && column + x < t.columns) tile[i][x] = from[(row + i) * t.from_row + column + x];
  }
  __syncthreads();
  for (int i = y; i < 32; i += 8) {
    if (column + i < t.columns && row + x < t.rows) to[(column + i) * t.to_column + row + x] = tile[x][i];
  }
}
)cuda"};

// Joins dims that are contiguous in both views, and drops those of size 1.
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

// Elements are only moved, so one kernel serves all dtypes of a size.
DType carrier(DType t) {
  switch (size_of(t)) {
    case 1: return DType::kUInt8;
    case 2: return DType::kInt16;
    case 4: return DType::kInt32;
    default: return DType::kInt64;
  }
}

struct Transposition {
  int64_t rows, columns, row_tiles, column_tiles, from_row, to_column, from_batch, to_batch;
};

// Returns whether the copy is a transposition of two dims, possibly in a batch: one is innermost in `from`, the other
// in `to`. It is then done by tiles, if they can be filled.
bool transposes(const ExternView& from, const ExternView& to, Transposition& t, int64_t& blocks) {
  if (from.dim != 2 && from.dim != 3) return false;
  int row = -1, column = -1;
  for (int d = 0; d < from.dim; d++) {
    if (from.strides[d] == 1 && from.sizes[d] >= 8) column = d;
    if (to.strides[d] == 1 && to.sizes[d] >= 8) row = d;
  }
  if (row < 0 || column < 0 || row == column) return false;
  const int batch = from.dim == 3 ? 3 - row - column : -1;
  t = {from.sizes[row], from.sizes[column], 0, 0, from.strides[row], to.strides[column], 0, 0};
  t.row_tiles = (t.rows + 31) / 32, t.column_tiles = (t.columns + 31) / 32;
  if (batch >= 0) t.from_batch = from.strides[batch], t.to_batch = to.strides[batch];
  blocks = t.row_tiles * t.column_tiles * (batch >= 0 ? from.sizes[batch] : 1);
  return blocks <= INT32_MAX;
}

}  // namespace

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
  Transposition t;
  int64_t blocks = 0;
  if (same && transposes(a, b, t, blocks)) {
    return l.run({kSource, "copy_tiles", {t0, t0}}, {blocks}, 256, a.data, b.data, t);
  }
  if (a.dim == 2 && a.strides[0] == 1 && b.strides[0] == 1) {
    for (ExternView* v : {&a, &b}) std::swap(v->sizes[0], v->sizes[1]), std::swap(v->strides[0], v->strides[1]);
  }
  const int64_t parts = (a.sizes[1] + 2047) / 2048;
  const bool rows = same && a.dim == 2 && a.strides[1] == 1 && b.strides[1] == 1 && a.sizes[1] >= 256;
  if (rows && a.sizes[0] * parts <= INT32_MAX) {
    return l.run({kSource, "copy_rows", {t0, t0}}, {a.sizes[0] * parts}, 256, a.data, b.data, a.sizes[1], parts,
                 a.strides[0], b.strides[0]);
  }
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

}  // namespace lutra::cuda
