// mm and bmm of views, by cuBLASLt or by a simple kernel of our own.
//
// Invariants:
// 1. The library gets row-major operands or transposes of such. Any other operand is packed first, and any other result
//    is unpacked. The choice depends on sizes and strides alone.
// 2. k = 0 gives zeros. An empty result does nothing.
// 3. Half types are multiplied and summed in float32 and rounded once. float32 uses TF32 only if precision.h allows it.
// 4. The library's fast kernels need rows that are a multiple of 16 bytes apart, with sizes of whole 16 bytes. So large
//    products read and write other rows through padded copies, and are computed in parts: the part of whole 16 bytes,
//    then the rest. Operands that come with padded rows make the same products.
#include <algorithm>

#include "ops/extern/cuda/cublaslt.h"
#include "ops/extern/cuda/kernels.h"
#include "ops/extern/matrix_layout.h"
#include "ops/extern/padded_rows.h"
#include "ops/extern/precision.h"

namespace lutra::cuda {
namespace {

// A block of 256 threads computes 64 x 64 results, a thread 4 x 4. Each result is one chain over k.
const ExternSource kTiled = {"gemm", R"cuda(
typedef Num<T0>::A A;
struct Matrix { i64 batch, row, col; };  // strides
#define STEP 16
KERNEL gemm_tiled(const T0* a, const T0* b, T0* c, Matrix sa, Matrix sb, Matrix sc, i64 batch, i64 m, i64 n, i64 k) {
  sync_dependencies();
  __shared__ A at[STEP][64 + 1], bt[STEP][64 + 1];
  const i64 columns = (n + 63) / 64, row0 = blockIdx.x / columns * 64, col0 = blockIdx.x % columns * 64;
  const int t = threadIdx.x, ty = t / 16, tx = t % 16;
  for (i64 z = blockIdx.z; z < batch; z += gridDim.z) {
    const T0 *pa = a + z * sa.batch, *pb = b + z * sb.batch;
    A acc[4][4];
    for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) acc[i][j] = 0;
    for (i64 k0 = 0; k0 < k; k0 += STEP) {
      for (int i = t; i < STEP * 64; i += 256) {
        // Threads run along the dim with the smaller stride.
        const int ka = sa.col <= sa.row ? i % STEP : i / 64, ra = sa.col <= sa.row ? i / STEP : i % 64;
        const int kb = sb.row <= sb.col ? i % STEP : i / 64, cb = sb.row <= sb.col ? i / STEP : i % 64;
        at[ka][ra] = row0 + ra < m && k0 + ka < k ? Num<T0>::up(pa[(row0 + ra) * sa.row + (k0 + ka) * sa.col]) : (A)0;
        bt[kb][cb] = col0 + cb < n && k0 + kb < k ? Num<T0>::up(pb[(k0 + kb) * sb.row + (col0 + cb) * sb.col]) : (A)0;
      }
      __syncthreads();
      for (int kk = 0; kk < STEP; kk++) {
        A x[4], y[4];
        for (int i = 0; i < 4; i++) x[i] = at[kk][ty * 4 + i], y[i] = bt[kk][tx + 16 * i];
        for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) acc[i][j] = mad(x[i], y[j], acc[i][j]);
      }
      __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
      for (int j = 0; j < 4; j++) {
        const i64 r = row0 + ty * 4 + i, q = col0 + tx + 16 * j;
        if (r < m && q < n) c[z * sc.batch + r * sc.row + q * sc.col] = Num<T0>::down(acc[i][j]);
      }
    }
  }
}
)cuda"};

struct Strides {
  int64_t batch, row, col;
};
struct Matrix {
  void* data;
  int64_t rows, cols;
  Strides stride;
  Matrix transposed() const { return {data, cols, rows, {stride.batch, stride.col, stride.row}}; }
};

Matrix matrix_of(const ExternView& v) {
  const int d = v.dim - 2;
  return {v.data, v.sizes[d], v.sizes[d + 1], {d == 1 ? v.strides[0] : 0, v.strides[d], v.strides[d + 1]}};
}

struct Problem {
  Matrix a, b, c;
  int64_t batch, m, n, k;
};
Problem problem_of(const ExternCall& call, const ExternView& a, const ExternView& b, const ExternView& c) {
  const int dim = call.op == OpId::bmm ? 3 : 2;
  LUTRA_CHECK(a.dim == dim && b.dim == dim && c.dim == dim && a.dtype == c.dtype && b.dtype == c.dtype);
  Problem p{matrix_of(a), matrix_of(b), matrix_of(c), dim == 3 ? c.sizes[0] : 1, 0, 0, 0};
  p.m = p.c.rows, p.n = p.c.cols, p.k = p.a.cols;
  LUTRA_CHECK(p.a.rows == p.m && p.b.cols == p.n && p.b.rows == p.k);
  return p;
}

