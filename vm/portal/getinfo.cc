// debug.getinfo for frames that run a copy of their function, or its rest: it returns the fields of the function
// itself. LuaJIT would return, for example, the number of parameters of the rest, which are its live slots.
#include <cstring>
#include <lua.hpp>

#include "vm/portal/state.h"

namespace lutra {
namespace {

const char kOriginalKey = 0;  // registry key of LuaJIT's own function

// Pops n arguments, calls LuaJIT's own function with them and pushes its result.
void call_original(lua_State* L, int n) {
  lua_pushlightuserdata(L, const_cast<char*>(&kOriginalKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  lua_insert(L, -n - 1);
  lua_call(L, n, 1);
}

// Pushes the function of the frame at the given level. Returns false and pushes nothing if there is none.
bool push_asked(lua_State* L, lua_State* thread, int at) {
  lua_Debug frame;
  if (!lua_isnumber(L, at)) return false;
  if (!lua_checkstack(thread, 2) || !lua_getstack(thread, int(lua_tointeger(L, at)), &frame)) return false;
  lua_getinfo(thread, "f", &frame);
  if (thread != L) lua_xmove(thread, L, 1);
  return true;
}

// Replaces the fields that `options` select by those of the function at `function`.
void correct(lua_State* L, int info, int function, const char* options) {
  if (strchr(options, 'f')) {
    lua_pushvalue(L, function);
    lua_setfield(L, info, "func");
  }
  static constexpr struct {
    const char *option, *field;
  } kFields[] = {{"u", "nparams"}, {"u", "isvararg"}, {"L", "activelines"}};
  for (const auto& f : kFields) {
    if (!strstr(options, f.option)) continue;
    lua_pushvalue(L, function);
    lua_pushstring(L, f.option);
    call_original(L, 2);
    lua_getfield(L, -1, f.field);
    lua_setfield(L, info, f.field);
    lua_pop(L, 1);
  }
}

int get_info(lua_State* L) {
  lua_State* const thread = lua_isthread(L, 1) ? lua_tothread(L, 1) : L;
  const int at = lua_isthread(L, 1) ? 2 : 1;
  const char* options = luaL_optstring(L, at + 1, "flnSu");
  if (!lua_isnumber(L, at) && !lua_isfunction(L, at)) return luaL_argerror(L, at, "function or level expected");
  if (strspn(options, "SlnufL") != strlen(options)) return luaL_argerror(L, at + 1, "invalid option");
  const int given = lua_gettop(L);
  const bool own = push_asked(L, thread, at);
  const auto level = lua_isnumber(L, at) ? lua_tointeger(L, at) : -1;
  at == 2 ? lua_pushvalue(L, 1) : void(lua_pushthread(L));
  thread == L&& level >= 0 ? lua_pushinteger(L, level + 1) : lua_pushvalue(L, at);  // this function adds one level
  lua_pushstring(L, options);
  call_original(L, 3);
  if (!own || !lua_istable(L, -1)) return 1;
  const int info = lua_gettop(L);
  push_function_of(L, given + 1);
  if (!lua_rawequal(L, given + 1, -1)) correct(L, info, info + 1, options);
  lua_settop(L, info);
  return 1;
}

}  // namespace

void wrap_getinfo(lua_State* L) {
  if (!push_library(L, "debug")) return;
  lua_pushlightuserdata(L, const_cast<char*>(&kOriginalKey));
  lua_getfield(L, -2, "getinfo");
  lua_rawset(L, LUA_REGISTRYINDEX);
  lua_pushcfunction(L, get_info);
  lua_setfield(L, -2, "getinfo");
  lua_pop(L, 1);
}

}  // namespace lutra
