// Where blocks of the CPU's tensors come from: bytes in, fresh memory out.
#pragma once
#include <cstddef>

namespace lutra {

constexpr size_t kBlockAlignment = 64;

// Memory that nobody has; null where there is none. `bytes` is a multiple of the alignment.
void* new_block(size_t bytes);
// p is new_block(bytes).
void free_block(void* p, size_t bytes);

}  // namespace lutra
