// Copies bytes between host and GPUs, and between GPUs.
#pragma once
#include <cstddef>

#include "ops/core/storage.h"
#include "ops/cuda/context.h"

namespace lutra::cuda {

// The size of the pinned buffers for large copies from and to the host, two for each device.
inline constexpr size_t kStagingBytes = size_t(4) << 20;

// Allocates host memory that GPUs access directly. It is kept for reuse when freed. Throws if there is no GPU.
Ref<Storage> allocate_pinned(size_t nbytes);
bool is_pinned(const void* data);

// Implements copy_bytes of ops/core/storage.h if a GPU takes part. Invariants:
// 1. When it returns, the host may write the memory that was copied from it: the bytes are in pinned memory by then.
// 2. A copy to the host waits for all earlier work and raises its errors.
void copy(void* to, Device to_device, const void* from, Device from_device, size_t nbytes);

}  // namespace lutra::cuda
