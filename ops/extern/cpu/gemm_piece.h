// Matrices, and the product of two of them on one thread by register tiles (conv_micro.h). gemm.cc cuts a call into
// such pieces. Its invariants hold for all of them.
#pragma once
#include <algorithm>
#include <cmath>

#include "ops/core/error.h"
#include "ops/core/interrupt.h"
#include "ops/core/numerics.h"
#include "ops/extern/cpu/conv_micro.h"
#include "ops/extern/cpu/half_rows.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/scratch.h"

namespace lutra::gemm {

inline constexpr int64_t kSteps = numerics::kProductSteps;
// Rows of `a` that are packed at once. Rows of a packed block are a little longer than its steps: rows a power of two
// apart would fall into one set of the first cache.
inline constexpr int64_t kRows = 112, kGap = 16;
// Sizes that stay in the second cache: bytes of rows of `a`, bytes of packed columns of `b`, and the steps of these
// columns. kCols: columns of `b` that are read along its rows.
inline constexpr int64_t kNearA = 512 << 10, kPackedBytes = 640 << 10, kPackedSteps = 4 * kSteps, kCols = 512;
// The most rows of results that are kept until they are complete.
inline constexpr int64_t kKeptRows = 9 * kRows;
// Up to so many rows, `b` is read so rarely that packing it costs more than it gains. It is then read along its rows,
// kRowsAtATime at a time, which suits memory, unless its bytes stay in the first cache.
inline constexpr int64_t kFewRows = 28, kRowsAtATime = 16, kNearFirst = 16 << 10;
// The most rows of a product for which `b` is read in place, and the largest distance of its rows, in bytes, that the
// first cache's prefetcher follows. Packing is a pass over `b`, and a tile reads as fast.
inline constexpr int64_t kNearRows = 384, kNearBytes = 1536;
// Elements of the widest vector.
inline constexpr int64_t kMaxWidth = 16;
// Rows of `a`, a power of two apart, that fit in the first cache at the same time.
inline constexpr int64_t kAliasedRows = 8;

struct Matrix {
  char* data;
  DType type;
  int64_t size;  // of an element
  int64_t rows, cols, row_stride, col_stride;

