// A verified kernel in; code that launches it on a GPU out.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "jit/device/machine.h"
#include "jit/loop/abi.h"
#include "jit/loop/loop.h"

namespace lutra::cuda {

struct Context;

struct Grid {
  unsigned blocks[3] = {1, 1, 1}, threads[3] = {1, 1, 1}, shared_bytes = 0;
};

// A kernel as text, and how it is launched.
class KernelSource {
 public:
  virtual ~KernelSource() = default;
  std::string text;   // a whole translation unit
  std::string entry;  // of the __global__ function, which takes the block by value (abi.h)
  // Where asked for and possible: another __global__ function, for up to `most` launches side by side in one. It takes,
  // by value and in words of 8 bytes, their number, at which block of the grid each begins (most words), then their
  // blocks.
  std::string several_entry;
  int most = 1;
  // From the integer arguments of a launch; false where nothing is to be done.
  virtual bool grid(const int64_t* ints, Grid& out) const = 0;
};

// hints: the integer arguments of a likely call. They and the machine choose the mapping, never the result: what is
// generated is right for all arguments and on all machines. A pure function of its arguments.
std::unique_ptr<KernelSource> generate(const loop::Kernel& kernel, std::span<const int64_t> hints,
                                       const Machine& machine, bool several = false);

// What of the hints the text depends on: kernels with equal text and equal class give equal source on one machine.
std::string mapping_class(const loop::Kernel& kernel, std::span<const int64_t> hints, const Machine& machine);

// Published code whose run(block) puts a launch on the head's stream. The block is in host memory and is copied.
//
// While the kernel is being compiled it is not ready: run(block) goes by the interpreter (interpreter.h) then, or waits
// where that would take longer; function and several are not to be looked at.
struct LaunchCode : Code {
  // Throws where compiling fails (background.h).
  virtual bool ready() const = 0;
  // Of a launch: what cuLaunchKernel and a CUDA graph's node need. False where nothing is to be done.
  virtual bool prepare(const void* block, Grid& grid) const = 0;
  void* function = nullptr;  // CUfunction
  void* several = nullptr;   // CUfunction of KernelSource::several_entry, null where there is none
  int most = 1;
  size_t block_bytes = 0;  // of the one parameter
};
// at_once: do not wait for NVRTC where the interpreter takes the kernel.
std::shared_ptr<LaunchCode> compile(const loop::Kernel& kernel, std::span<const int64_t> hints, const Machine& machine,
                                    bool several, bool at_once, Context& c, bool listing);

}  // namespace lutra::cuda
