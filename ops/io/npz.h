// NumPy's .npz format: a zip archive of .npy files.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ops/core/tensor.h"

namespace lutra {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Reads stored and deflated entries, zip64 too. Names are returned without ".npy".
NamedTensors load_npz(const std::string& path);
// Writes stored entries. The tensors must be contiguous and the names different.
void save_npz(const std::string& path, const NamedTensors& tensors);

}  // namespace lutra
