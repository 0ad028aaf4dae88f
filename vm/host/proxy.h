// A table without fields, whose fields three functions read, write and list.
#pragma once

struct lua_State;

namespace lutra {

// Pushes a proxy that calls get(proxy, key) and set(proxy, key, value). Calling the proxy returns all(proxy), since
// LuaJIT's pairs finds no fields in it.
void push_proxy(lua_State* L, int (*get)(lua_State*), int (*set)(lua_State*), int (*all)(lua_State*));

}  // namespace lutra
