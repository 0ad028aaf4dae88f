// The safetensors format: a JSON header with names, dtypes, sizes and byte ranges, then the elements.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ops/core/tensor.h"
#include "ops/io/file.h"

namespace lutra {

struct Safetensors {
  std::vector<std::pair<std::string, Tensor>> tensors;        // sorted by name when read
  std::vector<std::pair<std::string, std::string>> metadata;  // sorted by name when read
};

Safetensors load_safetensors(const std::string& path);
Safetensors read_safetensors(ByteSource& in);
// The tensors must be contiguous and their names different.
void save_safetensors(const std::string& path, const Safetensors& content);

}  // namespace lutra
