// A verified kernel in, code out (see jit/loop/abi.h for what code is).
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "jit/device/backend.h"

namespace lutra {

// For the instruction set target.isa of this machine's CPU; an unknown one is an Error.
std::shared_ptr<Code> compile_kernel(const loop::Kernel& kernel, const KernelTarget& target, bool listing = false);
// What the head of a block has for code that looks (KernelTarget::look_after); after a run raise_left() is called.
LookFn* look_entry();
// Its bytes, which load_kernel makes code of in another process; "" where it is no machine code.
std::string image_of(const Code& code);
std::shared_ptr<Code> load_kernel(std::string_view image);
// What this machine runs best.
const char* best_isa();

}  // namespace lutra
