// Descriptions of GPUs: of a present one, and of one that code is made for without it.
#pragma once
#include "jit/device/machine.h"

namespace lutra::cuda {

struct Context;

// Describes the context's GPU, by what the driver returned when the context was made.
Machine machine_of(const Context& context);
// Describes a GPU of a capability (90: sm_90) that is not present: the largest one sold with this capability, or with
// the nearest lower one.
Machine stated_machine(int arch = 90);

}  // namespace lutra::cuda
