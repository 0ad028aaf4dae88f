// The table of compiled functions: which unit's code a function (or callable) runs.
#pragma once
#include "vm/capture/dispatch/unit.h"

struct lua_State;

namespace lutra {

// Once a Lua state.
void open_compiled(lua_State* L);
// Remembers that the function at `index` runs the code of unit (lt.guards, lt.unpatch find it).
void remember_compiled(lua_State* L, int index, const Unit& unit);
void forget_compiled(lua_State* L, int index);
// Null where it is not compiled.
std::shared_ptr<Unit> compiled_unit(lua_State* L, int index);

}  // namespace lutra