void tiled(Launcher& l, const Problem& p, DType dtype) {
  const int64_t tiles = (p.m + 63) / 64 * ((p.n + 63) / 64);
  l.run({kTiled, "gemm_tiled", {dtype}}, {tiles, 1, std::min<int64_t>(p.batch, 65535)}, 256, p.a.data, p.b.data,
        p.c.data, p.a.stride, p.b.stride, p.c.stride, p.batch, p.m, p.n, p.k);
}

// A product with a row-major c. la and lb describe a and b.
struct Product {
  Problem p;
  Layout la, lb;
  DType dtype, result;
  bool tf32;
  bool accumulate = false;  // c += a b
  int way = 0;              // the kernel's rank by the library
};
bool matmul_tf32() { return matmul_precision() != MatmulPrecision::kHighest; }

// A row-major c is a column-major c^T = b^T a^T.
bool by_library(Launcher& l, const Product& x) {
  const Problem& p = x.p;
  LtProduct q{};
  q.dtype = x.dtype, q.result = x.result, q.accumulate = x.accumulate;
  q.tf32 = x.dtype == DType::kFloat32 && x.tf32;
  q.transpose_a = x.lb == Layout::kTransposed, q.transpose_b = x.la == Layout::kTransposed;
  q.rows = p.n, q.cols = p.m, q.depth = p.k, q.batch = p.batch;
  q.lda = q.transpose_a ? p.b.stride.col : p.b.stride.row, q.ldb = q.transpose_b ? p.a.stride.col : p.a.stride.row;
  q.ldd = p.c.stride.row;
  q.stride_a = p.b.stride.batch, q.stride_b = p.a.stride.batch, q.stride_d = p.c.stride.batch;
  q.a = p.b.data, q.b = p.a.data, q.d = p.c.data, q.way = x.way;
  return cublaslt_multiply(l, q);
}

// Turns a batch of one into two dims.
void drop_batch(ExternView& v) {
  v.dim = 2;
  for (int d = 0; d < 2; d++) v.sizes[d] = v.sizes[d + 1], v.strides[d] = v.strides[d + 1];
}

bool is_large(const Problem& p, DType dtype) { return p.batch == 1 && is_large_product(dtype, p.m, p.n, p.k); }

// Returns whether the matrix is copied into rows of whole 16 bytes. uses: how often the product uses each of its
// elements.
bool is_padded(const Matrix& m, Layout layout, const Problem& p, int64_t uses, DType dtype) {
  const int64_t apart = layout == Layout::kPlain ? m.stride.row : m.stride.col;
  return is_large(p, dtype) && wants_padded_rows(dtype, apart, uses);
}

// Allocates a matrix whose rows, or columns, are whole 16 bytes apart.
ExternView padded_view(Launcher& l, const ExternView& v, Layout layout) {
  ExternView r = v;
  const int inner = layout == Layout::kPlain ? 1 : 0;
  r.strides[inner] = 1, r.strides[1 - inner] = padded_row(v.dtype, v.sizes[inner]);
  r.data = l.scratch_bytes(size_t(r.strides[1 - inner] * v.sizes[1 - inner]) * size_of(v.dtype));
  return r;
}

// Returns an operand in a form that the library accepts.
Matrix operand_of(Launcher& l, const ExternView& v, const Problem& p, int64_t uses, Layout& layout) {
  Matrix m = matrix_of(v);
  layout = layout_of(m);
  ExternView copy = v;
  if (layout == Layout::kNone) copy = contiguous_copy(l, v, v.dtype), m = matrix_of(copy), layout = layout_of(m);
  if (!is_padded(m, layout, p, uses, v.dtype)) return m;
  const ExternView padded = padded_view(l, copy, layout);
  copy_view(l, copy, padded);
  m = matrix_of(padded);
  layout = layout_of(m);
  return m;
}

enum class Cut { kNone, kM, kN, kK };
// Returns the size to cut: that of a contiguous row that does not fill its last 16 bytes.
Cut cut_of(const Product& x) {
  const int64_t step = pack_of(x.dtype);
  const auto odd = [&](int64_t n) { return n > step && n % step; };
  if (odd(x.p.k) && (x.la == Layout::kPlain || x.lb == Layout::kTransposed)) return Cut::kK;
  if (odd(x.p.n)) return Cut::kN;
  if (odd(x.p.m) && x.la == Layout::kTransposed) return Cut::kM;
  return Cut::kNone;
}

void* moved(void* data, int64_t elements, DType dtype) {
  return static_cast<char*>(data) + elements * int64_t(size_of(dtype));
}

