// Printing of tensors as PyTorch does it.
#pragma once
#include <string>

#include "ops/core/tensor.h"

namespace lutra {

std::string format_tensor(const Tensor& t);
// Returns PyTorch's name of the node of an op, such as "AddBackward0"; empty for leaves.
std::string grad_fn_name(const Tensor& t);

}  // namespace lutra
