// Closures that a trace has made and that outlive it in; which variables they share with frames that go on out.
#pragma once
#include <map>
#include <optional>

#include "vm/capture/segment/entry.h"
#include "vm/portal/patch.h"

namespace lutra {

// Whether closures may assign variables of the frame.
bool may_share(const Frame& frame);
// Whether a frame goes on after the segment in which the variable may be assigned. returns: the first frame does not,
// but functions from before the segment may have the variable.
bool is_shared(const Trace& t, bool returns, const Cell* cell);
// By frame and by its children: how a closure gets the variables that it shares with frames. None where no closure that
// the frame could make now has one of them, or where there is no room.
using FrameShares = std::map<const Frame*, std::map<unsigned, Share>>;
std::optional<FrameShares> variables_of_frames(const Trace& t, bool returns, const Closure& closure);
// The frames that the trace has returned from are gone: nobody can give a closure their variables, where closures from
// before the segment have them. The first such frame, as the number of calls up; none: the closure has none.
std::optional<size_t> left_frame_of(const Trace& t, const Closure& closure);
// By place: what the trace has assigned to variables of those frames which such closures may have.
std::vector<std::pair<int, Var*>> left_variables(const Trace& t);
// The variables of the first frame that have gone out of scope since, by slot.
std::map<unsigned, Cell*> closed_variables(const Trace& t);
// Whether the closure has one of them.
bool has_closed_variable(const Trace& t, const Closure& closure);
std::vector<Share> shares_with(const FrameShares& shares, const Frame& frame, int result);
// What shares variables of a frame that is rebuilt: functions of frames further in, which it calls, and closures, which
// it is given. made: of the closures of the entry; before: parameters that precede those of the call.
std::vector<Share> shares_inside(const Frame& frame, size_t before, const std::vector<Recipe>& call,
                                 const std::vector<ResumeFrame>& resumes, const std::vector<FrameShares>& made,
                                 std::vector<Recipe>& closures);

}  // namespace lutra
