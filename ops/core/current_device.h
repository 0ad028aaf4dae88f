// Who reads the current GPU: code that was captured where it was read runs for that GPU only.
#pragma once
#include <cstdint>

namespace lutra {

// How often this thread has asked which GPU is the current one, itself or by a device named "cuda".
uint64_t current_cuda_index_reads();

}  // namespace lutra
