// Sorts rows of keys on the GPU, with the positions they came from.
#pragma once
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

struct SortedRows {
  uint64_t* keys;  // rows x n, ascending; equal keys are in the order of their positions
  uint32_t* positions;
};
// Sorts contiguous rows of n keys, n at most 2^31. Keys may differ in their `bits` lowest bits only. The content of
// `keys` is undefined afterwards.
SortedRows sort_rows(Launcher& l, uint64_t* keys, int64_t rows, int64_t n, int bits);

}  // namespace lutra::cuda
