// Decides which values the forward saves and which the backward recomputes. In: a graph of primitives whose last
// outputs are the values that backwards read. Out: the cheapest set of values from which these can be computed, a
// minimum cut.
//
// Invariants:
// 1. A value is recomputed only from kept or recomputed values, never from memory that others can write. Inputs and
//    outputs are such memory, so a copy of them is kept and its bytes are counted. Eager allows writes to tensors that
//    it did not save; such a write must not change a gradient.
// 2. Recomputation repeats the forward's own nodes, random ones with their call index, so the bits are the same.
// 3. Below a budget of 1, inputs themselves may be kept. Their versions are checked then, so a write to one is an
//    error.
#pragma once
#include <vector>

#include "jit/graph/graph.h"

namespace lutra {

// The op that copies a kept value.
inline constexpr OpId kCopyOp = OpId::clone;

struct PartitionOptions {
  double budget = 1;    // the share of all bytes that may be saved; below 1, costly ops may be recomputed, too
  uint64_t random = 0;  // not 0: seed for a random cut, for tests
};

struct KeptValue {
  Tensor value;  // of the graph; a view only if it is pinned
  bool pinned = false;
  bool copied = false;  // a copy is kept instead
};

struct Partition {
  std::vector<KeptValue> kept;
  std::vector<int> place;      // by read: its index in kept, -1 if it is recomputed
  std::vector<size_t> inputs;  // inputs that recomputation reads directly
  double all_bytes = 0;        // the bytes of all values that are read
  double saved_bytes = 0;
  // The bytes of the values that are read but not saved.
  double recomputed_bytes = 0;
};

// results: how many outputs are results of the program; the other outputs are what backwards read. pinned: reads that
// are kept as they are, since they share memory with the program's results.
Partition partition(const Graph& graph, size_t results, const std::vector<bool>& pinned,
                    const PartitionOptions& options);

// Returns the value that a view shows a part of; t itself if t is not a view.
Tensor base_of_views(Tensor t);

}  // namespace lutra
