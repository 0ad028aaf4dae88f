// Computes one piece of a product of bfloat16 by tiles (tiles_amx.h), of AMX or of AVX-512's dots. Elements are those
// of gemm.cc.
#include <bit>

#include "ops/extern/cpu/gemm_piece.h"
#include "ops/extern/cpu/tiles_amx.h"

namespace lutra::gemm {
namespace {

constexpr int64_t kSum = numerics::kPairSteps;
static_assert(amx::kBlock == numerics::kPairBlock && kSum % amx::kBlock == 0);
// The bytes of `b` that are packed at once, which stay in the second cache, and its most steps; the rows whose sums are
// kept.
constexpr int64_t kBytes = 1 << 20, kMaxSteps = 2 * kSum, kTileRows = 1024;

int64_t up_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
amx::Layout columns_layout(bool dots) { return dots ? amx::Layout::kDotPairs : amx::Layout::kPairs; }
const uint16_t* halves(const Matrix& m, int64_t row, int64_t col) { return m.at<const uint16_t>(row, col); }

class TilePiece {
 public:
  TilePiece(PairEngine engine, const Matrix& a, const Matrix& b, const Matrix& c, const uint16_t* whole)
      : a_(a), b_(b), c_(c), whole_(whole), dots_(engine == PairEngine::kDots) {
    steps_ = std::min(up_to(std::max<int64_t>(a.cols, 1), amx::kBlock), kMaxSteps);
    most_cols_ = std::max(kBytes / 2 / steps_ / amx::kPair * amx::kPair, amx::kPair);
    // Reads `a` in place if its rows are whole lines of the first cache and don't all fall into the same set of it.
    const auto place = std::bit_cast<uintptr_t>(a.data);
    direct_ = a.rows_lie() && place % 64 == 0 && a.row_stride % amx::kBlock == 0 && a.row_stride * 2 % 1024 != 0;
    direct_ = direct_ || (a.rows_lie() && c.cols <= amx::kPair);
    direct_ = direct_ && !dots_;  // dots need the steps in their own order
  }

  void run() {
    const int64_t cols = std::min(most_cols_, up_to(c_.cols, amx::kPair));
    const int64_t rows = a_.cols > steps_ ? std::min(kTileRows, c_.rows) : c_.rows;
    packed_ = whole_ ? nullptr : scratch<uint16_t>(Scratch::kMatmulB, steps_ * cols, "matmul");
    rows_ = scratch<uint16_t>(Scratch::kMatmulA, amx::kPair * kSum, "matmul");
    part_ = scratch<float>(Scratch::kMatmulSums, amx::kPair * amx::kPair, "matmul");
    sums_row_ = cols;
    if (a_.cols > kSum) {
      const int64_t kept = a_.cols > steps_ ? up_to(rows, amx::kPair) : amx::kPair;
      sums_ = scratch<float>(Scratch::kMatmulOut, kept * cols, "matmul");
    }
    for (int64_t row = 0; row < c_.rows; row += rows) {
      for (int64_t col = 0; col < c_.cols; col += cols) {
        block(row, std::min(rows, c_.rows - row), col, std::min(cols, c_.cols - col));
      }
    }
  }

 private:
  void block(int64_t row, int64_t rows, int64_t col, int64_t cols) {
    int64_t k = 0;
    do {
      const int64_t steps = std::min(steps_, a_.cols - k);
      const int64_t panel = up_to(whole_ ? a_.cols : steps, amx::kBlock) * amx::kLines;
      look_in_loop();
      if (!whole_) {
        amx::pack(columns_layout(dots_), halves(b_, k, col), b_.col_stride, b_.row_stride, cols, steps, packed_, panel);
      }
      const uint16_t* packed = whole_ ? whole_ + col / amx::kLines * panel + k * amx::kLines : packed_;
      for (int64_t r = 0; r < rows; r += amx::kPair) {
        look_in_loop();
        float* sums = a_.cols > steps_ ? sums_ + r * sums_row_ : sums_;
        int64_t at = 0;
        do panels(row + r, std::min(amx::kPair, rows - r), col, cols, k + at, panel, packed + at * amx::kLines, sums);
        while ((at += kSum) < steps);
      }
    } while ((k += steps_) < a_.cols);
  }

