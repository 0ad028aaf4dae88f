// Compiles verified kernels to published machine code for AArch64.
#pragma once
#include <memory>
#include <string>

#include "jit/loop/abi.h"
#include "jit/loop/loop.h"

namespace lutra::arm64 {

bool runs_here();
// Returns why a kernel cannot be compiled; "" if it can.
std::string refusal(const loop::Kernel& kernel);
std::shared_ptr<Code> compile(const loop::Kernel& kernel, bool listing);

}  // namespace lutra::arm64
