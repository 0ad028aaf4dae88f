// The condition of a conditional node of a CUDA graph, set by a kernel.
#pragma once
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

// Puts into the device's stream: the condition holds where the element at flag is not 0, or (holds is false) is. stop:
// memory of the host that ends it where it is not 0, or null.
void set_condition(Device device, uint64_t handle, const void* flag, DType dtype, bool holds, const int32_t* stop);

}  // namespace lutra::cuda
