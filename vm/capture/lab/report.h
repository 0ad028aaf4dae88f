// Reports on compiled prototypes as Lua tables, which print as text.
#pragma once
#include "vm/capture/backward/parts.h"
#include "vm/capture/dispatch/compiled_proto.h"

struct lua_State;

namespace lutra {

// Pushes the table of break reasons, {id, kind, text, hint} each.
void push_break_rows(lua_State* L);
void push_recompiles(lua_State* L, const CompiledProto& compiled);
void push_entries(lua_State* L, const CompiledProto& compiled);
void push_explanation(lua_State* L, const std::shared_ptr<CompiledProto>& compiled, int first_result, int results);
// Implements lt.counters().
int push_counters(lua_State* L);
// Pushes the parts of backwards that compiled autograd has compiled, without the first `from`.
void push_backwards(lua_State* L, const CompiledBackward& backward, size_t from);

}  // namespace lutra
