// mm and bmm of float64 views in, the product out, by the tiles of convolutions.
//
// Invariants:
// 1. Each element is one chain of fused multiply-adds over k in order, whatever the blocks, the instruction set and the
//    number of threads.
// 2. Operands are packed block by block, so that any strides do, and the last panel is filled up with zeros.
#include <algorithm>

#include "ops/core/error.h"
#include "ops/extern/cpu/conv_micro.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/scratch.h"

namespace lutra {
namespace {

// Of a task: rows and columns of the result, and the steps of k for which its operands stay in the second cache. Rows
// of packed blocks are a little longer, as a power of two would put them into one set of the first.
constexpr int64_t kRows = 112, kCols = 256, kSteps = 192, kGap = 8;

struct View {
  double* data;
  int64_t rows, cols, row_stride, col_stride;
};

View view_of(const ExternView& v, int64_t batch_index) {
  const int d = v.dim - 2;
  const int64_t offset = d == 1 ? batch_index * v.strides[0] : 0;
  return {static_cast<double*>(v.data) + offset, v.sizes[d], v.sizes[d + 1], v.strides[d], v.strides[d + 1]};
}

View part(const View& v, int64_t row, int64_t col, int64_t rows, int64_t cols) {
  return {v.data + row * v.row_stride + col * v.col_stride, rows, cols, v.row_stride, v.col_stride};
}

// Along memory, whichever way that is.
void copy(const View& from, const View& to) {
  const bool by_rows = from.col_stride <= from.row_stride;
  const int64_t outer = by_rows ? from.rows : from.cols, inner = by_rows ? from.cols : from.rows;
  const int64_t fo = by_rows ? from.row_stride : from.col_stride, fi = by_rows ? from.col_stride : from.row_stride;
  const int64_t to_o = by_rows ? to.row_stride : to.col_stride, to_i = by_rows ? to.col_stride : to.row_stride;
  for (int64_t o = 0; o < outer; o++) {
    const double* f = from.data + o * fo;
    double* t = to.data + o * to_o;
    for (int64_t i = 0; i < inner; i++) t[i * to_i] = f[i * fi];
  }
}

// Panels of `width` columns, one behind the other, each row after row.
void pack_panels(const View& b, int64_t width, double* to) {
  for (int64_t c = 0; c < b.cols; c += width, to += b.rows * width) {
    const int64_t cols = std::min(width, b.cols - c);
    if (cols < width) std::fill_n(to, b.rows * width, 0.0);
    copy(part(b, 0, c, b.rows, cols), {to, b.rows, cols, width, 1});
  }
}

void multiply(const ConvMicro<double>& micro, const View& a, const View& b, const View& c) {
  const int64_t width = 2 * micro.width, most_rows = micro.tile_rows[1], step = kSteps + kGap, c_step = kCols + kGap;
  auto* packed_a = scratch<double>(Scratch::kMatmulA, kRows * step, "matmul");
  auto* packed_b = scratch<double>(Scratch::kMatmulB, kSteps * kCols, "matmul");
  auto* result = scratch<double>(Scratch::kMatmulOut, kRows * c_step, "matmul");
  static constexpr double kZeros[64] = {};
  int64_t k = 0;
  do {  // once even where there is no k: zeros
    const int64_t steps = std::min(kSteps, a.cols - k);
    copy(part(a, 0, k, a.rows, steps), {packed_a, a.rows, steps, step, 1});
    pack_panels(part(b, k, 0, steps, b.cols), width, packed_b);
    const ConvRun run = {0, steps, 0};
    for (int64_t col = 0; col < c.cols; col += width) {
      for (int64_t row = 0; row < c.rows; row += most_rows) {
        const int64_t rows = std::min(most_rows, c.rows - row);
        micro.tile[1][rows]({packed_a + row * step, step, packed_b + col * steps, &run, 1, k ? nullptr : kZeros,
                             result + row * c_step + col, c_step});
      }
    }
    k += steps;
  } while (k < a.cols);
  copy({result, c.rows, c.cols, c_step, 1}, c);
}

}  // namespace

bool gemm_double_supports(DType dtype) { return is_float(dtype) && size_of(dtype) == sizeof(double); }

void run_gemm_double(const ExternCall& call) {
  LUTRA_CHECK(call.in.size() == 2 && call.out.size() == 1);
  const ExternView& out = call.out[0];
  const View a0 = view_of(call.in[0], 0), c0 = view_of(out, 0);
  const int64_t batch = out.dim == 3 ? out.sizes[0] : 1;
  if (batch == 0 || c0.rows == 0 || c0.cols == 0) return;
  const int64_t down = (c0.rows + kRows - 1) / kRows, across = (c0.cols + kCols - 1) / kCols;
  const ConvMicro<double>& micro = conv_micro<double>(call.isa);
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t matrix = i / (down * across), row = i / across % down * kRows, col = i % across * kCols;
      const int64_t rows = std::min(kRows, c0.rows - row), cols = std::min(kCols, c0.cols - col);
      const View a = view_of(call.in[0], matrix), b = view_of(call.in[1], matrix), c = view_of(out, matrix);
      multiply(micro, part(a, row, 0, rows, a.cols), part(b, 0, col, b.rows, cols), part(c, row, col, rows, cols));
    }
  };
  // Tasks of small products are shared out in runs worth a thread's while.
  const int64_t tasks = batch * down * across;
  const double flops = 2.0 * double(std::min(kRows, c0.rows)) * double(std::min(kCols, c0.cols)) * double(a0.cols);
  const int64_t grain = std::clamp<int64_t>(int64_t(1e6 / std::max(flops, 1.0)), 1, tasks);
  if (tasks <= grain || !call.parallel)
    body(0, tasks);
  else
    call.parallel(tasks, grain, body);
}

}  // namespace lutra
