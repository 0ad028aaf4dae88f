// The tracer's table of decoded functions; marks of tensors.
#include "vm/capture/trace/state.h"

#include <lua.hpp>

#include "vm/bind/tensor_userdata.h"
#include "vm/mirror/prototypes.h"

namespace lutra {

// A mark is stored for each dimension as a list: the mark's value and the bounds.
Mark mark_of(const TraceState& state, lua_State* L, const Tensor& t, int dim) {
  Mark mark;
  if (!state.marks) return mark;
  const int top = lua_gettop(L);
  luaL_checkstack(L, 4, "a mark");
  lua_rawgeti(L, LUA_REGISTRYINDEX, state.marks);
  push_tensor(L, t);
  lua_rawget(L, -2);
  if (lua_istable(L, -1)) {
    lua_rawgeti(L, -1, dim);
    if (lua_istable(L, -1)) {
      for (int i = 1; i <= 3; i++) lua_rawgeti(L, top + 3, i);
      mark = {int(lua_tonumber(L, -3)), {int64_t(lua_tonumber(L, -2)), int64_t(lua_tonumber(L, -1))}};
    }
  }
  lua_settop(L, top);
  return mark;
}

void set_mark(TraceState& state, lua_State* L, const Tensor& t, int dim, const Mark& mark) {
  const int top = lua_gettop(L);
  luaL_checkstack(L, 6, "a mark");
  if (!state.marks) {
    push_weak_table(L, "k");
    state.marks = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, state.marks);
  push_tensor(L, t);
  lua_rawget(L, top + 1);
  if (lua_isnil(L, -1)) {
    lua_newtable(L);
    push_tensor(L, t);
    lua_pushvalue(L, top + 3);
    lua_rawset(L, top + 1);
    lua_replace(L, top + 2);
  }
  lua_createtable(L, 3, 0);
  int at = 0;
  for (const double value : {double(mark.said), double(mark.bounds.min), double(mark.bounds.max)}) {
    lua_pushnumber(L, value);
    lua_rawseti(L, -2, ++at);
  }
  lua_rawseti(L, top + 2, dim);
  lua_settop(L, top);
}

LuaCode* code_of(TraceState& state, lua_State* L, int index) {
  if (lua_iscfunction(L, index)) return nullptr;
  const void* id = prototype_identity(L, index);
  auto it = state.codes.find(id);
  if (it != state.codes.end()) return it->second.get();
  auto code = decode_function(L, index);
  LuaCode* p = code.get();
  if (p) state.codes[id] = std::move(code);
  return p;
}

}  // namespace lutra
