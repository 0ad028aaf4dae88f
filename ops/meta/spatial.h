// What convolutions and pools share: lists of one number a dimension, output sizes, memory formats. One-dimensional
// forms are two-dimensional ones of height 1.
#pragma once
#include <array>

#include "ops/meta/rules.h"

namespace lutra {

using Pair = std::array<int64_t, 2>;  // {h, w}

// A list of `dims` numbers, or one for all; in one dimension h is `height`.
Pair pair_of(OpId op, const char* argument, const Value& v, int dims, int64_t height);
inline Sizes sizes_of(const Pair& p) { return {p[0], p[1]}; }

// t lies with channels innermost, as PyTorch judges it (suggest_memory_format).
bool is_channels_last(const Tensor& t);
// t lies in order, or in that of the memory format named.
bool is_contiguous_as(const Tensor& t, const std::string& format);
// A new tensor of 4 dimensions, channels last or contiguous.
ResultSpec image_spec(const Sizes& sizes, bool channels_last, DType dtype);
Sizes channels_last_strides(const Sizes& sizes);

// A checked call of conv1d, conv2d, conv_transpose1d or conv_transpose2d.
struct ConvCall {
  int dims;
  bool batched, transposed;
  Pair stride, dilation;
  std::array<int64_t, 4> padding;  // top, left, bottom, right
  int64_t groups;
  Sizes out;  // batched, two-dimensional: {n, k, h, w}
};
ConvCall conv_call(OpId op, const Args& args);

// A checked call of a pool.
struct PoolCall {
  int dims;
  bool batched, ceil;
  Pair kernel, stride, padding, dilation;
  SymInt h, w, oh, ow;
};
PoolCall pool_call(OpId op, const Args& args);
// The result's sizes of a composite: sizes {n, c, h, w} without what the caller's input does not have.
Sizes caller_sizes(const Sizes& sizes, int dims, bool batched);

}  // namespace lutra
