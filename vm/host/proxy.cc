// Implements the proxy by a metatable.
#include "vm/host/proxy.h"

#include <lua.hpp>

namespace lutra {

void push_proxy(lua_State* L, int (*get)(lua_State*), int (*set)(lua_State*), int (*all)(lua_State*)) {
  lua_newtable(L);
  lua_createtable(L, 0, 3);
  lua_pushcfunction(L, get);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, set);
  lua_setfield(L, -2, "__newindex");
  lua_pushcfunction(L, all);
  lua_setfield(L, -2, "__call");
  lua_setmetatable(L, -2);
}

}  // namespace lutra
