// The kernel ABI: position-independent code with one argument, a pointer to a block.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "ops/core/launch_fault.h"

namespace lutra {

// What code that looks whether it shall end calls, by a convention of its own.
using LookFn = void();

// Head of a block; then come `params` pointers, `ints` int64 and `scalars` doubles, 8 bytes each.
// Invariants: no code embeds an address; a block may be copied to give each thread a range of its own.
struct BlockHead {
  int64_t begin = 0, end = 0;   // range of the parallel loop
  uint64_t seed = 0, call = 0;  // random numbers: base call index of this run
  LaunchFault* fault = nullptr;
  union {
    void* stream = nullptr;  // of a GPU
    LookFn* look;            // of a CPU: what code that looks calls (jit/codegen/kernel.h)
  };
  int32_t device = 0;
  int32_t step = 0;  // of a GPU's run: finds a launch again in a recording
  int64_t site = 0;  // what to say when a check fails on a GPU: see ops/cuda/faults.h
};
static_assert(sizeof(BlockHead) == 64);

using KernelFn = void (*)(void* block);

// Published code; immutable, shared by the process. run is native code's entry or, where there is none, what
// run_block does: the interpreter runs, a GPU's code is put on the head's stream (the block is copied).
struct Code {
  virtual ~Code() = default;
  void run(void* block) const { entry ? entry(block) : run_block(block); }
  virtual void run_block(void*) const {}
  // Waits for what is still being compiled.
  virtual void complete() const {}
  KernelFn entry = nullptr;
  size_t bytes = 0;
  std::string listing;  // assembly text when asked for
};

}  // namespace lutra
