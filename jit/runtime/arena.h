// Slots of an arena and their sizes in; where each lies, and what is left free at a launch, out.
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
// 2. Offsets are a function of slots, bytes, align and spare alone.
struct ArenaLayout {
  std::vector<size_t> bytes, offsets;  // by slot
  size_t total = 0;
  std::vector<ArenaGap> gaps;  // by launch, where asked for: the largest piece that no slot in use lies in

  // spare: for how many launches more a slot is kept from others, as long as it is little (kMostSpared): launches that
  // may run side by side would wait for each other else.
  void place(const std::vector<ArenaSlot>& slots, size_t align, int32_t spare = 0);
  void find_gap(const std::vector<ArenaSlot>& slots, int32_t launch);
};

}  // namespace lutra
