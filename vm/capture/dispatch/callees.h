// Functions that segments leave to Lua in, the same functions in bytecode with points of their own out: what C calls, a
// metamethod, an iterator, a callee whose frame cannot be rebuilt.
#pragma once
#include "vm/capture/dispatch/compiled_proto.h"

struct lua_State;

namespace lutra {

// The functions that a segment of the caller has left out (CapturedSegment::left_out) are patched in place.
void compile_callees(CaptureState& state, lua_State* L, CompiledProto& caller, int left_out);
// A function that was born patched, the one at `index`, runs older bytecode than the compiled prototype's newest.
void follow_newest(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled, int index);
// Where the compiled prototype of a callee has no point left, nobody shows its closures to the portal any more.
void retire_callee(CaptureState& state, lua_State* L, CompiledProto& compiled);
// Points of a compiled prototype that were given up are asked again, those of its rests as well. Whether the prototype
// has such itself: for those of its rests alone nobody has to be shown to portals again.
bool revive(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled);
// Likewise of callees, ever less often: a callback may become hot.
void revive_callees(CaptureState& state, lua_State* L, CompiledProto& root);
void release_examples(lua_State* L, CompiledProto& compiled);
// All that the compiled prototype's segments and theirs have left to Lua, itself first.
std::vector<std::shared_ptr<CompiledProto>> with_callees(const std::shared_ptr<CompiledProto>& compiled);
// The functions that a compiled prototype of explain has patched run their original code again.
void restore_callees(lua_State* L, const std::shared_ptr<CompiledProto>& compiled);

}  // namespace lutra
