// A state for one test where `require "lutra"` gives Lutra.
#pragma once

#include "tests/bytecode/lua_state.h"
#include "vm/host/runtime.h"

namespace lutra {

struct LutraState : LuaState {
  explicit LutraState(const std::string& program = "") {
    open_lutra(L);
    lua_getfield(L, LUA_GLOBALSINDEX, "package");
    lua_getfield(L, -1, "loaded");
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, "lutra");
    lua_settop(L, 0);
    run(program);
  }
  // Runs a chunk: its result, a number.
  double number(const std::string& code) {
    run(code);
    const double value = lua_tonumber(L, -1);
    lua_settop(L, 0);
    return value;
  }
};

}  // namespace lutra
