// The frames at a segment's end in, from the real one inwards; which of them can be rebuilt.
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
// Whether the real frame is rebuilt, too, where the trace ends in frames that it called: it is in a loop, which
// bytecode enters at its head only.
bool leaves_real_frame(Trace& t, const std::vector<Link>& links);
// Keeps the outermost loop that a frame of the trace is unrolling; false where there is none. One whose rounds call
// different functions is left where the trace ends: its body is no segment that many rounds would run. So is one of few
// rounds, in a frame that is rebuilt: what is left of them is a part of what follows. One that a frame above goes on
// with is kept at its second break.
bool keep_a_loop(Trace& t, TraceDecisions& d, bool is_long);
// Why the frame cannot be rebuilt; empty if it can. last: it is the innermost.
std::string obstacle(Trace& t, const Link& link, bool last);

// The function and arguments of the call instruction at the frame's pc.
Vars call_operands(Trace& t, Frame& f);
// Behind the call that the frame is in.
bc::Slots live_behind(const Frame& f);

}  // namespace lutra