// Returns false if the library has no kernel for some part.
bool in_parts(Launcher& l, const Product& x) {
  const Cut cut = cut_of(x);
  if (cut == Cut::kNone) return by_library(l, x);
  Product most = x, rest = x;
  const auto take = [&](int64_t Problem::*size) {
    rest.p.*size = x.p.*size % pack_of(x.dtype);
    return most.p.*size = x.p.*size - rest.p.*size;
  };
  if (cut == Cut::kK) {
    const int64_t k = take(&Problem::k);
    rest.p.a.data = moved(x.p.a.data, k * x.p.a.stride.col, x.dtype);
    rest.p.b.data = moved(x.p.b.data, k * x.p.b.stride.row, x.dtype);
    rest.accumulate = true;
  } else if (cut == Cut::kN) {
    const int64_t n = take(&Problem::n);
    rest.p.b.data = moved(x.p.b.data, n * x.p.b.stride.col, x.dtype);
    rest.p.c.data = moved(x.p.c.data, n, x.result);
  } else {
    const int64_t m = take(&Problem::m);
    rest.p.a.data = moved(x.p.a.data, m * x.p.a.stride.row, x.dtype);
    rest.p.c.data = moved(x.p.c.data, m * x.p.c.stride.row, x.result);
  }
  return in_parts(l, most) && by_library(l, rest);
}

// For half types, sums of parts stay float32 until they are complete.
bool in_parts_rounded(Launcher& l, Product x, const ExternView& c) {
  if (!is_half(x.dtype) || cut_of(x) != Cut::kK) return in_parts(l, x);
  ExternView wide = c;
  wide.dtype = x.result = DType::kFloat32;
  wide.data = l.scratch_bytes(size_t(x.p.m * x.p.c.stride.row) * sizeof(float));
  x.p.c.data = wide.data;
  if (!in_parts(l, x)) return false;
  copy_view(l, wide, c);
  return true;
}

}  // namespace

bool multiply_matrices(Launcher& l, const ExternView& a, const ExternView& b, const ExternView& c, bool tf32) {
  Problem p{matrix_of(a), matrix_of(b), matrix_of(c), 1, c.sizes[0], c.sizes[1], a.sizes[1]};
  const Layout la = layout_of(p.a), lb = layout_of(p.b);
  LUTRA_CHECK(la != Layout::kNone && lb != Layout::kNone && layout_of(p.c) == Layout::kPlain);
  return by_library(l, {p, la, lb, c.dtype, c.dtype, tf32});
}

bool cublaslt_supports(DType dtype) { return is_float(dtype) && cublaslt_available(); }
bool tiled_gemm_supports(DType dtype) { return is_float(dtype); }

void run_tiled_gemm(const ExternCall& call) {
  const Problem p = problem_of(call, call.in[0], call.in[1], call.out[0]);
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  Launcher l(call);
  tiled(l, p, call.out[0].dtype);
}

void run_cublaslt(const ExternCall& call) {
  ExternView a = call.in[0], b = call.in[1], c = call.out[0];
  const DType dtype = c.dtype;
  Problem p = problem_of(call, a, b, c);
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  Launcher l(call);
  if (p.k == 0) return tiled(l, p, dtype);
  if (c.dim == 3 && p.batch == 1) {
    for (ExternView* v : {&a, &b, &c}) drop_batch(*v);
    p.a = matrix_of(a), p.b = matrix_of(b), p.c = matrix_of(c);
  }
  Layout lc = layout_of(p.c);
  ExternView packed = c;
  if (lc == Layout::kNone) {
    int64_t stride = 1;
    for (int d = c.dim; d-- > 0;) packed.strides[d] = stride, stride *= c.sizes[d];
    packed.data = l.scratch_bytes(size_t(stride) * size_of(dtype));
    p.c = matrix_of(packed);
    make_row_major(p.c);
  }
  const Layout written = lc == Layout::kNone ? Layout::kPlain : lc;
  if (is_padded(p.c, written, p, p.k, dtype)) {
    packed = padded_view(l, c, written);
    p.c = matrix_of(packed);
    layout_of(p.c);
  }
  Layout la, lb;
  p.a = operand_of(l, a, p, p.n, la), p.b = operand_of(l, b, p, p.m, lb);
  if (lc == Layout::kTransposed) {
    const auto flip = [](Layout x) { return x == Layout::kPlain ? Layout::kTransposed : Layout::kPlain; };
    p = {p.b.transposed(), p.a.transposed(), p.c.transposed(), p.batch, p.n, p.m, p.k};
    const Layout x = la;
    la = flip(lb), lb = flip(x);
  }
  const Product x{p, la, lb, dtype, dtype, matmul_tf32(), false, call.way};
  ExternView rows = packed;  // c in the layout in which it is written
  rows.sizes[0] = p.m, rows.sizes[1] = p.n, rows.strides[0] = p.c.stride.row, rows.strides[1] = 1;
  const bool made = is_large(p, dtype) && in_parts_rounded(l, x, rows);
  if (!made && !by_library(l, x)) tiled(l, p, dtype);
  if (packed.data != c.data) copy_view(l, packed, c);
}

}  // namespace lutra::cuda
