// Sets fields of the table at the top of the Lua stack.
#pragma once
#include <lua.hpp>
#include <string>

namespace lutra {

inline void set_string(lua_State* L, const char* key, const std::string& s) {
  lua_pushlstring(L, s.data(), s.size());
  lua_setfield(L, -2, key);
}
inline void set_number(lua_State* L, const char* key, double d) {
  lua_pushnumber(L, d);
  lua_setfield(L, -2, key);
}

}  // namespace lutra
