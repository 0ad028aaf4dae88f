// Opens Lutra in a Lua state: opens its folders in the order of their includes and returns the module table.
#include <lua.hpp>

#include "vm/bind/module.h"
#include "vm/capi/advice.h"
#include "vm/capi/lutra.h"
#include "vm/capture/lab/open.h"
#include "vm/host/runtime.h"
#include "vm/host/stdlib.h"

namespace lutra {
namespace {

const char kModuleKey = 0;

// Sets package.loaded.lutra = module, so that the standard library can require it while it is being opened.
void announce(lua_State* L) {
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  if (lua_istable(L, -1)) {
    lua_pushvalue(L, -2);
    lua_setfield(L, -2, "lutra");
  }
  lua_pop(L, 1);
}

// Loads lt.no_grad, lt.autocast and similar modes, which are written in Lua. Capture has to know them.
void open_modes(lua_State* L) {
  for (const char* name : {"lutra.grad_mode", "lutra.autocast", "lutra.checkpoint"}) {
    if (!push_stdlib_chunk(L, name)) luaL_error(L, "Lutra's standard library has no %s", name);
    lua_pushvalue(L, -2);
    lua_call(L, 1, 0);
  }
}

}  // namespace

int open_lutra(lua_State* L) {
  check_logs();
  lua_settop(L, 0);
  if (make_runtime(L)) {
    open_bindings(L);
    announce(L);
    open_advice(L);
    open_modes(L);
    if (open_capture) open_capture(L);
    lua_settop(L, 1);
    open_stdlib(L, 1);
    lua_pushlightuserdata(L, const_cast<char*>(&kModuleKey));
    lua_pushvalue(L, 1);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  lua_settop(L, 0);
  lua_pushlightuserdata(L, const_cast<char*>(&kModuleKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (lua_isnil(L, -1)) luaL_error(L, "Lutra could not be opened in this state before");
  return 1;
}

}  // namespace lutra

extern "C" int luaopen_lutra(lua_State* L) { return lutra::guarded(L, lutra::open_lutra); }
