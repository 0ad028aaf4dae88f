// Bytes between host and GPUs, and between GPUs.
#pragma once
#include <cstddef>

#include "ops/core/storage.h"
#include "ops/cuda/context.h"

namespace lutra::cuda {

// Pieces of pinned memory that large copies of the host's go through, two a device.
inline constexpr size_t kStagingBytes = size_t(4) << 20;

// Memory of the host that GPUs read and write by themselves; kept for reuse when freed. Throws where there is no GPU.
Ref<Storage> allocate_pinned(size_t nbytes);
bool is_pinned(const void* data);

// What copy_bytes of ops/core/storage.h does where a GPU takes part. Invariants:
// 1. What was copied from the host may be written as soon as it returns: the bytes are in pinned memory by then.
// 2. A copy to the host waits for all work before it and raises what went wrong in that.
void copy(void* to, Device to_device, const void* from, Device from_device, size_t nbytes);

}  // namespace lutra::cuda
