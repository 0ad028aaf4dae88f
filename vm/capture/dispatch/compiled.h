// The table of compiled functions: which compiled prototype's code a function (or callable) runs.
#pragma once
#include "vm/capture/dispatch/compiled_proto.h"

struct lua_State;

namespace lutra {

// Once a Lua state.
void open_compiled(lua_State* L);
// Remembers that the function at `index` runs the code of compiled prototype (lt.guards, lt.unpatch find it).
void remember_compiled(lua_State* L, int index, const CompiledProto& compiled);
// The user has unpatched it: lt.auto leaves it alone, until it is compiled again on demand.
void note_unpatched(lua_State* L, int index);
void forget_compiled(lua_State* L, int index);
bool was_unpatched(lua_State* L, int index);
// Null where it is not compiled.
std::shared_ptr<CompiledProto> compiled_proto(lua_State* L, int index);

}  // namespace lutra
