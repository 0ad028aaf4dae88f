// Views of mm's and bmm's operands in, the product in the out view.
//
// Invariants:
// 1. The partition into pieces depends on sizes alone. Each piece is one single-threaded library call, so bits do not
//    depend on how many threads share the pieces.
// 2. The library gets row-major operands or transposes of such; any other layout is packed first. What is chosen
//    depends on sizes and strides alone.
// 3. k = 0 gives zeros; an empty result does nothing.
#include <algorithm>
#include <memory>

#include "ops/core/error.h"
#include "ops/core/numerics.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/onednn.h"
#include "ops/extern/cpu/scratch.h"
#include "ops/extern/matrix_layout.h"

namespace lutra {
namespace {

struct Matrix {
  float* data = nullptr;
  int64_t rows = 0, cols = 0;
  struct {
    int64_t row = 0, col = 0;
  } stride;
  float* at(int64_t r, int64_t c) const { return data + r * stride.row + c * stride.col; }
  Matrix transposed() const { return {data, cols, rows, {stride.col, stride.row}}; }
};

void copy_matrix(const Matrix& from, const Matrix& to) {
  for (int64_t r = 0; r < from.rows; r++) {
    for (int64_t c = 0; c < from.cols; c++) *to.at(r, c) = *from.at(r, c);
  }
}

Matrix packed(Scratch slot, const Matrix& m) {
  return {scratch<float>(slot, m.rows * m.cols, "matmul"), m.rows, m.cols, {m.cols, 1}};
}

// One piece of the product: rows of a against columns of b, all on this thread.
void multiply(Matrix a, Matrix b, Matrix c) {
  if (a.cols == 0) {
    for (int64_t r = 0; r < c.rows; r++) {
      for (int64_t j = 0; j < c.cols; j++) *c.at(r, j) = 0;
    }
    return;
  }
  Layout lc = layout_of(c);
  if (lc == Layout::kTransposed) {
    std::swap(a, b);
    a = a.transposed(), b = b.transposed(), c = c.transposed();
  }
  const Matrix target = c;
  if (lc == Layout::kNone) c = packed(Scratch::kMatmulOut, c);
  Layout la = layout_of(a), lb = layout_of(b);
  const auto pack = [](Scratch slot, Matrix& m, Layout& l) {
    Matrix p = packed(slot, m);
    copy_matrix(m, p);
    m = p, l = Layout::kPlain;
  };
  if (la == Layout::kNone) pack(Scratch::kMatmulA, a, la);
  if (lb == Layout::kNone) pack(Scratch::kMatmulB, b, lb);
  onednn_sgemm(la == Layout::kTransposed, lb == Layout::kTransposed, c.rows, c.cols, a.cols, a.data,
               la == Layout::kTransposed ? a.stride.col : a.stride.row, b.data,
               lb == Layout::kTransposed ? b.stride.col : b.stride.row, c.data, c.stride.row);
  if (lc == Layout::kNone) copy_matrix(c, target);
}

// A grid of rows x cols pieces over an m x n result.
struct Grid {
  int64_t rows = 1, cols = 1;
};

// As numerics.h has it. Rows are halved rather than columns: pieces of less than 128 columns or 64 rows lose a tenth or
// more.
Grid partition(int64_t m, int64_t n, int64_t k, int64_t batch) {
  Grid g;
  const double flops = 2.0 * double(m) * double(n) * double(k);
  const int64_t most = batch >= numerics::kManyMatrices  ? 1
                       : flops < numerics::kSmallProduct ? numerics::kSmallPieces
                                                         : numerics::kMostPieces;
  while (g.rows * g.cols < most && flops / double(g.rows * g.cols) >= numerics::kSmallPiece) {
    const int64_t h = m / g.rows, w = n / g.cols, least = g.rows * g.cols == 1 ? 32 : 64;
    const bool tall = h >= 2 * least, wide = w >= 4 * least;
    if (!tall && !wide) break;
    (tall && (2 * h >= w || !wide) ? g.rows : g.cols) *= 2;
  }
  return g;
}

// Where piece i of p begins: multiples of the kernels' tile, so that no piece but the last has a ragged edge.
int64_t cut(int64_t n, int64_t pieces, int64_t i) { return std::min(n, (n + 15) / 16 * i / pieces * 16); }

Matrix matrix_of(const ExternView& v, int64_t batch_index) {
  const int d = v.dim - 2;
  const int64_t offset = d == 1 ? batch_index * v.strides[0] : 0;
  return {static_cast<float*>(v.data) + offset, v.sizes[d], v.sizes[d + 1], {v.strides[d], v.strides[d + 1]}};
}

}  // namespace

bool gemm_supports(DType dtype) { return dtype == DType::kFloat32 && onednn_available(); }

void run_gemm(const ExternCall& call) {
  LUTRA_CHECK(call.in.size() == 2 && call.out.size() == 1);
  const std::span<const ExternView> in = call.in;
  const ExternView& out = call.out[0];
  const int dim = call.op == OpId::bmm ? 3 : 2;
  LUTRA_CHECK(in[0].dim == dim && in[1].dim == dim && out.dim == dim && out.dtype == DType::kFloat32);
  const Matrix a0 = matrix_of(in[0], 0), b0 = matrix_of(in[1], 0), c0 = matrix_of(out, 0);
  const int64_t batch = dim == 3 ? out.sizes[0] : 1, m = c0.rows, n = c0.cols, k = a0.cols;
  LUTRA_CHECK(a0.rows == m && b0.cols == n && b0.rows == k);
  if (batch == 0 || m == 0 || n == 0) return;
  const Grid grid = partition(m, n, k, batch);
  const int64_t pieces = grid.rows * grid.cols;
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t r = i % pieces / grid.cols, q = i % grid.cols;
      const int64_t r0 = cut(m, grid.rows, r), r1 = cut(m, grid.rows, r + 1);
      const int64_t q0 = cut(n, grid.cols, q), q1 = cut(n, grid.cols, q + 1);
      if (r0 == r1 || q0 == q1) continue;
      Matrix a = matrix_of(in[0], i / pieces), b = matrix_of(in[1], i / pieces), c = matrix_of(out, i / pieces);
      a.data = a.at(r0, 0), a.rows = r1 - r0;
      b.data = b.at(0, q0), b.cols = q1 - q0;
      c.data = c.at(r0, q0), c.rows = r1 - r0, c.cols = q1 - q0;
      multiply(a, b, c);
    }
  };
  // A batch of small products is shared out in runs worth a thread's while.
  const double flops = 2.0 * double(m) * double(n) * double(k) / double(pieces);
  const int64_t grain = std::max<int64_t>(1, int64_t(2e6 / std::max(flops, 1.0)));
  if (batch * pieces <= grain || !call.parallel) {
    body(0, batch * pieces);
  } else {
    call.parallel(batch * pieces, std::min(grain, batch * pieces), body);
  }
}

}  // namespace lutra
