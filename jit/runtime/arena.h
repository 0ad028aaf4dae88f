// Places an arena's slots, given their sizes, and finds the free memory at a launch.
#pragma once
#include <cstddef>
#include <vector>

#include "jit/schedule/plan.h"

namespace lutra {

inline size_t align_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

struct ArenaGap {
  size_t offset = 0, bytes = 0;
};

// Invariants:
// 1. Slots that are in use at one launch do not overlap; offsets are multiples of `align`.
// 2. Offsets depend on slots, bytes, align and spare only.
struct ArenaLayout {
  std::vector<size_t> bytes, offsets;  // by slot
  size_t total = 0;
  std::vector<ArenaGap> gaps;  // by launch, if find_gap was called: the largest piece without a slot in use

  // spare: for how many more launches a slot's memory is not given to others, if the slot is small (kMaxSpared).
  // Otherwise launches that may run in parallel would wait for each other.
  void place(const std::vector<ArenaSlot>& slots, size_t align, int32_t spare = 0);
  void find_gap(const std::vector<ArenaSlot>& slots, int32_t launch);
};

}  // namespace lutra
