// A verified kernel in, code out (see jit/loop/abi.h for what code is).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "jit/loop/abi.h"
#include "jit/loop/loop.h"
#include "ops/core/device.h"

namespace lutra {

// What code is made for.
struct KernelTarget {
  Device device;
  std::string isa;  // of the CPU: "avx512", "avx2", "arm64"; "interp" and "wide": the interpreters behind the same call
  std::vector<int64_t> hints;  // for a GPU: the integer arguments of a likely launch
  bool several = false;        // and that launches of it stand side by side
  bool at_once = false;        // and that it shall run before it is compiled, by the interpreter of kernels
};
// An unknown isa is an Error, as is a device that cannot be had.
std::shared_ptr<Code> compile_kernel(const loop::Kernel& kernel, const KernelTarget& target, bool listing = false);
// What of the target the code depends on, as text.
std::string target_key(const loop::Kernel& kernel, const KernelTarget& target);
// What this machine runs best.
const char* best_isa();

}  // namespace lutra
