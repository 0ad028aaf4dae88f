// Runs a host's ops. The code that knows hosts installs the runner, which raises for an op that this thread's state
// lacks.
#pragma once
#include "ops/extern/extern.h"

namespace lutra {

using RunHostOp = void (*)(const ExternCall& call);
void set_host_op_runner(RunHostOp run);

}  // namespace lutra
