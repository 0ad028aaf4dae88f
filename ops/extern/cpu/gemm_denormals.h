// A piece of a product whose operands hold denormal elements, which a processor multiplies a hundred times as slowly as
// others. Such lines (rows of `a`, columns of `b`) are scaled by a power of two before, and the sums are scaled back.
//
// Invariants:
// 1. The steps are cut into the same blocks as elsewhere. Whether a line of a block is scaled depends on its elements
//    alone, so neither pieces nor instruction sets change a bit.
// 2. A sum that is not finite is computed again without a scale, which may have made it overflow.
#pragma once
#include <cstring>
#include <limits>

#include "ops/core/cpu.h"
#include "ops/extern/cpu/gemm_piece.h"

namespace lutra::gemm {

// A scope that knows whether this thread has computed with a denormal operand in it. On x86-64 the processor notes it.
class DenormalFlag {
 public:
  static constexpr bool kKnown = cpu::kX64;
  DenormalFlag() : before_(cpu::float_mode()) { cpu::set_float_mode(before_ & ~kSeen); }
  ~DenormalFlag() { cpu::set_float_mode(cpu::float_mode() | (before_ & kSeen)); }
  DenormalFlag(const DenormalFlag&) = delete;
  static bool is_set() { return cpu::float_mode() & kSeen; }

 private:
  static constexpr unsigned kSeen = 2;
  const unsigned before_;
};

// Works on the bits of a float. Its arithmetic never meets a denormal number.
template <class T>
struct FloatBits {
  using Int = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  static constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
  static constexpr Int kLeastNormal = Int(1) << kMantissa, kMagnitude = std::numeric_limits<Int>::max();
  static constexpr T kUp = T(kLeastNormal), kDown = 1 / kUp;  // of the least denormal number to a normal one
  static Int of(T v) {
    Int bits;
    std::memcpy(&bits, &v, sizeof bits);
    return bits;
  }
  static T from(Int bits) {
    T v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
  }
  static Int is_denormal(Int bits) {
    const Int size = bits & kMagnitude;
    return (size < kLeastNormal) & (size != 0);
  }
  static T scaled(Int bits) {  // without branches
    const Int size = bits & kMagnitude, small = -Int(size < kLeastNormal);
    const T from_normal = from(bits & ~small) * kUp, from_denormal = T(size & small) * std::numeric_limits<T>::min();
    return from(of(from_normal) | of(from_denormal) | (bits & ~kMagnitude));
  }
};

template <class T>
[[gnu::optimize("O3")]] bool has_denormals(const T* line, int64_t n) {
  typename FloatBits<T>::Int any = 0;
  for (int64_t i = 0; i < n; i++) any |= FloatBits<T>::is_denormal(FloatBits<T>::of(line[i]));
  return any != 0;
}

template <class T>
bool has_denormals(const Matrix& m) {
  if (!m.rows_lie() && m.cols_lie()) return has_denormals<T>(m.transposed());
  bool any = false;
  for (int64_t r = 0; r < m.rows && !any; r++) {
    if (m.rows_lie()) {
      any = has_denormals(m.at<T>(r, 0), m.cols);
    } else {
      for (int64_t c = 0; c < m.cols; c++) any |= has_denormals(m.at<T>(r, c), 1);
    }
  }
  return any;
}

template <class T>
[[gnu::optimize("O3")]] void scale_line(T* line, int64_t n) {
  for (int64_t i = 0; i < n; i++) line[i] = FloatBits<T>::scaled(FloatBits<T>::of(line[i]));
}

// Copies rows of m to `to`, scales those with denormal elements, and sets the factor that scales each one's sums back.
template <class T>
Matrix scaled_rows(const ConvMicro<T>& micro, const Matrix& m, T* to, int64_t step, T* factors) {
  copy_in(micro, m, to, step);
  for (int64_t r = 0; r < m.rows; r++) {
    T* line = to + r * step;
    factors[r] = has_denormals(line, m.cols) ? FloatBits<T>::kDown : T(1);
    if (factors[r] != 1) scale_line(line, m.cols);
  }
  return {reinterpret_cast<char*>(to), m.type, sizeof(T), m.rows, m.cols, step, 1};
}

// Computes c = a * b for operands that hold denormal elements.
template <class T>
class DenormalPiece {
 public:
  explicit DenormalPiece(const ConvMicro<T>& micro) : micro_(micro) {}

