// Anchors of Lua values: the registry's tables, and the environments of userdata.
#include "vm/bind/anchor.h"

#include <lua.hpp>

#include "vm/bind/userdata.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

const char kValuesKey = 0, kHeldKey = 0, kOwnKey = 0;

// Pushes the registry's table under key, made on first use with weak mode `mode`.
void push_table_of(lua_State* L, const char* key, const char* mode) {
  lua_pushlightuserdata(L, const_cast<char*>(key));
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_newtable(L);
  if (*mode) {
    lua_createtable(L, 0, 1);
    lua_pushstring(L, mode);
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
  }
  lua_pushlightuserdata(L, const_cast<char*>(key));
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}
void push_values(lua_State* L) { push_table_of(L, &kValuesKey, "v"); }
void push_held(lua_State* L) { push_table_of(L, &kHeldKey, ""); }

// Pushes the environment of the userdata at the top. Its first anchor gives it an environment of its own.
void push_environment(lua_State* L) {
  lua_getfenv(L, -1);
  lua_pushlightuserdata(L, const_cast<char*>(&kOwnKey));
  lua_rawget(L, -2);
  const bool own = lua_toboolean(L, -1);
  lua_pop(L, 1);
  if (own) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushlightuserdata(L, const_cast<char*>(&kOwnKey));
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  lua_pushvalue(L, -1);
  lua_setfenv(L, -3);
}

}  // namespace

Anchor::Anchor(lua_State* L) : L_(runtime(L).L), alive_(runtime_alive(L)) {
  push_held(L);
  lua_pushvalue(L, -2);
  id_ = luaL_ref(L, -2);
  lua_pop(L, 1);
  push_values(L);
  lua_pushvalue(L, -2);
  lua_rawseti(L, -2, id_);
  lua_pop(L, 1);
}

void Anchor::drop() {
  if (!usable()) return;
  push_values(L_);
  lua_pushnil(L_);
  lua_rawseti(L_, -2, id_);
  push_held(L_);
  luaL_unref(L_, -1, id_);
  lua_pop(L_, 2);
  id_ = LUA_NOREF;
}

bool Anchor::usable() const {
  const auto live = alive_.lock();
  return live && *live && id_ != LUA_NOREF && lua_checkstack(L_, 6);
}

bool Anchor::is_of(lua_State* L) const { return usable() && runtime(L).L == L_; }

void Anchor::push(lua_State* L) const {
  push_values(L);
  lua_rawgeti(L, -1, id_);
  lua_remove(L, -2);
}

// Setting an existing key to another value allocates no memory.
void Anchor::hold(bool held) {
  if (!usable()) return;
  push_held(L_);
  held ? push(L_) : lua_pushboolean(L_, 0);
  lua_rawseti(L_, -2, id_);
  lua_pop(L_, 1);
}

void Anchor::put_into_environment(lua_State* L) const {
  push_environment(L);
  push(L);
  lua_rawseti(L, -2, id_);
  lua_pop(L, 1);
}

void Anchor::take_from_environment(const TensorImpl* t) const {
  push_known_tensor(L_, t);
  if (!lua_isnil(L_, -1)) {
    push_environment(L_);
    lua_pushnil(L_);
    lua_rawseti(L_, -2, id_);
    lua_pop(L_, 1);
  }
  lua_pop(L_, 1);
}

}  // namespace lutra
