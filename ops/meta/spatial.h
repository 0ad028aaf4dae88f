// Shared parts of convolutions and pools: lists of one number a dimension, output sizes, memory formats. A
// one-dimensional form is the two-dimensional one of height 1.
#pragma once
#include <array>

#include "ops/meta/rules.h"

namespace lutra {

using Pair = std::array<int64_t, 2>;  // {h, w}

// Returns a list of `dims` numbers, or of one number for all, as a Pair. In one dimension h is `height`.
Pair pair_of(OpId op, const char* argument, const Value& v, int dims, int64_t height);
inline Sizes sizes_of(const Pair& p) { return {p[0], p[1]}; }

// Returns whether t's channels are innermost, by PyTorch's suggest_memory_format.
bool is_channels_last(const Tensor& t);
// Returns whether t is contiguous in the named memory format.
bool is_contiguous_as(const Tensor& t, const std::string& format);
// Describes a new tensor of 4 dimensions, channels last or contiguous.
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
// Returns the result's sizes of a composite: {n, c, h, w} without the dimensions that the caller's input lacks.
Sizes caller_sizes(const Sizes& sizes, int dims, bool batched);

}  // namespace lutra
