// The condition of a conditional node of a CUDA graph, set by a kernel.
#pragma once
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

// Enqueues a kernel that sets the condition: it holds if the element at `flag` is not 0, or if it is 0 and `holds` is
// false. `stop`: host memory that makes the condition false if it is not 0, or null.
void set_condition(Device device, uint64_t handle, const void* flag, DType dtype, bool holds, const int32_t* stop);

}  // namespace lutra::cuda
