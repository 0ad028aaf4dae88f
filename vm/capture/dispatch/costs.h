// What calls cost and save, as measured, in ms: the model by which policy.cc and profit.cc decide.
#pragma once

namespace lutra {

// An op that a segment runs saves most of a microsecond, which its eager call takes. A call of a portal costs a third.
constexpr double kSavedMs = 0.8e-3, kPortalMs = 0.3e-3;
// To ask one entry whether it serves a call.
constexpr double kAskMs = 50e-6;
// The run of a graph, a frame above that the segment goes on in, a frame that is rebuilt, a closure made for one.
constexpr double kRunMs = 0.3e-3, kFrameAboveMs = 0.25e-3, kResumeMs = 0.35e-3, kClosureMs = 1.5e-3;

}  // namespace lutra
