// Makes an entry from a traced segment: the live values at its end, its effects, and how its frames continue.
#pragma once
#include "vm/capture/segment/entry.h"
#include "vm/portal/patch.h"

namespace lutra {

struct SegmentEnd {
  enum Kind : uint8_t { kReturn, kBreak, kLoop } kind = kReturn;
  BreakReason why;
  Vars results;  // kReturn
};

// A request for the body of a rebuilt frame, one for each ResumeFrame.
struct ResumeRequest {
  const LuaCode* code;
  ResumeSpec spec;
  const void* prototype;  // identity of the function's prototype
  bool last;              // the innermost frame
  bool first;             // the real frame
};

// The results of finishing a segment, in addition to its entry.
struct Finished {
  Exit exit;
  std::vector<ResumeRequest> resumes;
};

// The passed slots of the frame in which the segment ends, and the index of the first among all passed values.
struct Incoming {
  const std::vector<unsigned>& args;
  int first;
};

// Fills entry. Throws Restart after changing the trace's decisions if the segment has to end elsewhere.
Finished finish_segment(Trace& trace, const Incoming& incoming, const SegmentEnd& end, Entry& entry);

}  // namespace lutra
