// In: functions whose calls segments leave to Lua. Out: the same functions in bytecode with points of their own. They
// are callbacks of C functions, metamethods, iterators, and callees whose frame cannot be rebuilt.
#pragma once
#include "vm/capture/dispatch/compiled_proto.h"

struct lua_State;

namespace lutra {

// Patches in place the functions in the table at `left_out` (CapturedSegment::left_out), whose calls a segment of
// `caller` has left to Lua.
void compile_callees(CaptureState& state, lua_State* L, CompiledProto& caller, int left_out);
// Makes the function at `index` follow the compiled prototype's newest bytecode, if it was patched when it was made and
// so runs older bytecode.
void follow_newest(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled, int index);
// If a callee's compiled prototype has no live point left, its new closures run the original code: makers no longer
// pass them to the portal.
void retire_callee(CaptureState& state, lua_State* L, CompiledProto& compiled);
// Reopens the points that were given up, of the compiled prototype and of its resume prototypes. Returns whether the
// prototype itself had such points. Only then must its new closures be passed to portals again.
bool revive(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled);
// Reopens the points of the root's callees that were given up, because a callback may become hot. Each interval until
// the next time is four times as long.
void revive_callees(CaptureState& state, lua_State* L, CompiledProto& root);
void release_examples(lua_State* L, CompiledProto& compiled);
// Returns the compiled prototype, then all callees that its segments and those of its callees have left to Lua.
std::vector<std::shared_ptr<CompiledProto>> with_callees(const std::shared_ptr<CompiledProto>& compiled);
// Restores the original code of the functions that a compiled prototype of lt.explain has patched.
void restore_callees(lua_State* L, const std::shared_ptr<CompiledProto>& compiled);

}  // namespace lutra
