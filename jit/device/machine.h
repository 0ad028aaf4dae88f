// What one device can do, as far as choices of speed look at it. It is asked of the device, never assumed. No bit of a
// result depends on it: see ops/core/numerics.h for what bits do depend on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace lutra {

struct Machine {
  std::string isa;             // what code is made for: "avx512", "sm_90"
  int64_t processors = 1;      // cores of a CPU, multiprocessors of a GPU
  size_t memory_bytes = 0;     // that tensors may have
  size_t cache_bytes[3] = {};  // of a CPU, nearest first; 0 where it does not say
  size_t shared_bytes = 0;     // of a GPU: that a block of threads may share
};

}  // namespace lutra
