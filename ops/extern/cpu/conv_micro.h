// The innermost loops of convolutions and products, one table an element type and instruction set.
// Every element of a result is a chain of fused multiply-adds in the order that the caller lists, so its bits depend
// neither on the tile nor on the instruction set.
#pragma once
#include <cstdint>

#include "ops/core/numerics.h"

namespace lutra {

// A stretch of a reduction: `length` elements from `a` on in the image, times as many rows from `b` on in the weights.
struct ConvRun {
  int64_t a, length, b;
};

// rows x (vectors * width) results: c[i][n] = start[n] (or c[i][n]) + sum over runs of a[i][j] * b[j][n].
template <class T>
struct ConvTile {
  const T* a;
  int64_t a_step;  // from one row to the next
  const T* b;      // rows of vectors * width elements
  const ConvRun* runs;
  int64_t run_count;
  const T* start;  // vectors * width elements; null: c goes on
  T* c;
  int64_t c_step;
};

// c[i][n] += sum over lines and pixels of a[i] * g[n]: rows of a weight's gradient.
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

// rows x (vectors * width) results: c[i][n] = sum over j < steps of a[i][j] * b[j][n], which starts with zero; with c,
// whose chain goes on; or with zero, and is added to c.
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
  // What product_ahead fetches for later tiles: at step j from ahead[j % kAhead] + j on.
  static constexpr int64_t kAhead = 16;
  const T* const* ahead = nullptr;
};

// rows x columns results, at most a vector of columns: c[i][n] = sums of blocks of `chain` terms a[i][j] * b[n][j],
// each of which is one chain that starts with zero. Steps and columns are at least one. goes_on: added to what c holds.
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

// A tap of a convolution of each channel with itself: where it lies in the image, and its row of the weights.
template <class T>
struct ConvTap {
  const T* a;
  int64_t b;
};

// rows x (vectors * width) results: c[i][n] = start[n] + sum over taps of tap.a[at + i * a_step + n] * b[tap.b][n].
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

// rows x width results: c[i][n] += sum over lines and pixels of taps[i].a[at + n] * g[n]; outer.a is not read.
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
  // rows x columns elements, of at most two vectors a row. Packing fills up the last vector with zeros.
  using CopyFn = void (*)(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t rows, int64_t columns);
  // to[j][i] = from[i][j], rows x columns elements of `from`.
  using TransposeFn = void (*)(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t rows, int64_t columns);
  using DepthFn = void (*)(const ConvDepth<T>&);
  using DepthOuterFn = void (*)(const ConvDepthOuter<T>&);
  static constexpr int kMostRows = 14, kDotsRows = 8;
  int width;                        // elements of a vector
  int tile_rows[3], outer_rows[3];  // the most rows of a tile that is 1, 2, 4 vectors wide; 0: no such tile
  TileFn tile[3][kMostRows + 1];
  ProductFn product[2][kMostRows + 1];     // as many rows as of tile
  ProductFn product_ahead[kMostRows + 1];  // two vectors wide; null where product does
  DotsFn dots[kDotsRows + 1];              // of as many rows
  OuterFn outer[3][kMostRows + 1];
  SumFn sum[3];  // c[n] += sum of g[n]
  CopyFn pack, copy;
  TransposeFn transpose;
  // Of each channel with itself: the most rows and their tiles, of sums over pixels for kMostRows.
  int depth_rows[3];
  DepthFn depth[3][kMostRows + 1];
  DepthOuterFn depth_outer[kMostRows + 1];
  // Terms of a sum of `product`, which makes one of the next ones and adds it.
  int64_t product_steps;
};

// The table for T of an instruction set.
enum class ExternIsa : uint8_t;
template <class T>
const ConvMicro<T>& conv_micro(ExternIsa isa);
template <>
const ConvMicro<float>& conv_micro<float>(ExternIsa isa);
template <>
const ConvMicro<double>& conv_micro<double>(ExternIsa isa);

// The same, with products of bfloat16 that stand as float32. An element of such a product is a sum of blocks of
// numerics::kPairBlock terms. A block is the sum of two chains of fused multiply-adds that start with zero: one of the
// terms at even places, one of those at odd ones, to which zeros are added where the block is not full. Operands and
// results of each step that are denormal are zeros of their sign. On x86-64 the caller sees to that
// (cpu::FlushDenormals). So do tiles of AMX multiply.
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
