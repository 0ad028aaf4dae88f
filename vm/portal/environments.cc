// setfenv and debug.setfenv that set the environment of all functions that stand for the given one. A frame may run a
// copy of its function, or its rest, and lt.compile returns a function that shares the upvalues of another. LuaJIT
// would set the environment of only one of these.
#include <lua.hpp>

#include "vm/portal/state.h"

namespace lutra {
namespace {

// Pushes the function for which the one at `index` stands. A compiled function stands for the one it was made from, as
// long as that is alive.
void push_root(lua_State* L, int index) {
  push_function_of(L, index);
  push_table(L, PortalTable::kClones);
  const int clones = lua_gettop(L), found = clones - 1;
  for (lua_pushvalue(L, found); lua_rawget(L, clones), !lua_isnil(L, -1); lua_pushvalue(L, found)) {
    lua_replace(L, found);
  }
  lua_settop(L, found);
}

// Sets the environment of those keys of the table that stand for the function at `root`.
void set_members(lua_State* L, PortalTable table, int root, int environment) {
  push_table(L, table);
  const int all = lua_gettop(L), key = all + 1;
  for (lua_pushnil(L); lua_next(L, all); lua_settop(L, key)) {
    push_root(L, key);
    if (!lua_rawequal(L, -1, root)) continue;
    lua_pushvalue(L, environment);
    lua_setfenv(L, key);
  }
  lua_settop(L, all - 1);
}

// Sets the environment of the Lua function at `index`, and of all functions that stand for the same one.
void set_environments(lua_State* L, int index, int environment) {
  luaL_checkstack(L, 20, "setfenv");
  push_root(L, index);
  const int root = lua_gettop(L);
  for (const int function : {index, root}) {
    lua_pushvalue(L, environment);
    lua_setfenv(L, function);
  }
  push_table(L, PortalTable::kSources);
  lua_pushvalue(L, root);
  lua_rawget(L, -2);
  const bool has_members = !lua_isnil(L, -1);
  for (const PortalTable table : {PortalTable::kCopies, PortalTable::kRests, PortalTable::kClones}) {
    if (has_members) set_members(L, table, root, environment);
  }
  lua_settop(L, root - 1);
}

constexpr const char* kRefused = "'setfenv' cannot change environment of given object";

// Implements setfenv(function or level, table), like LuaJIT's own except for the functions whose environment it sets.
int set_function_environment(lua_State* L) {
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 2);
  if (!lua_isfunction(L, 1)) {
    lua_Debug frame;
    const int level = luaL_checkint(L, 1);
    if (level == 0) {
      lua_replace(L, LUA_GLOBALSINDEX);
      return 0;
    }
    if (!lua_getstack(L, level, &frame)) return luaL_argerror(L, 1, "invalid level");
    lua_getinfo(L, "f", &frame);
    lua_replace(L, 1);
  }
  if (lua_iscfunction(L, 1)) return luaL_error(L, kRefused);
  set_environments(L, 1, 2);
  push_function_of(L, 1);
  return 1;
}

// debug.setfenv(object, table)
int set_object_environment(lua_State* L) {
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 2);
  if (lua_isfunction(L, 1) && !lua_iscfunction(L, 1)) {
    set_environments(L, 1, 2);
  } else if (!lua_setfenv(L, 1)) {
    return luaL_error(L, kRefused);
  }
  lua_settop(L, 1);
  return 1;
}

// Replaces setfenv of a library, if it is loaded.
void replace(lua_State* L, const char* library, lua_CFunction by) {
  if (!push_library(L, library)) return;
  lua_pushcfunction(L, by);
  lua_setfield(L, -2, "setfenv");
  lua_pop(L, 1);
}

}  // namespace

void wrap_setfenv(lua_State* L) {
  replace(L, "_G", set_function_environment);
  replace(L, "debug", set_object_environment);
}

}  // namespace lutra
