// The kernel ABI (DESIGN decision 12): position-independent code with one argument, a pointer to a block.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace lutra {

// Head of a block; then come `params` pointers, `ints` int64 and `scalars` doubles, 8 bytes each.
// Invariants: no code embeds an address; a block may be copied to give each thread a range of its own.
struct BlockHead {
  int64_t begin = 0, end = 0;   // range of the parallel loop
  uint64_t seed = 0, call = 0;  // random numbers: base call index of this run
  struct LaunchFault* fault = nullptr;
  void* stream = nullptr;  // device stream; null on the CPU
  int32_t device = 0;
  int32_t reserved = 0;
  int64_t pad = 0;
};
static_assert(sizeof(BlockHead) == 64);

// What a failing kCheck reports (the first one wins).
struct LaunchFault {
  int32_t set = 0;
  int32_t arg = 0;  // the integer argument that bounds the index
  int64_t index = 0;
};

using KernelFn = void (*)(void* block);

// Published code; immutable, shared by the process. run is native code's entry or, where there is none, the
// interpreter's.
struct Code {
  virtual ~Code() = default;
  void run(void* block) const { entry ? entry(block) : interpret_block(block); }
  virtual void interpret_block(void*) const {}
  KernelFn entry = nullptr;
  size_t bytes = 0;
  std::string listing;  // assembly text when asked for
};

}  // namespace lutra
