// Descriptions of GPUs: of one that is there, and of one that code is made for elsewhere.
#pragma once
#include "jit/device/machine.h"

namespace lutra::cuda {

struct Context;

// Asked of the driver when the context was made.
Machine machine_of(const Context& context);
// For a capability (90: sm_90) where no GPU is there to be asked: the largest one sold of it, or of the nearest below.
Machine stated_machine(int arch = 90);

}  // namespace lutra::cuda
