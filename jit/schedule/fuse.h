// Groups compute units. Each group is one launch; groups are in an order in which they can run.
#pragma once
#include <vector>

#include "jit/schedule/decisions.h"
#include "jit/schedule/group_kernel.h"

namespace lutra {

struct Group {
  std::vector<int32_t> units;  // ascending
  std::vector<int32_t> roots;  // those whose values are stored, or that write an input
};

// Invariants: groups form no cycle, even with the order of writes; every group makes a valid kernel, or has a single
// unit.
std::vector<Group> fuse(ComputeUnits& units, bool fuse, Decisions& decisions);

}  // namespace lutra
