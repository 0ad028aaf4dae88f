// A place in a function and the values of one call in; the frames of a trace out.
#pragma once
#include "vm/capture/segment/capture.h"
#include "vm/capture/trace/trace.h"

namespace lutra {

// Of each slot that comes in; no two alike, as what was learned is kept by them.
std::vector<std::string> argument_names(const bc::Proto& proto, bc::Pc pc, const std::vector<unsigned>& args);
// The frame that the segment begins in.
Frame& first_frame(Trace& t, const SegmentPlace& place, const SegmentCall& call);
// The trace's first frame has given these results to the one `level` calls above where the segment began. That is the
// first frame from here on.
Frame& enter_caller(Trace& t, const CallerPlace& caller, size_t level, Vars results);

}  // namespace lutra
