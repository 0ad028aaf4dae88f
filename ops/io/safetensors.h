// The safetensors format: a JSON header with names, dtypes, sizes and byte ranges, and the elements.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ops/core/tensor.h"
#include "ops/io/file.h"

namespace lutra {

struct Safetensors {
  std::vector<std::pair<std::string, Tensor>> tensors;        // by name
  std::vector<std::pair<std::string, std::string>> metadata;  // by name
};

Safetensors load_safetensors(const std::string& path);
Safetensors read_safetensors(ByteSource& in);
// The tensors are contiguous and their names differ.
void save_safetensors(const std::string& path, const Safetensors& content);

}  // namespace lutra
