// Reports of units as Lua tables; each prints as text.
#pragma once
#include "vm/bind/tensor_userdata.h"
#include "vm/capture/dispatch/unit.h"

namespace lutra {

void push_graph(lua_State* L, const Entry& entry);
void push_recompiles(lua_State* L, const Unit& unit);
void push_entries(lua_State* L, const Unit& unit);
void push_explanation(lua_State* L, const Unit& unit, int first_result, int results);

}  // namespace lutra
