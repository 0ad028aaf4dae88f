// Describes a matrix to libraries: it has rows, cols, stride.row and stride.col. It serves the products of every
// device.
#pragma once
#include <algorithm>
#include <cstdint>

namespace lutra {

// Returns whether rows have unit stride and don't overlap. It first replaces the strides of dims of size 1, which mean
// nothing, by fitting ones.
template <class Matrix>
bool make_row_major(Matrix& m) {
  const int64_t col = m.cols == 1 ? 1 : m.stride.col;
  const int64_t row = m.rows == 1 ? std::max<int64_t>(m.cols, 1) : m.stride.row;
  if (col != 1 || row < std::max<int64_t>(m.cols, 1)) return false;
  m.stride.col = col, m.stride.row = row;
  return true;
}

// Whether a matrix is row-major in memory, the transpose of a row-major one, or neither.
enum class Layout { kPlain, kTransposed, kNone };

template <class Matrix>
Layout layout_of(Matrix& m) {
  if (make_row_major(m)) return Layout::kPlain;
  Matrix t = m.transposed();
  if (!make_row_major(t)) return Layout::kNone;
  m = t.transposed();
  return Layout::kTransposed;
}

}  // namespace lutra
