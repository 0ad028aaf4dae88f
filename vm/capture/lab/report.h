// Reports of units as Lua tables; each prints as text.
#pragma once
#include "vm/capture/backward/parts.h"
#include "vm/capture/dispatch/unit.h"

struct lua_State;

namespace lutra {

// The table of reasons: {id, kind, text, hint} each.
void push_break_rows(lua_State* L);
void push_recompiles(lua_State* L, const Unit& unit);
void push_entries(lua_State* L, const Unit& unit);
void push_explanation(lua_State* L, const Unit& unit, int first_result, int results);
// Of compiled autograd: those compiled after the first `from`.
void push_backwards(lua_State* L, const CompiledBackward& backward, size_t from);

}  // namespace lutra
