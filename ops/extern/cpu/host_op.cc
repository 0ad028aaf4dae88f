// Runs a call of a host's op by the host.
#include "ops/extern/host_op.h"

#include "ops/defs/host_op.h"
#include "ops/extern/cpu/kernels.h"

namespace lutra {
namespace {
RunHostOp runner = nullptr;
}

void set_host_op_runner(RunHostOp run) { runner = run; }

void run_host_op(const ExternCall& call) {
  if (!runner) fail(host_op_name(call.strings[0]), ": no host has registered this op");
  runner(call);
}

}  // namespace lutra
