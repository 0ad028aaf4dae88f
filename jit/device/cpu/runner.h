// Runs plans on a CPU.
#pragma once
#include "jit/runtime/runner.h"

namespace lutra {

std::unique_ptr<Runner> make_cpu_runner(const FlatPlan& flat);

}  // namespace lutra
