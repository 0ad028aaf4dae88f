// The IDX files of the MNIST family, plain or gzipped.
#pragma once
#include <string>

#include "ops/core/tensor.h"

namespace lutra {

// A tensor with the file's dtype and sizes; errors name the file.
Tensor read_idx(const std::string& path);

}  // namespace lutra
