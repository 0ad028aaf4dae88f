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
  int64_t threads = 1;         // that a multiprocessor holds at a time; a core's is one
  size_t registers = 0;        // of 4 bytes, that a multiprocessor has
  size_t memory_bytes = 0;     // that tensors may have
  size_t cache_bytes[3] = {};  // nearest first; the third is shared by all processors; 0 where it does not say
  size_t shared_bytes = 0;     // of a GPU: that a block of threads may share

  // What a machine cannot be asked is stated for its isa, as measured on such ones. Bytes a second: of one processor
  // from its caches and from memory, and of all from memory; additions of float32 a second of one processor.
  double cache_rate[3] = {1, 1, 1};
  double processor_rate = 1, memory_rate = 1, add_rate = 1;
  // Seconds: to begin a kernel; to share a loop among processors; for a line of memory that nothing has brought ahead;
  // a load that a thread waits for.
  double launch_seconds = 0, fork_seconds = 0, line_seconds = 0, latency_seconds = 0;
};

}  // namespace lutra