  void* place(int64_t row, int64_t col) const { return data + (row * row_stride + col * col_stride) * size; }
  template <class T>
  T* at(int64_t row, int64_t col) const {
    return static_cast<T*>(place(row, col));
  }
  // Returns whether its elements are T. Otherwise they are halves.
  template <class T>
  bool holds() const {
    return size == sizeof(T);
  }
  Matrix part(int64_t row, int64_t col, int64_t n_rows, int64_t n_cols) const {
    return {at<char>(row, col), type, size, n_rows, n_cols, row_stride, col_stride};
  }
  Matrix transposed() const { return {data, type, size, cols, rows, col_stride, row_stride}; }
  // Return whether rows (columns) have unit stride. A dimension of one element may have any stride.
  bool rows_lie() const { return col_stride == 1 || cols == 1; }
  bool cols_lie() const { return row_stride == 1 || rows == 1; }
};

inline Matrix matrix_of(const ExternView& v, int64_t batch_index) {
  const int d = v.dim - 2;
  const int64_t offset = d == 1 ? batch_index * v.strides[0] : 0;
  const auto size = int64_t(size_of(v.dtype));
  return {static_cast<char*>(v.data) + offset * size,
          v.dtype,
          size,
          v.sizes[d],
          v.sizes[d + 1],
          v.strides[d],
          v.strides[d + 1]};
}

// Reads n elements of m from (row, col) on, along its rows or down its columns, and converts them to T.
template <class T>
void read_line(const Matrix& m, int64_t row, int64_t col, int64_t stride, T* to, int64_t n) {
  if (m.holds<T>()) {
    const T* from = m.at<T>(row, col);
    for (int64_t i = 0; i < n; i++) to[i] = from[i * stride];
  } else if constexpr (sizeof(T) == sizeof(float)) {
    widen_row(m.type, m.at<uint16_t>(row, col), stride, to, n);
  }
}

template <class T>
void write_line(const T* from, const Matrix& m, int64_t row, int64_t col, int64_t stride, int64_t n) {
  if (m.holds<T>()) {
    T* to = m.at<T>(row, col);
    for (int64_t i = 0; i < n; i++) to[i * stride] = from[i];
  } else if constexpr (sizeof(T) == sizeof(float)) {
    narrow_row(m.type, from, m.at<uint16_t>(row, col), stride, n);
  }
}

// to[row * step + col] = m[row][col], for any layout of m. The last vector of a row is written whole.
template <class T>
void copy_in(const ConvMicro<T>& micro, const Matrix& m, T* to, int64_t step) {
  if (m.rows_lie() && m.holds<T>()) {
    const auto copy = m.cols <= 2 * micro.width ? micro.pack : micro.copy;
    return copy(m.at<T>(0, 0), m.row_stride, to, step, m.rows, m.cols);
  }
  if (m.rows_lie() || !m.cols_lie()) {
    for (int64_t r = 0; r < m.rows; r++) read_line(m, r, 0, m.col_stride, to + r * step, m.cols);
    return;
  }
  constexpr int64_t kStrip = 256;
  T strip[kMaxWidth * kStrip];
  for (int64_t c = 0; c < m.cols; c += micro.width) {
    const int64_t cols = std::min<int64_t>(micro.width, m.cols - c);
    for (int64_t r = 0; r < m.rows; r += kStrip) {
      const int64_t rows = std::min(kStrip, m.rows - r);
      T* target = to + r * step + c;
      if (m.holds<T>()) {
        micro.transpose(m.at<T>(r, c), m.col_stride, target, step, cols, rows);
        continue;
      }
      for (int64_t i = 0; i < cols; i++) read_line(m, r, c + i, 1, strip + i * kStrip, rows);
      micro.transpose(strip, kStrip, target, step, cols, rows);
    }
  }
}

// Copies in the other direction.
template <class T>
void copy_out(const ConvMicro<T>& micro, const T* from, int64_t step, const Matrix& m) {
  if (m.rows_lie() && m.holds<T>()) return micro.copy(from, step, m.at<T>(0, 0), m.row_stride, m.rows, m.cols);
  if (m.rows_lie() || !m.cols_lie()) {
    for (int64_t r = 0; r < m.rows; r++) write_line(from + r * step, m, r, 0, m.col_stride, m.cols);
    return;
  }
  constexpr int64_t kStrip = 64;
  T strip[kStrip * kMaxWidth];
  for (int64_t r = 0; r < m.rows; r += micro.width) {
    const int64_t rows = std::min<int64_t>(micro.width, m.rows - r);
    for (int64_t c = 0; c < m.cols; c += kStrip) {
      const int64_t cols = std::min(kStrip, m.cols - c);
      micro.transpose(from + r * step + c, step, strip, micro.width, rows, cols);
      if (m.holds<T>()) {
        micro.copy(strip, micro.width, m.at<T>(r, c), m.col_stride, cols, rows);
        continue;
      }
      for (int64_t i = 0; i < cols; i++) write_line(strip + i * micro.width, m, r, c + i, 1, rows);
    }
  }
}

// Elements that tiles read: a[i][j] is data[i * row + j * step]. step 0: the rows are packed by tiles, step by step.
template <class T>
struct Rows {
  const T* data;
  int64_t row, step;
  Rows tile(int64_t first, int64_t n) const {
    return step ? Rows{data + first * row, row, step} : Rows{data + first * row, 1, n};
  }
};

// Returns whether all rows of m fall into the same set of the first cache.
inline bool is_aliased(const Matrix& m) { return m.rows > 1 && m.row_stride * m.size % 4096 < 64; }
// Returns whether tiles read m's rows in place, repeatedly.
template <class T>
bool reads_rows(const Matrix& m) {
  return m.holds<T>() && m.rows_lie() && !is_aliased(m);
}

// Returns where piece i of `pieces` begins: a multiple of `unit`, so that only the last piece has ragged edges.
inline int64_t cut(int64_t n, int64_t unit, int64_t pieces, int64_t i) {
  if (pieces == 1) return i > 0 ? n : 0;  // divisions would take as long as a small product
  return std::min(n, (n + unit - 1) / unit * i / pieces * unit);
}

// One piece of a product, which runs on this thread.
template <class T>
class Piece {
 public:
  Piece(const ConvMicro<T>& micro, const Matrix& a, const Matrix& b, const Matrix& c)
      : micro_(micro),
        a_(a),
        b_(b),
        c_(c),
        most_rows_(is_aliased(a) ? kAliasedRows : ConvMicro<T>::kMaxRows),
        direct_a_(reads_rows<T>(a) || (a.holds<T>() && a.rows_lie() && c.cols <= 2 * micro.width)),
        packed_steps_(direct_a_ ? kPackedSteps : micro.product_steps),
        direct_b_(b.holds<T>() && b.rows_lie() && c.rows <= kFewRows),
        near_b_(!direct_b_ && b.holds<T>() && b.rows_lie() && c.rows <= kNearRows &&
                b.row_stride * int64_t(sizeof(T)) <= kNearBytes),
        direct_c_(c.holds<T>() && c.rows_lie()),
        panels_first_(direct_a_ && (c.rows <= kRows || c.rows * a.cols * int64_t(sizeof(T)) <= kNearA)) {}

