// A tensor that takes other sizes: its elements keep their places in memory, which grows where it is too small.
#pragma once
#include "ops/core/tensor.h"

namespace lutra {

// The storage stays the same object, so that tensors which share it go on sharing.
void resize(const Tensor& t, const Sizes& sizes, const Sizes& strides);

}  // namespace lutra
