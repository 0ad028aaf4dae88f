// Shared parts of this folder's convolutions: the operands of a call, and the text that their sources begin with.
#pragma once
#include "ops/extern/cpu/conv.h"
#include "ops/extern/cuda/cublaslt.h"
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

extern const char kConvText[];  // conv_text.cc

// Image, weight and map of a call, whether they are operands or results.
struct ConvOperands {
  ExternView x, w, y;
  ConvGeometry g;
};

// Returns whether a convolution is a matrix product over single pixels, with channels of whole 16 bytes. cuBLASLt
// computes it if it was found.
inline bool is_pixel_product(const ConvGeometry& g, DType dtype) {
  const int64_t whole = size_of(dtype) == 2 ? 8 : 4;
  return g.kh == 1 && g.kw == 1 && g.sh == 1 && g.sw == 1 && g.ph == 0 && g.pw == 0 && g.groups == 1 &&
         g.c % whole == 0 && g.k % whole == 0 && cublaslt_available();
}

inline ConvOperands conv_operands(const ExternCall& call) {
  const bool forward = call.op == OpId::convolution;
  ConvOperands o;
  if (forward) o.x = call.in[0], o.w = call.in[1], o.y = call.out[0];
  if (call.op == OpId::convolution_input) o.y = call.in[0], o.w = call.in[1], o.x = call.out[0];
  if (call.op == OpId::convolution_weight) o.y = call.in[0], o.x = call.in[1], o.w = call.out[0];
  o.g = conv_geometry(o.x, o.w, o.y, call.ints.subspan(forward ? 0 : 4));
  return o;
}

}  // namespace lutra::cuda
