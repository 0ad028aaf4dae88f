// Compute units in; groups of units, each of which is one launch, in an order in which they can run, out.
#pragma once
#include <vector>

#include "jit/schedule/decisions.h"
#include "jit/schedule/group_kernel.h"

namespace lutra {

struct Group {
  std::vector<int32_t> units;  // ascending
  std::vector<int32_t> roots;  // those whose values go to memory, or that write an input
};

// Invariants: groups form no cycle, with the order of writes counted; every group builds a kernel or is one unit alone.
std::vector<Group> fuse(ComputeUnits& units, bool fuse, Decisions& decisions);

}  // namespace lutra
