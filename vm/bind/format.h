// Printing of tensors as PyTorch does it.
#pragma once
#include <string>

#include "ops/core/tensor.h"

namespace lutra {

std::string format_tensor(const Tensor& t);
// "AddBackward0": how PyTorch names the node of an op; empty for leaves.
std::string grad_fn_name(const Tensor& t);

}  // namespace lutra
