// A third kind of device, which one folder adds: memory of its own kind, kernels by the interpreter of loop IR, sort by
// the CPU's library. It counts the work that runs on it. No code in ops or jit knows it.
#pragma once
#include <atomic>
#include <cstdint>

#include "ops/core/device.h"

namespace lutra {

inline constexpr Device kCounting{DeviceType(2), 0};

struct Counts {
  std::atomic<int64_t> compiled, kernels, libraries, allocations;
};
Counts& counts();

}  // namespace lutra
