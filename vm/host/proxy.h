// Three functions in; a table without fields that reads, writes and lists by them out.
#pragma once

struct lua_State;

namespace lutra {

// get(proxy, key), set(proxy, key, value); all(proxy) is what a call of it gives, since LuaJIT's pairs sees no fields.
void push_proxy(lua_State* L, int (*get)(lua_State*), int (*set)(lua_State*), int (*all)(lua_State*));

}  // namespace lutra
