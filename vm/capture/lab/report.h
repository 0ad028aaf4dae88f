// Reports of units as Lua tables; each prints as text.
#pragma once
#include "vm/capture/dispatch/unit.h"

struct lua_State;

namespace lutra {

void push_recompiles(lua_State* L, const Unit& unit);
void push_entries(lua_State* L, const Unit& unit);
void push_explanation(lua_State* L, const Unit& unit, int first_result, int results);

}  // namespace lutra