  void run() const {
    const int64_t wide = 2 * micro_.width;
    if (c_.cols > 0 && c_.cols <= wide && c_.rows <= kKeptRows) return block(a_, b_, c_);
    // Long rows suit memory, if `b` is read along them.
    const int64_t steps = std::clamp<int64_t>(a_.cols, kSteps, packed_steps_);
    const int64_t packed = std::max(wide, kPackedBytes / int64_t(sizeof(T)) / steps);
    const int64_t most_cols = direct_b_ ? kCols * (kFewRows / c_.rows) : panels_first_ ? 4 * kCols : packed;
    const bool keeps = !direct_c_ || c_.cols % wide;
    const int64_t r = keeps ? (c_.rows + kKeptRows - 1) / kKeptRows : 1, q = (c_.cols + most_cols - 1) / most_cols;
    for (int64_t i = 0; i < r * q; i++) {
      const int64_t row = cut(c_.rows, 1, r, i / q), rows = cut(c_.rows, 1, r, i / q + 1) - row;
      const int64_t col = cut(c_.cols, wide, q, i % q), cols = cut(c_.cols, wide, q, i % q + 1) - col;
      if (cols) block(a_.part(row, 0, rows, a_.cols), b_.part(0, col, b_.rows, cols), c_.part(row, col, rows, cols));
    }
  }

 private:
  // The columns of a block's result that one tile computes: one or two vectors. The last vector may be incomplete.
  struct Panel {
    int log;
    int64_t at, columns, width;
    bool full() const { return columns == width; }
  };
  Panel panel(int64_t at, int64_t cols) const {
    const int log = cols - at > micro_.width ? 1 : 0;
    const int64_t width = int64_t(micro_.width) << log;
    return {log, at, std::min(width, cols - at), width};
  }
  template <class F>
  void for_panels(int64_t cols, const F& f) const {
    for (int64_t at = 0; at < cols; at += 2 * micro_.width) f(panel(at, cols));
  }
  bool in_place(const Panel& p) const { return direct_c_ && p.full(); }

  bool reads_in_place(const Panel& p) const { return direct_b_ && p.full(); }
  // Returns whether the panel is packed, which it is unless tiles can read it in place.
  bool packs(const Panel& p) const { return !(direct_b_ || near_b_) || !p.full(); }
  struct Target {
    T* data;
    int64_t row;
  };
  struct Columns {
    const T* data;
    int64_t step;
  };

  void run_tiles(const Panel& p, const Rows<T>& a, int64_t rows, const Columns& b, int64_t steps, const Target& c,
                 ProductStart start, const T* const* ahead = nullptr) const {
    for_tiles(rows, std::min<int64_t>(micro_.tile_rows[p.log], direct_a_ ? most_rows_ : rows),
              [&](int64_t first, int64_t n) {
                const Rows<T> t = a.tile(first, n);
                const bool fetches = ahead && n == rows && p.log == 1 && micro_.product_ahead[n];
                const auto product = fetches ? micro_.product_ahead[n] : micro_.product[p.log][n];
                product({t.data, t.row, t.step, b.data, b.step, steps, c.data + first * c.row, c.row, start, ahead});
              });
  }

