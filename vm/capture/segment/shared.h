// Closures that a trace has made and that outlive it in; which variables they share with frames that go on out.
#pragma once
#include <map>
#include <optional>

#include "vm/capture/trace/trace.h"
#include "vm/portal/patch.h"

namespace lutra {

// Whether a frame goes on after the segment in which the variable may be assigned. returns: the first frame does not,
// but functions from before the segment may have the variable.
bool is_shared(const Trace& t, bool returns, const Cell* cell);
// By children of the first frame: how a closure gets the variables that it shares with that frame. None where another
// frame has one of them, or where there is no room.
std::optional<std::map<unsigned, Share>> variables_of_frame(const Trace& t, bool returns, const Closure& closure);

}  // namespace lutra
