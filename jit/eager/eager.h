// The eager executor. An op on real tensors is compiled as a graph of one node, and cached by op, dtypes and layout
// class.
#pragma once
#include <cstddef>

namespace lutra {

// Returns the number of entries that this thread has compiled for eager ops.
size_t eager_entries();
// Removes them. The next calls make new entries; their kernels come from the process's cache.
void clear_eager();

}  // namespace lutra
