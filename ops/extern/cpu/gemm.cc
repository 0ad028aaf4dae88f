// mm and bmm of float views by register tiles (conv_micro.h).
//
// Invariants:
// 1. An element is a sum of blocks of numerics::kProductSteps terms, from the first to the last. A block is one chain
//    of fused multiply-adds in order. Half types are widened, and the sum is rounded once. Bfloat16 has blocks of
//    numerics::kPairSteps terms, each as in bfloat16_micro, and denormal sums of them are zeros of their sign. So bits
//    depend on dtype and elements alone, not on layouts, pieces, threads or the instruction set.
// 2. Operands are read in place if tiles can do that. Otherwise they are packed, block by block.
// 3. k = 0 gives zeros. An empty result does nothing.
#include <atomic>
#include <cfloat>
#include <memory>

#include "ops/core/cpu.h"
#include "ops/extern/cpu/gemm_piece.h"
#include "ops/extern/cpu/tiles_amx.h"

namespace lutra {
namespace {

using namespace gemm;

// Estimates the cycles of a product. Its columns are computed by vectors.
double cost(const Matrix& a, const Matrix& b, const Matrix& c, int width) {
  const double m = double(c.rows), n = double(c.cols), k = double(a.cols), lanes = std::ceil(n / width);
  return m * k * lanes / 2 + ((b.rows_lie() ? 0 : n * k) + (c.rows_lie() ? 0 : m * n)) / 3;
}

// Returns how many times as fast as registers of float32 an engine multiplies. Tiles need as long to start as
// kTilesTerms take in registers.
double gain_of(PairEngine engine) { return engine == PairEngine::kTiles ? 8 : engine == PairEngine::kDots ? 2 : 1; }
constexpr int64_t kTilesTerms = 1 << 10;

PairEngine engine_of(const ExternCall& call) {
  if (!is_bfloat16(call.out[0].dtype)) return PairEngine::kRegisters;
  const ExternView& a = call.in[0];
  const bool few = call.out[0].numel() <= kTilesTerms && call.out[0].numel() * a.sizes[a.dim - 1] <= kTilesTerms;
  return few ? PairEngine::kRegisters : pair_engine(call.isa);
}

// A grid of rows x cols pieces over each result of a batch. If `blocks` > 1, blocks of steps are pieces of their own.
struct Grid {
  int64_t rows = 1, cols = 1, blocks = 1;
  int64_t pieces() const { return rows * cols * blocks; }
};

// Returns the flops of a part of a result over so many steps, or if more, what a core multiplies while it reads the
// larger operand. It reads memory at an eighth of the rate at which it multiplies.
template <class T>
double work_of(const Matrix& c, int64_t steps) {
  const double longer = double(std::max(c.rows, c.cols)) * double(steps);
  return std::max(2.0 * double(c.rows) * double(c.cols) * double(steps), 8.0 * sizeof(T) * longer);
}

// Returns a grid with one piece for each thread. With more than two threads it has four, because threads are not
// equally fast. Each piece must be worth a thread. Pieces with the same columns pack them separately, and so do pieces
// with the same rows. So it halves the side that costs less.
template <class T>
Grid halve(const Matrix& a, const Matrix& b, const Matrix& c, int64_t blocks, int64_t most, double gain) {
  const double kPiece = 2.5e6 * gain;
  constexpr int64_t kMinRows = 56, kMinCols = 64;
  // Approximate cycles to copy an element along memory, to transpose it, and to read it once more.
  constexpr double kCopy = 0.1, kTranspose = 0.35, kRead = 0.08;
  // A larger piece is always cut: it takes some 30 ms of a core, and only after it the loop checks for a stop.
  constexpr double kLongPiece = 4e9;
  Grid g;
  g.blocks = blocks;
  const double work = work_of<T>(c, a.cols);
  const double rows_cost = double(a.rows) * (reads_rows<T>(a) ? kRead : kCopy);
  const double cols_cost = double(b.cols) * (b.rows_lie() ? kCopy : kTranspose);
  const auto goes_on = [&](int64_t pieces) {
    const double each = work / double(pieces);
    return each > kLongPiece || (pieces < most && each >= 2 * kPiece);
  };
  while (goes_on(g.pieces())) {
    const int64_t h = c.rows / g.rows, w = c.cols / g.cols;
    const bool tall = h >= 2 * kMinRows, wide = w >= 2 * kMinCols;
    if (!tall && !wide) break;
    const bool halve_rows = cols_cost * double(g.rows) < rows_cost * double(g.cols);
    (tall && (halve_rows || !wide) ? g.rows : g.cols) *= 2;
  }
  return g;
}

// Cuts a result also along its steps, if it has too few pieces for the threads and may be cut so. Its pieces are larger
// then, and pack less.
template <class T>
Grid partition(const Matrix& a, const Matrix& b, const Matrix& c, int64_t batch, int threads, int64_t blocks,
               double gain) {
  const int64_t most = threads > 2 ? 4 * threads : threads;
  const Grid g = halve<T>(a, b, c, 1, most, gain);
  const bool enough = batch * g.pieces() >= (threads > 2 ? 2 * threads : threads);
  return enough || blocks <= 1 ? g : halve<T>(a, b, c, blocks, most, gain);
}

// Returns how many of n equal pieces are worth a thread.
int64_t grain_of(int64_t n, double work, double gain) {
  return std::clamp<int64_t>(int64_t(2e6 * gain / std::max(work, 1.0)), 1, n);
}

// The operands of a call, swapped and transposed if that is faster: the transposed product has the same terms.
template <class T>
class Product {
 public:
  explicit Product(const ExternCall& call)
      : call_(call),
        engine_(engine_of(call)),
        micro_(micro_of(call)),
        pairs_(is_bfloat16(call.out[0].dtype)),
        tiles_(engine_ != PairEngine::kRegisters),
        steps_(micro_.product_steps) {
    const ExternView& out = call.out[0];
    batch_ = out.dim == 3 ? out.sizes[0] : 1;
    Matrix a = matrix_of(call.in[0], 0), b = matrix_of(call.in[1], 0), c = matrix_of(out, 0);
    LUTRA_CHECK(a.rows == c.rows && b.cols == c.cols && b.rows == a.cols);
    const bool dots = takes_dots<T>(a, b, c);
    const bool swapped_dots = !dots && takes_dots<T>(b.transposed(), a.transposed(), c.transposed());
    dots_ = dots || swapped_dots;
    swapped_ = swapped_dots || (!dots && packing(b.transposed(), a.transposed(), c.transposed()) < packing(a, b, c));
  }

