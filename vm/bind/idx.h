// The IDX files of the MNIST family, plain or gzipped.
#pragma once
#include <string>

#include "ops/core/tensor.h"

namespace lutra {

// Reads a file into a tensor with the file's dtype and sizes. Errors name the file.
Tensor read_idx(const std::string& path);

}  // namespace lutra
