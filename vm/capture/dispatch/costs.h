// The measured costs and savings of calls, in ms. policy.cc and profit.cc decide by this model.
#pragma once

namespace lutra {

// An op in a segment saves most of a microsecond: the time of its eager call. A call of a portal costs a third of one.
constexpr double kSavedMs = 0.8e-3, kPortalMs = 0.3e-3;
// The time to check whether one entry serves a call.
constexpr double kAskMs = 50e-6;
// The times to run a graph, to continue in a frame above, to rebuild a frame, and to make a closure for a rebuilt
// frame.
constexpr double kRunMs = 0.3e-3, kFrameAboveMs = 0.25e-3, kResumeMs = 0.35e-3, kClosureMs = 1.5e-3;

}  // namespace lutra