  void run() const {
    const Operands all = operands(0);
    if (batch_ == 0 || all.c.rows == 0 || all.c.cols == 0) return;
    const int64_t blocks = call_.parallel && !dots_ ? (all.a.cols + steps_ - 1) / steps_ : 1;
    const Grid grid = partition<T>(all.a, all.b, all.c, batch_, call_.threads, blocks, gain_of(engine_));
    if (grid.blocks > 1)
      run_blocks_apart(grid);
    else
      run_whole_pieces(grid);
  }

 private:
  static const ConvMicro<T>& micro_of(const ExternCall& call) {
    if constexpr (sizeof(T) == sizeof(float)) {
      if (is_bfloat16(call.out[0].dtype)) return bfloat16_micro(call.isa);
    }
    return conv_micro<T>(call.isa);
  }
  double packing(const Matrix& a, const Matrix& b, const Matrix& c) const {
    if constexpr (cpu::kX64) {
      if (tiles_) return tile_cost(a, b, c);
    }
    return cost(a, b, c, micro_.width);
  }

  struct Operands {
    Matrix a, b, c;
  };
  Operands operands(int64_t batch_index) const {
    const Matrix a = matrix_of(call_.in[0], batch_index), b = matrix_of(call_.in[1], batch_index);
    const Matrix c = matrix_of(call_.out[0], batch_index);
    return swapped_ ? Operands{b.transposed(), a.transposed(), c.transposed()} : Operands{a, b, c};
  }

