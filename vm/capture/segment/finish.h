// From a traced segment to an entry: what is live at its end, what it changed, how its frames go on.
#pragma once
#include "vm/capture/segment/entry.h"
#include "vm/portal/patch.h"

namespace lutra {

struct SegmentEnd {
  enum Kind : uint8_t { kReturn, kBreak, kLoop } kind = kReturn;
  BreakReason why;
  Vars results;  // kReturn
};

// The body that a frame of the entry needs, one a ResumeFrame.
struct ResumeRequest {
  const LuaCode* code;
  ResumeSpec spec;
  const void* prototype;  // identity of the function's
  bool last;              // the innermost frame
  bool first;             // the real frame
};

// What a segment becomes, beside its entry.
struct Finished {
  Exit exit;
  std::vector<ResumeRequest> resumes;
};

// The slots that come in of the frame in which the segment ends, and the place of the first among all values.
struct Incoming {
  const std::vector<unsigned>& args;
  int first;
};

// Fills entry. Throws Restart after changing the trace's decisions where the segment
// has to end elsewhere.
Finished finish_segment(Trace& trace, const Incoming& incoming, const SegmentEnd& end, Entry& entry);

}  // namespace lutra
