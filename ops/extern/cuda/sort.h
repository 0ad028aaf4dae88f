// Sorting on the GPU: rows of keys with the positions they came from.
#pragma once
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

struct SortedRows {
  uint64_t* keys;  // rows x n, ascending; equal keys in the order of their positions
  uint32_t* positions;
};
// Rows of n keys side by side, n at most 2^31, which differ in their `bits` lowest bits alone. What `keys` holds
// afterwards is not defined.
SortedRows sort_rows(Launcher& l, uint64_t* keys, int64_t rows, int64_t n, int bits);

}  // namespace lutra::cuda