  // Calls f(first row, rows) for tiles of nearly equal height.
  template <class F>
  static void for_tiles(int64_t rows, int64_t most, const F& f) {
    if (rows <= most) return f(int64_t(0), rows);
    const int64_t tiles = (rows + most - 1) / most, least = rows / tiles, longer = rows % tiles;
    for (int64_t i = 0, first = 0; i < tiles; i++) {
      const int64_t n = least + (i < longer ? 1 : 0);
      f(first, n);
      first += n;
    }
  }

  // Computes panels that read b in place: a few of its rows at a time across all panels, into sums of the block.
  template <class F>
  void stream(const Rows<T>& a, const Matrix& b, int64_t rows, ProductStart start, const F& target) const {
    if (b.rows * b.cols * int64_t(sizeof(T)) <= kNearFirst) {
      look_in_loop();
      return for_panels(b.cols, [&](const Panel& p) {
        if (reads_in_place(p)) run_tiles(p, a, rows, {b.at<T>(0, p.at), b.row_stride}, b.rows, target(p, 0), start);
      });
    }
    const int64_t row = b.cols + kGap;
    T* sums = scratch<T>(Scratch::kMatmulSums, rows * row, "matmul");
    for (int64_t k = 0; k < std::max<int64_t>(b.rows, 1); k += kRowsAtATime) {
      const int64_t steps = std::min(kRowsAtATime, b.rows - k);
      const Rows<T> a_rows = {a.data + k * a.step, a.row, a.step};
      look_in_loop();
      for_panels(b.cols, [&](const Panel& p) {
        if (!reads_in_place(p)) return;
        run_tiles(p, a_rows, rows, {b.at<T>(k, p.at), b.row_stride}, steps, {sums + p.at, row},
                  k > 0 ? ProductStart::kGoOn : ProductStart::kZero);
      });
    }
    for_panels(b.cols, [&](const Panel& p) {
      if (!reads_in_place(p)) return;
      const Target c = target(p, 0);
      for (int64_t r = 0; r < rows; r++) {
        const T* from = sums + r * row + p.at;
        T* to = c.data + r * c.row;
        if (start == ProductStart::kZero)
          std::copy_n(from, p.width, to);
        else
          for (int64_t i = 0; i < p.width; i++) to[i] += from[i];
      }
    });
  }

  void block(const Matrix& a, const Matrix& b, const Matrix& c) const {
    // Results that cannot be stored in place at once are kept until they are complete: all, or those of the last panel.
    const int64_t wide = 2 * micro_.width, padded = (c.cols + wide - 1) / wide * wide;
    const int64_t kept_row = direct_c_ ? wide : padded + kGap;
    const bool ragged = !panel((c.cols - 1) / wide * wide, c.cols).full(), keeps = !direct_c_ || ragged;
    T* kept = keeps ? scratch<T>(Scratch::kMatmulOut, c.rows * kept_row, "matmul") : nullptr;
    const auto target = [&](const Panel& p, int64_t row) {
      return in_place(p) ? Target{c.at<T>(row, p.at), c.row_stride}
                         : Target{kept + row * kept_row + (direct_c_ ? 0 : p.at), kept_row};
    };
    if (direct_b_) {
      for_steps(0, a.cols, [&](int64_t k, int64_t steps, ProductStart start) {
        stream(rows_of(a.part(0, k, c.rows, steps)), b.part(k, 0, steps, b.cols), c.rows, start, target);
      });
    }
    if (direct_b_ && !ragged) return finish(kept, kept_row, c);
    if (panels_first_) {
      by_panel(a, b, c, target);
    } else {
      for (int64_t k = 0; k < std::max<int64_t>(a.cols, 1); k += packed_steps_) by_rows(a, b, c, k, target);
    }
    finish(kept, kept_row, c);
  }

  // Calls f(first step, steps, how the block starts) for blocks of the steps [begin, end). Without steps it calls f
  // once, for zeros.
  template <class F>
  void for_steps(int64_t begin, int64_t end, const F& f) const {
    int64_t k = begin;
    do f(k, std::min(micro_.product_steps, end - k), k > 0 ? ProductStart::kAdd : ProductStart::kZero);
    while ((k += micro_.product_steps) < end);
  }