  void run(const Matrix& a, const Matrix& b, const Matrix& c) const {
    if (!c.rows_lie() && c.cols_lie()) return run(b.transposed(), a.transposed(), c.transposed());
    for (int64_t row = 0; row < c.rows; row += kMost) {
      const int64_t rows = std::min(kMost, c.rows - row);
      for (int64_t col = 0; col < c.cols; col += kMost) {
        const int64_t cols = std::min(kMost, c.cols - col);
        for (int64_t k = 0; k < a.cols; k += micro_.product_steps) {
          const int64_t steps = std::min(micro_.product_steps, a.cols - k);
          block(a.part(row, k, rows, steps), b.part(k, col, steps, cols), c.part(row, col, rows, cols), k > 0);
        }
      }
    }
  }

 private:
  static constexpr int64_t kMost = 256;  // rows and columns of a block

  void block(const Matrix& a, const Matrix& b, const Matrix& c, bool adds) const {
    const int64_t step = micro_.product_steps + kGap;
    T by_row[kMost], by_col[kMost];
    T* a_rows = scratch<T>(Scratch::kMatmulScaledA, kMost * step, "matmul");
    T* b_cols = scratch<T>(Scratch::kMatmulScaledB, kMost * step, "matmul");
    T* sums = scratch<T>(Scratch::kMatmulScaledSums, kMost * kMost, "matmul");
    const Matrix x = scaled_rows(micro_, a, a_rows, step, by_row);
    const Matrix y = scaled_rows(micro_, b.transposed(), b_cols, step, by_col).transposed();
    Piece<T>(micro_, x, y, {reinterpret_cast<char*>(sums), a.type, sizeof(T), c.rows, c.cols, c.cols, 1}).run();
    for (int64_t r = 0; r < c.rows; r++) {
      look_in_loop();
      T* line = sums + r * c.cols;
      if (!scale_back(line, by_row[r], by_col, c.cols)) {
        for (int64_t i = 0; i < c.cols; i++) {
          if (!std::isfinite(line[i])) line[i] = chain(a, b, r, i);
        }
      }
      if (adds)
        for (int64_t i = 0; i < c.cols; i++) *c.at<T>(r, i) += line[i];
      else
        for (int64_t i = 0; i < c.cols; i++) *c.at<T>(r, i) = line[i];
    }
  }

  // Returns whether all results are finite.
  [[gnu::optimize("O3")]] static bool scale_back(T* line, T by_row, const T* by_col, int64_t n) {
    typename FloatBits<T>::Int infinite = 0;
    for (int64_t i = 0; i < n; i++) {
      line[i] *= by_row * by_col[i];
      infinite |= !(std::fabs(line[i]) <= std::numeric_limits<T>::max());
    }
    return infinite == 0;
  }

  static T chain(const Matrix& a, const Matrix& b, int64_t row, int64_t col) {
    T sum = 0;
    for (int64_t k = 0; k < a.cols; k++) sum = std::fma(*a.at<T>(row, k), *b.at<T>(k, col), sum);
    return sum;
  }

  const ConvMicro<T>& micro_;
};

// Runs pieces of one call on this thread. The first piece with denormal operands is seen by the processor's flag, and
// stops; from then on operands are looked through before they are multiplied.
template <class T>
class Pieces {
 public:
  Pieces(const ConvMicro<T>& micro, bool dots) : micro_(micro), dots_(dots) {}

  void run(const Matrix& a, const Matrix& b, const Matrix& c) {
    const bool plain = !a.holds<T>() || !b.holds<T>() || !c.holds<T>();
    if (!plain && !looks_ && !multiply(a, b, c, true)) return;
    if (plain || !(has_denormals<T>(a) || has_denormals<T>(b))) return void(multiply(a, b, c, false));
    DenormalPiece<T>(micro_).run(a, b, c);
  }

 private:
  // Returns whether it stopped.
  bool multiply(const Matrix& a, const Matrix& b, const Matrix& c, bool watches) {
    if (dots_)
      run_dots<T>(micro_, a, b, c);
    else
      Piece<T>(micro_, a, b, c, watches ? DenormalFlag::is_set : nullptr).run();
    looks_ = looks_ || (watches && DenormalFlag::is_set());
    return looks_;
  }

  const ConvMicro<T>& micro_;
  const bool dots_;
  const DenormalFlag flag_;
  bool looks_ = !DenormalFlag::kKnown;
};

}  // namespace lutra::gemm
