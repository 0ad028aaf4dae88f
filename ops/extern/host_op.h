// Where a host's ops are run: whoever knows hosts brings it, and raises for an op that this thread's state has not.
#pragma once
#include "ops/extern/extern.h"

namespace lutra {

using RunHostOp = void (*)(const ExternCall& call);
void set_host_op_runner(RunHostOp run);

}  // namespace lutra
