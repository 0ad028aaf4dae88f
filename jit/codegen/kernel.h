// Compiles verified kernels to code (jit/loop/abi.h).
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "jit/device/backend.h"

namespace lutra {

// Compiles for the instruction set target.isa of this machine's CPU. An unknown one is an Error.
std::shared_ptr<Code> compile_kernel(const loop::Kernel& kernel, const KernelTarget& target, bool listing = false);
// The function that the head of a block needs for code that looks (KernelTarget::look_after). Call raise_left() after
// each run.
LookFn* look_entry();
// image_of returns the code's bytes, from which load_kernel makes code in another process; "" if it is not machine
// code.
std::string image_of(const Code& code);
std::shared_ptr<Code> load_kernel(std::string_view image);
// Returns the best instruction set of this machine.
const char* best_isa();

}  // namespace lutra
