// The table of compiled functions: which compiled prototype's code a function (or callable) runs.
#pragma once
#include "vm/capture/dispatch/compiled_proto.h"

struct lua_State;

namespace lutra {

// Creates the table. Called once for each Lua state.
void open_compiled(lua_State* L);
// Records that the function at `index` runs the compiled prototype's code (for lt.guards and lt.unpatch).
void remember_compiled(lua_State* L, int index, const CompiledProto& compiled);
// Records that the user has unpatched the function. lt.auto leaves it alone until it is compiled on demand again.
void note_unpatched(lua_State* L, int index);
void forget_compiled(lua_State* L, int index);
bool was_unpatched(lua_State* L, int index);
// Returns the compiled prototype whose code the function runs; null if it is not compiled.
std::shared_ptr<CompiledProto> compiled_proto(lua_State* L, int index);

}  // namespace lutra
