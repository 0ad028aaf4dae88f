// The payload of a tensor's userdata.
#pragma once
#include "ops/core/tensor.h"

namespace lutra {

// Invariant: magic is &kTensorMagic while the box holds a tensor.
struct TensorBox {
  const void* magic;
  Tensor tensor;
};
extern const char kTensorMagic;

}  // namespace lutra
