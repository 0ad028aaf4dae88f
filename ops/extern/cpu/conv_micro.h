// The innermost loops of convolutions and products, one table for each element type and instruction set. Every element
// of a result is a chain of fused multiply-adds in the order that the caller lists. So its bits depend neither on the
// tile nor on the instruction set.
#pragma once
#include <cstdint>

#include "ops/core/numerics.h"

namespace lutra {

// A run of a reduction: `length` elements of the image from `a` on, times as many rows of the weights from `b` on.
struct ConvRun {
  int64_t a, length, b;
};

// Computes rows x (vectors * width) results: c[i][n] = start[n] (or c[i][n]) + sum over runs of a[i][j] * b[j][n].
template <class T>
struct ConvTile {
  const T* a;
  int64_t a_step;  // from one row to the next
  const T* b;      // rows of vectors * width elements
  const ConvRun* runs;
  int64_t run_count;
  const T* start;  // vectors * width elements; null: continues from c
  T* c;
  int64_t c_step;
};

// Computes c[i][n] += sum over lines and pixels of a[i] * g[n]: rows of a weight's gradient.
template <class T>
struct ConvOuter {
  const T* a;  // row i at a[i]
  int64_t a_pixel, a_line;
  const T* g;
  int64_t g_pixel, g_line;
  int64_t pixels, lines;
  T* c;
  int64_t c_step;
};

// Computes rows x (vectors * width) results: c[i][n] = sum over j < steps of a[i][j] * b[j][n]. The chain starts with
// zero, or continues from c, or starts with zero and is added to c.
enum class ProductStart : uint8_t { kZero, kGoOn, kAdd };
template <class T>
struct ProductTile {
  const T* a;
  int64_t a_row, a_step;
  const T* b;
  int64_t b_step, steps;
  T* c;
  int64_t c_row;
  ProductStart start;
  // Rows that product_ahead prefetches for later tiles: at step j it fetches ahead[j % kAhead] + j.
  static constexpr int64_t kAhead = 16;
  const T* const* ahead = nullptr;
};

// Computes rows x columns results, with at most a vector of columns: c[i][n] = sums of blocks of `chain` terms a[i][j]
// * b[n][j]. Each block is one chain that starts with zero. There is at least one step and one column. goes_on: adds to
// c.
template <class T>
struct ProductDots {
  const T* a;
  int64_t a_row;
  const T* b;
  int64_t b_row, columns, steps, chain;
  T* c;
  int64_t c_row;
  bool goes_on;
};

// A tap of a depthwise convolution: its place in the image, and its row of the weights.
template <class T>
struct ConvTap {
  const T* a;
  int64_t b;
};

// Computes rows x (vectors * width) results: c[i][n] = start[n] + sum over taps of tap.a[at + i * a_step + n] *
// b[tap.b][n].
template <class T>
struct ConvDepth {
  int64_t at, a_step;
  const T* b;
  const ConvTap<T>* taps;
  int64_t tap_count;
  const T* start;
  T* c;
  int64_t c_step;
};

// Computes rows x width results: c[i][n] += sum over lines and pixels of taps[i].a[at + n] * g[n]. outer.a is not read.
template <class T>
struct ConvDepthOuter {
  ConvOuter<T> outer;
  const ConvTap<T>* taps;
  int64_t at;
};

template <class T>
struct ConvMicro {
  using TileFn = void (*)(const ConvTile<T>&);
  using ProductFn = void (*)(const ProductTile<T>&);
  using DotsFn = void (*)(const ProductDots<T>&);
  using OuterFn = void (*)(const ConvOuter<T>&);
  using SumFn = void (*)(const ConvOuter<T>&);
  // Copies rows x columns elements, at most two vectors a row. Packing pads the last vector with zeros.
  using CopyFn = void (*)(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t rows, int64_t columns);
  // to[j][i] = from[i][j], rows x columns elements of `from`.
  using TransposeFn = void (*)(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t rows, int64_t columns);
  using DepthFn = void (*)(const ConvDepth<T>&);
  using DepthOuterFn = void (*)(const ConvDepthOuter<T>&);
  static constexpr int kMaxRows = 14, kDotsRows = 8;
  int width;                        // elements of a vector
  int tile_rows[3], outer_rows[3];  // the most rows of a tile that is 1, 2, 4 vectors wide; 0: no such tile
  TileFn tile[3][kMaxRows + 1];
  ProductFn product[2][kMaxRows + 1];     // with the same rows as tile
  ProductFn product_ahead[kMaxRows + 1];  // two vectors wide; null if product does the same
  DotsFn dots[kDotsRows + 1];             // indexed by rows
  OuterFn outer[3][kMaxRows + 1];
  SumFn sum[3];  // c[n] += sum of g[n]
  CopyFn pack, copy;
  TransposeFn transpose;
  // Depthwise: the most rows and their tiles; for sums over pixels the most rows are kMaxRows.
  int depth_rows[3];
  DepthFn depth[3][kMaxRows + 1];
  DepthOuterFn depth_outer[kMaxRows + 1];
  // Terms of one sum of `product`. It sums the next terms separately and adds them.
  int64_t product_steps;
};

// Returns the table for T of an instruction set.
enum class ExternIsa : uint8_t;
template <class T>
const ConvMicro<T>& conv_micro(ExternIsa isa);
template <>
const ConvMicro<float>& conv_micro<float>(ExternIsa isa);
template <>
const ConvMicro<double>& conv_micro<double>(ExternIsa isa);

// Returns the same with products of bfloat16 that are stored as float32. An element of such a product is a sum of
// blocks of numerics::kPairBlock terms. A block is the sum of two chains of fused multiply-adds that start with zero.
// One has the terms at even places, the other those at odd ones; zeros fill an incomplete block. Denormal operands and
// results of each step are zeros of their sign. On x86-64 the caller sets that mode (cpu::FlushDenormals). AMX's tiles
// multiply the same way.
const ConvMicro<float>& bfloat16_micro(ExternIsa isa);

namespace conv_avx512 {
extern const ConvMicro<float> kF32, kBFloat16;
extern const ConvMicro<double> kF64;
}  // namespace conv_avx512
namespace conv_avx2 {
extern const ConvMicro<float> kF32, kBFloat16;
extern const ConvMicro<double> kF64;
}  // namespace conv_avx2
namespace conv_plain {
extern const ConvMicro<float> kF32, kBFloat16;
extern const ConvMicro<double> kF64;
}  // namespace conv_plain

}  // namespace lutra
