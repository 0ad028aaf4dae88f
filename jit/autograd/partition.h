// Which values of a forward are saved and which a backward computes again. In: a graph of primitives whose last outputs
// are what backwards read. Out: the cheapest set of values from which these can be had, a minimum cut.
//
// Invariants:
// 1. A value is computed again from kept values only, or from what is computed again: never from memory that somebody
//    else can write. Inputs and outputs are such memory, so of them a copy is kept, which counts as its bytes. Eager
//    allows writes to what it did not save; such a write must not change a gradient.
// 2. What is computed again repeats the forward's own nodes, random ones with their call index: the bits are the same.
// 3. Below a budget of 1, inputs themselves may be kept. Their versions are checked then, so that a write is refused.
#pragma once
#include <vector>

#include "jit/graph/graph.h"

namespace lutra {

// How a copy of a value is made.
inline constexpr OpId kCopyOp = OpId::clone;

struct PartitionOptions {
  double budget = 1;    // the share of all bytes that may be saved; below 1, costly ops are computed again, too
  uint64_t random = 0;  // not 0: for tests, cuts by random weights
};

struct KeptValue {
  Tensor value;  // of the graph; a view only where it is pinned
  bool pinned = false;
  bool copied = false;  // a copy is kept in its place
};

struct Partition {
  std::vector<KeptValue> kept;
  std::vector<int> place;      // by read: the kept value that it is, -1 where it is computed again
  std::vector<size_t> inputs;  // inputs that are read again themselves
  double all_bytes = 0;        // of saving what is read
  double saved_bytes = 0;
  // Of what is read and not saved.
  double recomputed_bytes = 0;
};

// results: how many outputs are the program's; the others are read. pinned: reads that are kept as they are, since the
// program has memory in common with them.
Partition partition(const Graph& graph, size_t results, const std::vector<bool>& pinned,
                    const PartitionOptions& options);

// The value that a view shows a part of; t itself where it is none.
Tensor base_of_views(Tensor t);

}  // namespace lutra
