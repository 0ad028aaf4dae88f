// Gives a tensor other sizes. Its elements keep their places in memory, which grows if it is too small.
#pragma once
#include "ops/core/tensor.h"

namespace lutra {

// Returns the number of elements from the storage's first to the last that sizes and strides reach; 0 if there are
// none.
int64_t extent(SymInt offset, const Sizes& sizes, const Sizes& strides);
// Makes the storage of t large enough for a tensor of these sizes and strides at `offset`. Throws if one is negative.
void reserve(const Tensor& t, SymInt offset, const Sizes& sizes, const Sizes& strides);
// Resizes t. The storage stays the same object, so tensors that share it go on sharing it.
void resize(const Tensor& t, const Sizes& sizes, const Sizes& strides);

}  // namespace lutra
