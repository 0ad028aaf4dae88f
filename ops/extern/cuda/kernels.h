// The candidates of NVIDIA GPUs, one declaration each; table.cc says which op they serve.
#pragma once
#include "ops/extern/extern.h"

namespace lutra::cuda {

// host.cc: the CPU's candidate on copies of the operands. Waits for the GPU, so it cannot be recorded.
void run_on_host(const ExternCall& call);

}  // namespace lutra::cuda
