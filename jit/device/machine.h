// Describes one device as far as choices of speed need it. The values are queried from the device. No bit of a result
// depends on them; see ops/core/numerics.h for what bits depend on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace lutra {

struct Machine {
  std::string isa;             // the target of code: "avx512", "sm_90"
  int64_t processors = 1;      // cores of a CPU, multiprocessors of a GPU
  int64_t threads = 1;         // that a multiprocessor holds at a time; 1 for a core
  size_t registers = 0;        // of a multiprocessor, 4 bytes each
  size_t memory_bytes = 0;     // available for tensors
  size_t cache_bytes[3] = {};  // nearest first; all processors share the third one; 0 if unknown
  size_t shared_bytes = 0;     // of a GPU: that a block of threads can share

  // Values that cannot be queried are constants for the isa, measured on such machines. Bytes a second: of one
  // processor from its caches and from memory, and of all processors from memory. Additions of float32 a second of one
  // processor.
  double cache_rate[3] = {1, 1, 1};
  double processor_rate = 1, memory_rate = 1, add_rate = 1;
  // Seconds: to start a kernel; to share a loop among processors; for a line of memory that was not prefetched; for a
  // load that a thread waits for.
  double launch_seconds = 0, fork_seconds = 0, line_seconds = 0, latency_seconds = 0;
};

}  // namespace lutra
