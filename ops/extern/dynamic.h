// Ops whose result's shape depends on elements, by the device's own kernels: a device that has none for an op takes the
// CPU's on copies.
#pragma once
#include <span>

#include "ops/core/tensor.h"
#include "ops/defs/op.h"

namespace lutra {

struct DynamicKernel {
  OpId op;
  Results (*run)(const Args& args);  // tensors of the device; waits for it to learn the size
};

void set_dynamic_table(DeviceType type, std::span<const DynamicKernel> table);
const DynamicKernel* dynamic_kernel(OpId op, DeviceType device);  // null: none

}  // namespace lutra