  // `a` stays in the second cache. A panel goes through all steps before the next panel, and stays in the first cache.
  template <class F>
  void by_panel(const Matrix& a, const Matrix& b, const Matrix& c, const F& target) const {
    T* packed = scratch<T>(Scratch::kMatmulB, micro_.product_steps * 2 * micro_.width, "matmul");
    for_panels(c.cols, [&](const Panel& p) {
      if (reads_in_place(p)) return;
      for_steps(0, a.cols, [&](int64_t k, int64_t steps, ProductStart start) {
        const Matrix b_rows = b.part(k, 0, steps, b.cols);
        look_in_loop();
        if (packs(p)) pack_panel(b_rows, p, packed);
        run_tiles(p, {a.at<T>(0, k), a.row_stride, 1}, c.rows, columns_of(b_rows, p, packed, p.width), steps,
                  target(p, 0), start);
      });
    });
  }

  // Runs the steps from `begin` on whose columns are packed at once and stay in the second cache. Rows go through all
  // of these steps before the next rows. A block of steps of a tile's rows stays in the first cache.
  template <class F>
  void by_rows(const Matrix& a, const Matrix& b, const Matrix& c, int64_t begin, const F& target) const {
    const int64_t wide = 2 * micro_.width, all = std::min(packed_steps_, a.cols - begin), end = begin + all;
    T* packed = scratch<T>(Scratch::kMatmulB, all * ((c.cols + wide - 1) / wide * wide), "matmul");
    for_panels(c.cols, [&](const Panel& p) {
      if (packs(p)) pack_panel(b.part(begin, 0, all, b.cols), p, packed + p.at * all);
    });
    for_tiles(c.rows, direct_a_ ? micro_.tile_rows[1] : kRows, [&](int64_t row, int64_t rows) {
      for_steps(begin, end, [&](int64_t k, int64_t steps, ProductStart start) {
        const Matrix b_rows = b.part(k, 0, steps, b.cols);
        const Rows<T> a_rows = rows_of(a.part(row, k, rows, steps));
        look_in_loop();
        for_tiles(rows, micro_.tile_rows[1], [&](int64_t first, int64_t n) {
          const Rows<T> tile = a_rows.tile(first, n);
          // The first panel's tile prefetches the rows of the next tile, which would otherwise arrive too late.
          const int64_t left = direct_a_ ? c.rows - row - first - n : 0;
          const T* ahead[ProductTile<T>::kAhead];
          for (int64_t i = 0; left && i < ProductTile<T>::kAhead; i++) {
            ahead[i] = tile.data + (n + std::min(i, left - 1)) * tile.row;
          }
          for_panels(c.cols, [&](const Panel& p) {
            if (reads_in_place(p)) return;
            const T* panel = packed + p.at * all + (k - begin) * p.width;
            run_tiles(p, tile, n, columns_of(b_rows, p, panel, p.width), steps, target(p, row + first), start,
                      left && p.at == 0 ? ahead : nullptr);
          });
        });
      });
    });
  }

  // Stores the kept results.
  void finish(const T* kept, int64_t kept_row, const Matrix& c) const {
    if (!kept) return;
    if (!direct_c_) return copy_out(micro_, kept, kept_row, c);
    const int64_t wide = 2 * micro_.width, at = (c.cols - 1) / wide * wide;
    copy_out(micro_, kept, kept_row, c.part(0, at, c.rows, c.cols - at));
  }

  // Returns a block of rows of `a` in the form that tiles read. A column-major `a` is packed tile by tile.
  Rows<T> rows_of(const Matrix& a) const {
    if (direct_a_) return {a.at<T>(0, 0), a.row_stride, 1};
    const int64_t step = micro_.product_steps + kGap;
    T* to = scratch<T>(Scratch::kMatmulA, kRows * step, "matmul");
    if (a.rows_lie() || !a.cols_lie()) {
      copy_in(micro_, a, to, step);
      return {to, step, 1};
    }
    if (direct_b_) {  // its tiles begin anew every few steps
      const int64_t row = kFewRows + kGap;
      copy_in(micro_, a.transposed(), to, row);
      return {to, 1, row};
    }
    // Packs a few steps at a time, because tiles share cache lines.
    const int64_t row = a.cols + kGap;
    for (int64_t k = 0; k < a.cols; k += kRowsAtATime) {
      const int64_t steps = std::min(kRowsAtATime, a.cols - k);
      for_tiles(a.rows, micro_.tile_rows[1], [&](int64_t first, int64_t n) {
        copy_in(micro_, a.part(first, k, n, steps).transposed(), to + first * row + k * n, n);
      });
    }
    return {to, row, 0};
  }

