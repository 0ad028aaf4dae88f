// The budget of CPU time of lt.auto: whether it pays for a capture, a compilation or a patch now.
#pragma once
#include "vm/capture/dispatch/compiled_proto.h"

struct lua_State;

namespace lutra {

struct CaptureState;

// Returns whether lt.auto can afford a capture and a patch of `patch_ms` now, and no captured entry waits for its code.
// The capture is expected to take `needs_ms`, or as long as recent ones if that is longer. The sum of these and of what
// lt.auto has spent must be at most what its code has saved plus a small part of the time that has passed.
bool is_affordable(lua_State* L, CaptureState& state, double needs_ms = 0, double patch_ms = 0);
// Begins to compile a captured entry of lt.auto, if that is affordable now. Returns false if it is too early.
bool begins_compiling(lua_State* L, CaptureState& state, Entry& entry);
// Returns whether points that were given up may be reopened: both new bytecode and a capture are affordable. Otherwise
// the points would wait, and be given up again.
bool may_revive(lua_State* L, CaptureState& state, const CompiledProto& compiled);
// Returns how long a capture by lt.auto may take.
double most_capture_ms(const CaptureState& state, const ProtoPoint& point);
// Counts a call that waits because a capture is not affordable. Returns true if so many calls in a row have waited that
// the portal is removed. It comes back when the function is hot and a capture is affordable.
bool waits_long(ProtoPoint& point, CompiledProto& compiled);

}  // namespace lutra
