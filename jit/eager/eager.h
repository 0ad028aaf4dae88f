// The eager executor: an op on real tensors is its one-op graph, compiled once and kept by op, dtypes and layout class.
#pragma once
#include <cstddef>

namespace lutra {

// Entries that this thread has compiled for eager ops.
size_t eager_entries();
// Forgets them; the next calls compile anew (their kernels come from the process's cache).
void clear_eager();

}  // namespace lutra
