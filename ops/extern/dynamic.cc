// Tables of device kernels for ops whose result's shape depends on elements.
#include "ops/extern/dynamic.h"

#include <array>

namespace lutra {
namespace {
std::array<std::span<const DynamicKernel>, kMaxDeviceTypes>& tables() {
  static std::array<std::span<const DynamicKernel>, kMaxDeviceTypes> all;
  return all;
}
}  // namespace

void set_dynamic_table(DeviceType type, std::span<const DynamicKernel> table) { tables()[size_t(type)] = table; }

const DynamicKernel* dynamic_kernel(OpId op, DeviceType device) {
  for (const DynamicKernel& k : tables()[size_t(device)]) {
    if (k.op == op) return &k;
  }
  return nullptr;
}

}  // namespace lutra
