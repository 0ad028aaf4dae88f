// Reports of compiled prototypes as Lua tables; each prints as text.
#pragma once
#include "vm/capture/backward/parts.h"
#include "vm/capture/dispatch/compiled_proto.h"

struct lua_State;

namespace lutra {

// The table of reasons: {id, kind, text, hint} each.
void push_break_rows(lua_State* L);
void push_recompiles(lua_State* L, const CompiledProto& compiled);
void push_entries(lua_State* L, const CompiledProto& compiled);
void push_explanation(lua_State* L, const std::shared_ptr<CompiledProto>& compiled, int first_result, int results);
// What lt.counters() gives.
int push_counters(lua_State* L);
// Of compiled autograd: those compiled after the first `from`.
void push_backwards(lua_State* L, const CompiledBackward& backward, size_t from);

}  // namespace lutra