  // Multiplies at most kPair rows of `a` from (row, k) on, and kSum steps, with all packed columns.
  void panels(int64_t row, int64_t rows, int64_t col, int64_t cols, int64_t k, int64_t b_panel, const uint16_t* b,
              float* sums) {
    const int64_t steps = std::min(kSum, a_.cols - k), blocks = (steps + amx::kBlock - 1) / amx::kBlock;
    amx::Multiply m{};
    if (direct_ && rows == amx::kPair && steps % amx::kBlock == 0) {
      m.a = halves(a_, row, k);
      m.a_line = a_.row_stride, m.a_block = amx::kBlock, m.a_panel = amx::kLines * a_.row_stride;
    } else {
      const int64_t panel = blocks * amx::kTile;
      const auto layout = dots_ ? amx::Layout::kDotLines : amx::Layout::kLines;
      amx::pack(layout, halves(a_, row, k), a_.row_stride, a_.col_stride, rows, steps, rows_, panel);
      m.a = rows_, m.a_line = amx::kBlock, m.a_block = amx::kTile, m.a_panel = panel;
    }
    const bool first = k == 0, last = k + steps >= a_.cols;
    m.b_panel = b_panel, m.blocks = blocks;
    for (int64_t j = 0; j < cols; j += amx::kPair) {
      const int64_t n = std::min(amx::kPair, cols - j);
      const bool kept = first && !last;
      m.b = b + j / amx::kLines * b_panel;
      m.sums = kept ? sums + j : part_, m.row = kept ? sums_row_ : amx::kPair;
      const int columns = n > amx::kLines ? 2 : 1;
      dots_ ? amx::multiply_dots(rows, columns, m) : amx::multiply(rows > amx::kLines ? 2 : 1, columns, m);
      if (kept) continue;
      const Matrix to = c_.part(row, col + j, rows, n);
      if (last && to.rows_lie() && !to.holds<float>()) {
        auto* place = to.at<uint16_t>(0, 0);
        if (first)
          amx::store_rows(part_, amx::kPair, nullptr, place, to.row_stride, rows, n);
        else
          amx::store_rows(sums + j, sums_row_, part_, place, to.row_stride, rows, n);
        continue;
      }
      if (!first) amx::add(part_, amx::kPair, sums + j, sums_row_, rows, n);
      if (last) first ? store(part_, amx::kPair, to) : store(sums + j, sums_row_, to);
    }
  }

  static void store(const float* from, int64_t from_row, const Matrix& c) {
    if (c.cols_lie() && !c.holds<float>()) {
      amx::store_columns(from, from_row, c.at<uint16_t>(0, 0), c.col_stride, c.rows, c.cols);
      return;
    }
    for (int64_t r = 0; r < c.rows; r++) write_line(from + r * from_row, c, r, 0, c.col_stride, c.cols);
  }

  const Matrix a_, b_, c_;
  const uint16_t* const whole_;  // all of `b`, packed; or null
  const bool dots_;
  int64_t steps_, most_cols_, sums_row_ = 0;
  bool direct_;
  uint16_t *packed_ = nullptr, *rows_ = nullptr;
  float *part_ = nullptr, *sums_ = nullptr;
};

}  // namespace

void run_tile_piece(PairEngine engine, const Matrix& a, const Matrix& b, const Matrix& c, const uint16_t* packed) {
  TilePiece(engine, a, b, c, packed).run();
}

void pack_tile_columns(PairEngine engine, const Matrix& b, uint16_t* to) {
  static_assert(kTileColumns == amx::kPair);
  const int64_t panel = up_to(b.rows, amx::kBlock) * amx::kLines;
  for (int64_t col = 0; col < b.cols; col += kTileColumns, to += 2 * panel) {
    look_in_loop();
    amx::pack(columns_layout(engine == PairEngine::kDots), halves(b, 0, col), b.col_stride, b.row_stride,
              std::min(kTileColumns, b.cols - col), b.rows, to, panel);
  }
}

double tile_cost(const Matrix& a, const Matrix& b, const Matrix& c) {
  const double m = double(c.rows), n = double(c.cols), k = double(a.cols);
  const double rows = a.rows_lie() ? 0.05 : 0.2, columns = b.rows_lie() ? 0.06 : b.cols_lie() ? 0.17 : 2;
  return m * k * rows + n * k * columns + (c.rows_lie() ? 0.05 : 1.5) * m * n;
}

}  // namespace lutra::gemm