  // Returns a block of steps of a panel in the form that tiles read.
  Columns columns_of(const Matrix& b, const Panel& p, const T* packed, int64_t step) const {
    return packs(p) ? Columns{packed, step} : Columns{b.at<T>(0, p.at), b.row_stride};
  }

  // Packs a panel of columns, row after row. The padding of the last vector goes into no result, but it is multiplied.
  // It is zeros, because garbage may be denormal, and some processors take a hundred cycles for such a product.
  void pack_panel(const Matrix& b, const Panel& p, T* to) const {
    if (!p.full()) {
      const int64_t last = p.columns / micro_.width * micro_.width;
      for (int64_t r = 0; r < b.rows; r++) std::fill_n(to + r * p.width + last, p.width - last, T(0));
    }
    copy_in(micro_, b.part(0, p.at, b.rows, p.columns), to, p.width);
  }

  const ConvMicro<T>& micro_;
  const Matrix a_, b_, c_;
  const int64_t most_rows_;  // of a tile that reads `a` in place
  const bool direct_a_;
  const int64_t packed_steps_;  // of `b` at once; with more, an `a` that is packed too would not stay in the cache
  const bool direct_b_, near_b_, direct_c_, panels_first_;
};

// Returns whether a few rows meet columns that are contiguous along their steps. Tiles then read these in place, once.
template <class T>
bool takes_dots(const Matrix& a, const Matrix& b, const Matrix& c) {
  return c.rows <= ConvMicro<T>::kDotsRows && a.cols > 0 && a.holds<T>() && a.rows_lie() && b.holds<T>() &&
         b.cols_lie() && (!b.rows_lie() || b.cols == 1) && c.holds<T>() && c.rows_lie();
}

template <class T>
void run_dots(const ConvMicro<T>& micro, const Matrix& a, const Matrix& b, const Matrix& c) {
  constexpr int64_t kUnseen = kSteps << 10;  // steps between two checks for a stop
  for (int64_t col = 0; col < c.cols; col += micro.width) {
    const int64_t columns = std::min<int64_t>(micro.width, c.cols - col);
    for (int64_t k = 0; k < a.cols; k += kUnseen) {
      look_in_loop();
      micro.dots[c.rows]({a.at<T>(0, k), a.row_stride, b.at<T>(k, col), b.col_stride, columns,
                          std::min(kUnseen, a.cols - k), kSteps, c.at<T>(0, col), c.row_stride, k > 0});
    }
  }
}

// The unit that multiplies bfloat16: registers of float32, AVX-512's products of pairs, or AMX. All give the same bits.
enum class PairEngine : uint8_t { kRegisters, kDots, kTiles };
// Returns the fastest of an instruction set on this processor. The last two take operands that are packed by tiles.
PairEngine pair_engine(ExternIsa isa);

// run_tile_piece computes a piece of a product of bfloat16 by tiles; for AMX, call it between amx::begin and amx::end.
// `packed` is what pack_tile_columns made of all of `b`, or null. tile_cost estimates the cycles for bringing the
// operands and the result into the order of tiles.
void run_tile_piece(PairEngine engine, const Matrix& a, const Matrix& b, const Matrix& c,
                    const uint16_t* packed = nullptr);
double tile_cost(const Matrix& a, const Matrix& b, const Matrix& c);
// Packs columns of `b` from a multiple of kTileColumns on to the place of the first column's tile.
inline constexpr int64_t kTileColumns = 32;
void pack_tile_columns(PairEngine engine, const Matrix& b, uint16_t* to);

// A scope in which this thread uses AMX's tiles.
class Tiles {
 public:
  explicit Tiles(PairEngine engine);
  ~Tiles();
  Tiles(const Tiles&) = delete;

 private:
  const bool used_;
};
// Computes a piece of a product of bfloat16 on any instruction set, by one of its engines.
void run_pair_piece(ExternIsa isa, PairEngine engine, const Matrix& a, const Matrix& b, const Matrix& c,
                    const uint16_t* packed);

}  // namespace lutra::gemm