  // The part of the result that a piece computes: rows x cols results from (row, col) on.
  struct Part {
    int64_t row, rows, col, cols;
    bool empty() const { return rows == 0 || cols == 0; }
  };
  Part part(const Grid& grid, const Matrix& c, int64_t i) const {
    if (grid.rows * grid.cols == 1) return {0, c.rows, 0, c.cols};
    const int64_t wide = 2 * micro_.width, high = tiles_ ? amx::kPair : 14, r = i / grid.cols, q = i % grid.cols;
    const int64_t row = cut(c.rows, high, grid.rows, r), col = cut(c.cols, wide, grid.cols, q);
    return {row, cut(c.rows, high, grid.rows, r + 1) - row, col, cut(c.cols, wide, grid.cols, q + 1) - col};
  }
  void run_piece(const Operands& o, const Part& p, int64_t begin, int64_t steps, const Matrix& c) const {
    const Matrix a = o.a.part(p.row, begin, p.rows, steps), b = o.b.part(begin, p.col, steps, p.cols);
    if constexpr (sizeof(T) == sizeof(float)) {
      if (pairs_) return run_pair_piece(call_.isa, engine_, a, b, c, nullptr);
    }
    if (dots_)
      run_dots<T>(micro_, a, b, c);
    else
      Piece<T>(micro_, a, b, c).run();
  }

  void run_whole_pieces(const Grid& grid) const {
    const Matrix whole = operands(0).c;
    const int64_t pieces = grid.rows * grid.cols, steps = operands(0).a.cols;
    const auto body = [&](int64_t begin, int64_t end) {
      const Tiles tiles(engine_);
      for (int64_t i = begin; i < end; i++) {
        const int64_t batch_index = pieces == 1 ? i : i / pieces;
        const Operands o = operands(batch_index);
        const Part p = part(grid, whole, i - batch_index * pieces);
        if (!p.empty()) run_piece(o, p, 0, steps, o.c.part(p.row, p.col, p.rows, p.cols));
      }
    };
    // A batch of small products is divided into runs that are worth a thread.
    const int64_t total = batch_ * pieces;
    const int64_t grain = grain_of(total, work_of<T>(whole, steps) / double(pieces), gain_of(engine_));
    if (total <= grain || !call_.parallel)
      body(0, total);
    else
      call_.parallel(total, grain, body);
  }

