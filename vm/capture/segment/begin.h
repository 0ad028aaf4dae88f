// Makes the frames of a trace from a place in a function and the values of one call.
#pragma once
#include "vm/capture/segment/capture.h"
#include "vm/capture/trace/trace.h"

namespace lutra {

// Returns a name for each argument slot. The names are unique, since lessons are stored by name.
std::vector<std::string> argument_names(const bc::Proto& proto, bc::Pc pc, const std::vector<unsigned>& args);
// Makes the frame in which the segment begins.
Frame& first_frame(Trace& t, const SegmentPlace& place, const CallValues& call);
// Makes the frame `level` calls above the one where the segment began, to which the trace's first frame has returned
// these results. It is the first frame from here on.
Frame& enter_caller(Trace& t, const CallerPlace& caller, size_t level, Vars results);

}  // namespace lutra
