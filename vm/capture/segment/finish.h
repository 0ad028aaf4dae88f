// From a traced segment to an entry: what is live at its end, what it changed, how its frames go on.
#pragma once
#include "vm/capture/dispatch/unit.h"

namespace lutra {

struct SegmentEnd {
  enum Kind : uint8_t { kReturn, kBreak, kLoop } kind = kReturn;
  BreakReason why;
  Vars results;  // kReturn
};

// Fills entry and exit. Throws Restart after changing the trace's decisions where the segment has to end elsewhere.
void finish_segment(Trace& trace, Unit& unit, UnitPoint& point, const SegmentEnd& end, Entry& entry, Exit& exit);

}  // namespace lutra
