// Whether a Lua value can be called: a function, or an object with __call.
#pragma once
#include <lua.hpp>

namespace lutra {

// Returns false for numbers: their __call is Lutra's own, for portals.
inline bool can_be_called(lua_State* L, int index) {
  if (lua_isfunction(L, index)) return true;
  if (lua_type(L, index) == LUA_TNUMBER || !luaL_getmetafield(L, index, "__call")) return false;
  lua_pop(L, 1);
  return true;
}

}  // namespace lutra
