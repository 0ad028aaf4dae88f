// A verified kernel in, code out (see jit/loop/abi.h for what code is).
#pragma once
#include <memory>

#include "jit/device/backend.h"

namespace lutra {

// For the instruction set target.isa of this machine's CPU; an unknown one is an Error.
std::shared_ptr<Code> compile_kernel(const loop::Kernel& kernel, const KernelTarget& target, bool listing = false);
// What this machine runs best.
const char* best_isa();

}  // namespace lutra
