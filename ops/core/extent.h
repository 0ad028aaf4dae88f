// Computes the bytes that sizes and strides span.
#pragma once
#include <cstddef>

#include "ops/core/tensor.h"

namespace lutra {

// Returns the bytes from the first element to the last. Throws if they overflow or a size is negative.
size_t spanned_bytes(const Sizes& sizes, const Sizes& strides, DType dtype);
// Throws if there are more elements than an int64 counts. Strides that are computed by wrapping multiplication would
// hide that.
void check_product(const Sizes& sizes);

}  // namespace lutra
