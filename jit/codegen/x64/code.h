// Compiles verified kernels to published machine code.
#pragma once
#include <memory>

#include "jit/loop/abi.h"
#include "jit/loop/loop.h"

namespace lutra::x64 {

enum class Isa : uint8_t { kAvx2, kAvx512 };

// These return true if this machine runs the code for the instruction set.
bool has_avx2();
bool has_avx512();
// look_after: see KernelTarget.
std::shared_ptr<Code> compile(const loop::Kernel& kernel, Isa isa, bool listing, int look_after);
// Returns the function for the block's head, which code that looks calls.
LookFn* look_entry();

}  // namespace lutra::x64