  // Computes each block of steps of each part into separate sums. The thread that finishes a part's last block adds
  // them up in order.
  void run_blocks_apart(const Grid& grid) const {
    constexpr int64_t kBytes = 16 << 20;  // of sums at once
    const Matrix whole = operands(0).c;
    const int64_t parts = grid.rows * grid.cols, all = batch_ * parts, elements = batch_ * whole.rows * whole.cols;
    const int64_t at_once = std::clamp<int64_t>(kBytes / (elements * int64_t(sizeof(T))), 2, grid.blocks);
    // If not all blocks run at once, the first place keeps the sum of the earlier blocks.
    const int64_t places = at_once + (at_once < grid.blocks ? 1 : 0);
    T* sums = scratch<T>(Scratch::kMatmulParts, elements * places, "matmul");
    const auto sums_of = [&](int64_t at, int64_t batch_index, const Part& p) {
      void* data = sums + at * elements + (batch_index * whole.rows + p.row) * whole.cols + p.col;
      return Matrix{static_cast<char*>(data), whole.type, sizeof(T), p.rows, p.cols, whole.cols, 1};
    };
    const auto left = std::make_unique<std::atomic<int64_t>[]>(size_t(all));
    for (int64_t first = 0; first < grid.blocks; first += at_once) {
      const int64_t n = std::min(at_once, grid.blocks - first), kept = first > 0 ? 1 : 0;
      for (int64_t i = 0; i < all; i++) left[size_t(i)] = n;
      call_.parallel(all * n, grain_of(all * n, work_of<T>(whole, steps_) / double(parts), gain_of(engine_)),
                     [&](int64_t begin, int64_t end) {
                       const Tiles tiles(engine_);
                       for (int64_t i = begin; i < end; i++) {
                         const int64_t batch_index = i / n / parts, k = (first + i % n) * steps_;
                         const Operands o = operands(batch_index);
                         const Part p = part(grid, whole, i / n % parts);
                         if (p.empty()) continue;
                         run_piece(o, p, k, std::min(steps_, o.a.cols - k), sums_of(kept + i % n, batch_index, p));
                         if (left[size_t(i / n)].fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
                         const Matrix sum = sums_of(0, batch_index, p);
                         for (int64_t at = 1; at < kept + n; at++) add(sums_of(at, batch_index, p), sum);
                         const Matrix c = o.c.part(p.row, p.col, p.rows, p.cols);
                         if (first + n == grid.blocks) copy_out(micro_, sum.at<T>(0, 0), sum.row_stride, c);
                       }
                     });
    }
  }

  void add(const Matrix& from, const Matrix& to) const {
    for (int64_t r = 0; r < to.rows; r++) {
      const T* x = from.at<T>(r, 0);
      T* y = to.at<T>(r, 0);
      for (int64_t i = 0; i < to.cols; i++) y[i] += x[i];
      for (int64_t i = 0; pairs_ && i < to.cols; i++)
        y[i] = std::fabs(y[i]) < T(FLT_MIN) ? std::copysign(T(0), y[i]) : y[i];
    }
  }

  const ExternCall& call_;
  const PairEngine engine_;
  const ConvMicro<T>& micro_;
  int64_t batch_;
  const bool pairs_, tiles_;
  const int64_t steps_;  // of a block
  bool dots_, swapped_;
};

}  // namespace

namespace gemm {

PairEngine pair_engine(ExternIsa isa) {
  if constexpr (cpu::kX64) {
    if (isa == ExternIsa::kAmx) return PairEngine::kTiles;
    if (isa == ExternIsa::kAvx512 && amx::pays_in_dots()) return PairEngine::kDots;
  }
  return PairEngine::kRegisters;
}

Tiles::Tiles(PairEngine engine) : used_(engine == PairEngine::kTiles) {
  if constexpr (cpu::kX64) {
    if (used_) amx::begin();
  }
}

Tiles::~Tiles() {
  if constexpr (cpu::kX64) {
    if (used_) amx::end();
  }
}

void run_pair_piece(ExternIsa isa, PairEngine engine, const Matrix& a, const Matrix& b, const Matrix& c,
                    const uint16_t* packed) {
  const cpu::FlushDenormals mode(isa != ExternIsa::kBase);
  if constexpr (cpu::kX64) {
    if (engine != PairEngine::kRegisters) return run_tile_piece(engine, a, b, c, packed);
  }
  Piece<float>(bfloat16_micro(isa), a, b, c).run();
}

}  // namespace gemm

bool gemm_supports(DType dtype) { return is_float(dtype) && size_of(dtype) >= 2; }

void run_gemm(const ExternCall& call) {
  LUTRA_CHECK(call.in.size() == 2 && call.out.size() == 1);
  const ExternView& out = call.out[0];
  LUTRA_CHECK(call.in[0].dim == out.dim && call.in[1].dim == out.dim);
  LUTRA_CHECK(call.in[0].dtype == out.dtype && call.in[1].dtype == out.dtype);
  if (size_of(out.dtype) == sizeof(double))
    Product<double>(call).run();
  else
    Product<float>(call).run();
}

}  // namespace lutra
