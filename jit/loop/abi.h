// The kernel ABI: position-independent code with one argument, a pointer to a block.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "ops/core/launch_fault.h"

namespace lutra {

// The type of the function that code calls to look whether it shall stop. The call has its own convention.
using LookFn = void();

// Head of a block. `params` pointers, `ints` int64 and `scalars` doubles follow it, 8 bytes each.
// Invariants: no code embeds an address; a block may be copied to give each thread its own range.
struct BlockHead {
  int64_t begin = 0, end = 0;   // range of the parallel loop
  uint64_t seed = 0, call = 0;  // random numbers: base call index of this run
  LaunchFault* fault = nullptr;
  union {
    void* stream = nullptr;  // GPU
    LookFn* look;            // CPU: called by code that looks whether it shall stop (jit/codegen/kernel.h)
  };
  int32_t device = 0;
  int32_t step = 0;  // GPU: finds this launch again in a recorded run
  int64_t site = 0;  // GPU: what to report when a check fails, see ops/cuda/faults.h
};
static_assert(sizeof(BlockHead) == 64);

using KernelFn = void (*)(void* block);

// Published code; immutable, shared by the process. entry is the native code. Without an entry, run calls run_block:
// the interpreter runs, or a GPU's code is put on the head's stream (it copies the block).
struct Code {
  virtual ~Code() = default;
  void run(void* block) const { entry ? entry(block) : run_block(block); }
  virtual void run_block(void*) const {}
  // Waits for compilation that is still going on.
  virtual void complete() const {}
  KernelFn entry = nullptr;
  size_t bytes = 0;
  std::string listing;  // assembly text when asked for
};

}  // namespace lutra
