// The table of compiled functions.
#include "vm/capture/dispatch/compiled.h"

#include <lua.hpp>

#include "vm/capture/dispatch/state.h"
#include "vm/mirror/prototypes.h"

namespace lutra {
namespace {

// The registry key of a weak table from a function (or callable) to the compiled prototype's serial number, or to false
// if the user has unpatched it.
const char kCompiledKey = 0;

void push_compiled_table(lua_State* L) {
  lua_pushlightuserdata(L, const_cast<char*>(&kCompiledKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
}

}  // namespace

void open_compiled(lua_State* L) {
  lua_pushlightuserdata(L, const_cast<char*>(&kCompiledKey));
  push_weak_table(L, "k");
  lua_rawset(L, LUA_REGISTRYINDEX);
}

void remember_compiled(lua_State* L, int index, const CompiledProto& compiled) {
  lua_pushvalue(L, index);
  const int f = lua_gettop(L);
  push_compiled_table(L);
  lua_pushvalue(L, f);
  lua_pushnumber(L, double(compiled.serial));
  lua_rawset(L, -3);
  lua_settop(L, f - 1);
}

void note_unpatched(lua_State* L, int index) {
  push_compiled_table(L);
  lua_pushvalue(L, index);
  lua_pushboolean(L, 0);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

bool was_unpatched(lua_State* L, int index) {
  push_compiled_table(L);
  lua_pushvalue(L, index);
  lua_rawget(L, -2);
  const bool yes = lua_isboolean(L, -1);
  lua_pop(L, 2);
  return yes;
}

void forget_compiled(lua_State* L, int index) {
  lua_pushvalue(L, index);
  push_compiled_table(L);
  lua_insert(L, -2);
  lua_pushnil(L);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

std::shared_ptr<CompiledProto> compiled_proto(lua_State* L, int index) {
  lua_pushvalue(L, index);
  push_compiled_table(L);
  lua_insert(L, -2);
  lua_rawget(L, -2);
  const auto serial = uint64_t(lua_tonumber(L, -1));
  lua_pop(L, 2);
  CaptureState& state = capture_state(L);
  auto it = state.by_serial.find(serial);
  return it == state.by_serial.end() ? nullptr : it->second.lock();
}

}  // namespace lutra
