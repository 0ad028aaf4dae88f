// NumPy's .npz: a zip archive of .npy files.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ops/core/tensor.h"

namespace lutra {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Stored and deflated entries, zip64 too; names come without ".npy".
NamedTensors load_npz(const std::string& path);
// Stored entries; the tensors are contiguous and the names differ.
void save_npz(const std::string& path, const NamedTensors& tensors);

}  // namespace lutra
