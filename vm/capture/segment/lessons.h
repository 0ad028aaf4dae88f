// What a traced segment tells of those behind it, and which sizes of its inputs may be 0 and 1.
#pragma once
#include <map>
#include <set>

#include "vm/capture/segment/finish.h"

namespace lutra {

struct SegmentLessons {
  std::map<unsigned, std::set<int>> sizes;  // by slot: dims that are symbols
  std::set<unsigned> numbers;               // slots: integers that change
  std::set<unsigned> lists;                 // slots: a loop appends to them
  std::set<unsigned> open;                  // slots whose first size may be 0 and 1, too
  std::set<bc::Pc> fractions;               // heads of loops that count by numbers that may not be whole
};

// The loop, not unrolled, that a frame of the trace ends at; null where it ends at none.
const bc::Loop* ending_loop(const Frame& frame, const SegmentEnd& end);

// Whether it ends before a comparison that decides how often a loop comes round.
bool ends_at_comparison(const Frame& frame, const SegmentEnd& end);

SegmentLessons lessons_of(Trace& trace, const SegmentEnd& end);

// A first size may be 0 and 1 where a loop that is not unrolled ends by it. Elsewhere 0 and 1 are no symbols. Throws
// Restart after changing the trace's decisions.
void decide_open_sizes(Trace& trace, const SegmentEnd& end);

}  // namespace lutra
