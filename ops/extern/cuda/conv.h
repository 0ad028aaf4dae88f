// What the convolutions of this folder share: the operands of a call, and the text that their sources begin with.
#pragma once
#include "ops/extern/cpu/conv.h"
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

extern const char kConvText[];  // conv_text.cc

// Image, weight and map of a call, whichever of them are results.
struct ConvOperands {
  ExternView x, w, y;
  ConvGeometry g;
};

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
