// Compiles verified kernels to code that launches them on a GPU.
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

// The most words of 8 bytes that a launch of several kernels takes by value: 4 KB, minus a reserve.
inline constexpr size_t kParameterWords = 508;

// A kernel's source, and how it is launched.
class KernelSource {
 public:
  virtual ~KernelSource() = default;
  std::string text;   // a whole translation unit
  std::string entry;  // name of the __global__ function; it takes the block by value (abi.h)
  // If requested and possible, another __global__ function, for up to `most` parallel launches in one. It takes by
  // value, in up to kParameterWords words: the number of launches, the grid block at which each begins (`most` words),
  // then the launches' argument blocks.
  std::string several_entry;
  int most = 1;
  // Computes the grid from a launch's integer arguments. Returns false if there is nothing to do.
  virtual bool grid(const int64_t* ints, Grid& out) const = 0;
};

// hints: the integer arguments of a likely call. Hints and machine choose the mapping, never the result: the code is
// correct for all arguments and on all machines. This is a pure function of its arguments.
std::unique_ptr<KernelSource> generate(const loop::Kernel& kernel, std::span<const int64_t> hints,
                                       const Machine& machine, bool several = false);

// Returns those properties of the hints on which the source depends: kernels with equal text and equal class give equal
// source on one machine.
std::string mapping_class(const loop::Kernel& kernel, std::span<const int64_t> hints, const Machine& machine);

// Published code whose run(block) puts a launch on the head's stream. The block is in host memory and is copied.
//
// The code is not ready while the kernel is being compiled. Then run(block) uses the interpreter (interpreter.h), or
// waits if interpreting would take longer. Do not read function and several then.
struct LaunchCode : Code {
  // Throws if compiling failed (background.h).
  virtual bool ready() const = 0;
  // Computes what cuLaunchKernel and a CUDA graph's node need for a launch. Returns false if there is nothing to do.
  virtual bool prepare(const void* block, Grid& grid) const = 0;
  void* function = nullptr;  // CUfunction
  void* several = nullptr;   // CUfunction of KernelSource::several_entry, null if there is none
  int most = 1;
  size_t block_bytes = 0;  // of the one parameter
};
// at_once: do not wait for NVRTC if the interpreter can run the kernel.
std::shared_ptr<LaunchCode> compile(const loop::Kernel& kernel, std::span<const int64_t> hints, const Machine& machine,
                                    bool several, bool at_once, Context& c, bool listing);

}  // namespace lutra::cuda
