// What a traced segment shows about the segments after it, and which sizes of its inputs may be 0 and 1.
#pragma once
#include <map>
#include <set>

#include "vm/capture/segment/finish.h"

namespace lutra {

struct SegmentLessons {
  std::map<unsigned, std::set<int>> sizes;  // by slot: dims whose sizes are symbols
  std::set<unsigned> numbers;               // slots: integers that change
  std::set<unsigned> lists;                 // slots: a loop appends to them
  std::set<bc::Pc> fractions;               // heads of loops that count by numbers that may not be whole
};

// Returns the loop, not unrolled, at which a frame of the trace ends; null if there is none.
const bc::Loop* ending_loop(const Frame& frame, const SegmentEnd& end);

// Returns whether it ends before a comparison that decides the number of iterations of a loop.
bool ends_at_comparison(const Frame& frame, const SegmentEnd& end);

SegmentLessons lessons_of(Trace& trace, const SegmentEnd& end);

// Closes the open sizes of which the trace had to know whether they are 0 or 1: such a size is a constant. Throws
// Restart after changing the trace's decisions.
void decide_open_sizes(Trace& trace);

}  // namespace lutra
