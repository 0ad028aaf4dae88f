// Finds the variables that closures of the trace, which outlive it, share with frames that continue.
#pragma once
#include <map>
#include <optional>

#include "vm/capture/segment/entry.h"
#include "vm/portal/patch.h"

namespace lutra {

// Returns whether closures may assign variables of the frame.
bool may_share(const Frame& frame);
// Returns whether a frame that may assign the variable continues after the segment. returns: the first frame does not
// continue, but functions from before the segment may share the variable.
bool is_shared(const Trace& t, bool returns, const Cell* cell);
// By frame and by its child: how a closure gets the variables that it shares with the frame. variables_of_frames
// returns nullopt if one of the variables is in no closure that a frame could make now, or if there is no room.
using FrameShares = std::map<const Frame*, std::map<unsigned, Share>>;
std::optional<FrameShares> variables_of_frames(const Trace& t, bool returns, const Closure& closure);
// Returns the first frame from which the trace has returned and with which the closure shares variables, as the number
// of calls above; nullopt if there is none. Such a frame no longer exists, so its variables cannot be given to the
// closure if closures from before the segment share them.
std::optional<size_t> left_frame_of(const Trace& t, const Closure& closure);
// Returns, by position, the values that the trace has assigned to variables of those frames that such closures may
// share.
std::vector<std::pair<int, Var*>> left_variables(const Trace& t);
// Returns the variables of the first frame that have gone out of scope, by slot.
std::map<unsigned, Cell*> closed_variables(const Trace& t);
// Returns whether the closure has one of them.
bool has_closed_variable(const Trace& t, const Closure& closure);
std::vector<Share> shares_with(const FrameShares& shares, const Frame& frame, int result);
// Returns the shares of variables of a rebuilt frame: with functions of inner frames, which it calls, and with
// closures, which are passed to it. made: the shares of the entry's closures. before: number of parameters that precede
// those of the call.
std::vector<Share> shares_inside(const Frame& frame, size_t before, const std::vector<Recipe>& call,
                                 const std::vector<ResumeFrame>& resumes, const std::vector<FrameShares>& made,
                                 std::vector<Recipe>& closures);

}  // namespace lutra
