// A verified kernel in, code out (see jit/loop/abi.h for what code is).
#pragma once
#include <memory>
#include <string>

#include "jit/loop/abi.h"
#include "jit/loop/loop.h"

namespace lutra {

// isa: "avx512", "avx2" or "interp" (the exact interpreter of loop IR behind the same call); another is an Error.
std::shared_ptr<Code> compile_kernel(const loop::Kernel& kernel, const std::string& isa, bool listing = false);
// What this machine runs best.
const char* best_isa();

}  // namespace lutra
