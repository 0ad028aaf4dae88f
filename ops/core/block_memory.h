// Allocates the memory of blocks of the CPU's tensors.
#pragma once
#include <cstddef>

namespace lutra {

constexpr size_t kBlockAlignment = 64;

// Returns fresh memory, or null where there is none. `bytes` is a multiple of kBlockAlignment.
void* new_block(size_t bytes);
// Frees p, which new_block(bytes) returned.
void free_block(void* p, size_t bytes);

}  // namespace lutra
