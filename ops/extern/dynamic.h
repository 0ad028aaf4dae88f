// Device kernels for ops whose result's shape depends on elements. If a device has no kernel for an op, the CPU's runs
// on copies.
#pragma once
#include <span>

#include "ops/core/tensor.h"
#include "ops/defs/op.h"

namespace lutra {

struct DynamicKernel {
  OpId op;
  Results (*run)(const Args& args);  // takes tensors of the device; waits for it to learn the size
};

void set_dynamic_table(DeviceType type, std::span<const DynamicKernel> table);
const DynamicKernel* dynamic_kernel(OpId op, DeviceType device);  // null: there is none

}  // namespace lutra
