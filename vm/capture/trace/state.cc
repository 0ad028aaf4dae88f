// The tracer's table of decoded functions; marks of tensors.
#include "vm/capture/trace/state.h"

#include <lua.hpp>

#include "vm/bind/tensor_userdata.h"
#include "vm/mirror/prototypes.h"

namespace lutra {

void push_weak_table(lua_State* L, const char* mode) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushstring(L, mode);
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
}

int mark_of(const TraceState& state, lua_State* L, const Tensor& t, int dim) {
  if (!state.marks) return 0;
  const int top = lua_gettop(L);
  luaL_checkstack(L, 4, "a mark");
  lua_rawgeti(L, LUA_REGISTRYINDEX, state.marks);
  push_tensor(L, t);
  lua_rawget(L, -2);
  int mark = 0;
  if (lua_istable(L, -1)) {
    lua_rawgeti(L, -1, dim);
    if (!lua_isnil(L, -1)) mark = lua_toboolean(L, -1) ? 1 : -1;
  }
  lua_settop(L, top);
  return mark;
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
