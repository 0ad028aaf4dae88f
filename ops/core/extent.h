// Bytes behind sizes and strides; what overflows is an error.
#pragma once
#include <cstddef>

#include "ops/core/tensor.h"

namespace lutra {

// From the first element's to the last one's. Throws where they overflow, or a size is negative.
size_t spanned_bytes(const Sizes& sizes, const Sizes& strides, DType dtype);
// Throws where there are more elements than an int64 counts. Strides by wrapping multiplication would hide that.
void check_product(const Sizes& sizes);

}  // namespace lutra
