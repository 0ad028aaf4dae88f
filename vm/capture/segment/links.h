// The frames at a segment's end, from the real one inwards, and which of them can be rebuilt.
#pragma once
#include <string>
#include <vector>

#include "vm/capture/trace/trace.h"

namespace lutra {

struct Link {
  Frame* frame;
  std::vector<const ModeCall*> modes;  // outermost first
  bool expression;
};

std::vector<Link> chain(Trace& t);
// Returns whether the real frame is rebuilt, too, if the trace ends in frames that it called. That is necessary if it
// is in a loop, which bytecode can enter only at its head.
bool leaves_real_frame(Trace& t, const std::vector<Link>& links);
// Keeps the outermost loop that a frame of the trace is unrolling, so that it is not unrolled the next time. Returns
// false if there is none. It skips a loop whose iterations call different functions, since few iterations could run its
// body as one segment. It also skips a loop with few iterations left in a frame that is rebuilt: they become part of
// the code that follows. A loop with which a frame above continues is kept at its second break.
bool keep_a_loop(Trace& t, TraceDecisions& d, bool is_long);
// Returns why the frame cannot be rebuilt; empty if it can. last: it is the innermost frame.
std::string obstacle(Trace& t, const Link& link, bool last);

// Returns the function and arguments of the call instruction at the frame's pc.
Vars call_operands(Trace& t, Frame& f);
// Returns the live slots after the call that the frame is in.
bc::Slots live_behind(const Frame& f);

}  // namespace lutra
