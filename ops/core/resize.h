// A tensor that takes other sizes: its elements keep their places in memory, which grows where it is too small.
#pragma once
#include "ops/core/tensor.h"

namespace lutra {

// Elements from the storage's first to the last that sizes and strides reach; 0 where there are none.
int64_t extent(SymInt offset, const Sizes& sizes, const Sizes& strides);
// Makes the storage of t large enough for a tensor of these sizes and strides from offset on. Throws for negative ones.
void reserve(const Tensor& t, SymInt offset, const Sizes& sizes, const Sizes& strides);
// The storage stays the same object, so that tensors which share it go on sharing.
void resize(const Tensor& t, const Sizes& sizes, const Sizes& strides);

}  // namespace lutra
