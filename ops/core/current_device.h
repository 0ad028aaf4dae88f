// Counts reads of the current GPU and of the default device. Code that was captured while they were read runs for that
// device only.
#pragma once
#include <cstdint>

#include "ops/core/device.h"

namespace lutra {

// The devices that a Lua state, or a thread without a state, has chosen.
struct DeviceMode {
  int8_t cuda_index = 0;
  Device made_on;
  uint64_t cuda_index_reads = 0, made_on_reads = 0;
};
extern constinit thread_local DeviceMode* installed_device_mode;  // null: the thread's own

// Returns how often this thread has asked which GPU is the current one, directly or by a device named "cuda".
uint64_t current_cuda_index_reads();

// The device of tensors that are made without one. default_device_reads() counts this thread's calls of
// default_device().
Device default_device();
void set_default_device(Device device);
uint64_t default_device_reads();

// A device as guards hold it: a GPU's index, -1 for the CPU.
inline int64_t gpu_index(Device device) { return device.type == DeviceType::kCPU ? -1 : device.index; }

}  // namespace lutra
