// The registry tables of prototypes, and lookups in them.
#include "vm/mirror/prototypes.h"

#include <iterator>
#include <lua.hpp>

#include "ops/core/error.h"

namespace lutra {

namespace {

char table_keys[static_cast<int>(PrototypeTable::kCount)];
char number_key;  // the last number that prototype_identity returned

int append(lua_State*, const void* p, size_t n, void* ud) {
  static_cast<std::string*>(ud)->append(static_cast<const char*>(p), n);
  return 0;
}

uintptr_t next_number(lua_State* L) {
  lua_pushlightuserdata(L, &number_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  const auto number = static_cast<uintptr_t>(lua_tonumber(L, -1)) + 1;
  lua_pop(L, 1);
  lua_pushlightuserdata(L, &number_key);
  lua_pushnumber(L, static_cast<lua_Number>(number));
  lua_rawset(L, LUA_REGISTRYINDEX);
  return number;
}

}  // namespace

int absolute(lua_State* L, int index) { return index > 0 ? index : lua_gettop(L) + 1 + index; }

void check_lua_function(lua_State* L, int index) {
  if (!lua_isfunction(L, index) || lua_iscfunction(L, index)) fail("patch: a Lua function is needed");
}

mirror::Func* lua_function(lua_State* L, int index) {
  check_lua_function(L, index);
  return static_cast<mirror::Func*>(mirror::object(L, index));
}

std::string raw_dump(lua_State* L, int index) {
  std::string bytes;
  lua_pushvalue(L, index);
  lua_dump(L, append, &bytes);
  lua_pop(L, 1);
  return bytes;
}

void push_weak_table(lua_State* L, const char* mode) {
  lua_newtable(L);
  if (luaL_newmetatable(L, str("lutra weak ", mode).c_str())) {
    lua_pushstring(L, mode);
    lua_setfield(L, -2, "__mode");
  }
  lua_setmetatable(L, -2);
}

void open_prototypes(lua_State* L) {
  for (char& key : table_keys) {
    lua_pushlightuserdata(L, &key);
    push_weak_table(L, "k");
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
}

void push_table(lua_State* L, PrototypeTable table) {
  lua_pushlightuserdata(L, &table_keys[static_cast<int>(table)]);
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (lua_isnil(L, -1)) fail_internal("portals are not installed");
}

void push_anchor(lua_State* L, int index) {
  push_table(L, PrototypeTable::kAnchors);
  lua_pushvalue(L, index);
  lua_rawget(L, -2);
  lua_remove(L, -2);
}

bool push_library(lua_State* L, const char* name) {
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  if (lua_istable(L, -1)) {
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
  }
  if (lua_istable(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

void push_proto(lua_State* L, int index) {
  index = absolute(L, index);
  if (mirror::available(L)) {
    return mirror::push_object(L, mirror::kProto, mirror::proto_of(lua_function(L, index)));
  }
  if (!push_library(L, "jit.util")) return lua_pushvalue(L, index);
  lua_getfield(L, -1, "funcinfo");
  lua_pushvalue(L, index);
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "proto");
  lua_insert(L, -3);
  lua_pop(L, 2);
}

const mirror::Proto* original_proto(lua_State* L, int index) {
  index = absolute(L, index);
  const mirror::Proto* p = mirror::proto_of(lua_function(L, index));
  push_anchor(L, index);
  if (lua_istable(L, -1)) {
    lua_rawgeti(L, -1, 1);
    p = to_proto(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  push_table(L, PrototypeTable::kOriginal);
  mirror::push_object(L, mirror::kProto, p);
  lua_rawget(L, -2);
  if (!lua_isnil(L, -1)) p = to_proto(L, -1);
  lua_pop(L, 2);
  return p;
}

PrototypeTables prototype_tables(lua_State* L) {
  const auto table = [&](PrototypeTable which) {
    push_table(L, which);
    const auto* t = static_cast<const mirror::Tab*>(lua_topointer(L, -1));
    lua_pop(L, 1);
    return t;
  };
  return {table(PrototypeTable::kAnchors), table(PrototypeTable::kOriginal), table(PrototypeTable::kResumed),
          table(PrototypeTable::kIdentity)};
}

double known_identity(const PrototypeTables& tables, const mirror::Func* function) {
  using namespace mirror;
  TValue proto = make_gc(kProto, proto_of(function));
  if (raw_get(tables.resumed, proto).u64 != kNilValue) {
    const TValue own = raw_get(tables.identities, proto);
    return is_number(own) ? number(own) : 0;
  }
  const TValue anchor = raw_get(tables.anchors, make_gc(kFunc, function));
  if (tag(anchor) == kTab) proto = raw_get(static_cast<const Tab*>(gc_pointer(anchor)), make_number(1));
  const TValue original = raw_get(tables.originals, proto);
  const TValue identity = raw_get(tables.identities, original.u64 == kNilValue ? proto : original);
  return is_number(identity) ? number(identity) : 0;
}

bool is_resumed(lua_State* L, int index) {
  index = absolute(L, index);
  push_table(L, PrototypeTable::kResumed);
  push_proto(L, index);
  lua_rawget(L, -2);
  const bool is = lua_toboolean(L, -1);
  lua_pop(L, 2);
  return is;
}

// The identity is a number, not the address: a new prototype may lie at the address of a collected one.
const void* prototype_identity(lua_State* L, int index) {
  index = absolute(L, index);
  if (is_resumed(L, index)) {
    push_proto(L, index);
  } else if (mirror::available(L)) {
    mirror::push_object(L, mirror::kProto, original_proto(L, index));
  } else {
    const int top = lua_gettop(L);
    push_table(L, PrototypeTable::kOriginal);
    push_proto(L, index);
    lua_pushvalue(L, -1);
    lua_rawget(L, top + 1);
    if (lua_isnil(L, -1)) lua_pop(L, 1);
    lua_replace(L, top + 1);
    lua_settop(L, top + 1);
  }
  push_table(L, PrototypeTable::kIdentity);
  lua_insert(L, -2);
  lua_pushvalue(L, -1);
  lua_rawget(L, -3);
  auto number = static_cast<uintptr_t>(lua_tonumber(L, -1));
  lua_pop(L, 1);
  if (number == 0) {
    number = next_number(L);
    lua_pushnumber(L, static_cast<lua_Number>(number));
    lua_rawset(L, -3);
    lua_pop(L, 1);
  } else {
    lua_pop(L, 2);
  }
  return reinterpret_cast<const void*>(number);
}

std::unordered_set<const void*> live_prototypes(lua_State* L) {
  std::unordered_set<const void*> live;
  push_table(L, PrototypeTable::kIdentity);
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    live.insert(reinterpret_cast<const void*>(static_cast<uintptr_t>(lua_tonumber(L, -1))));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return live;
}

void push_original(lua_State* L, int index) {
  const mirror::Proto* original = original_proto(L, index);
  if (luaL_loadstring(L, "")) fail_internal("patch: ", lua_tostring(L, -1));
  lua_function(L, -1)->pc = original->bytecode();
}

bc::Dump dump_function(lua_State* L, int index) {
  index = absolute(L, index);
  check_lua_function(L, index);
  if (mirror::available(L)) {
    push_original(L, index);
    const std::string bytes = raw_dump(L, -1);
    lua_pop(L, 1);
    return bc::parse(bytes);
  }
  push_table(L, PrototypeTable::kClones);
  lua_pushvalue(L, index);
  lua_rawget(L, -2);
  size_t n = 0;
  const char* text = lua_tolstring(L, -1, &n);
  const std::string bytes = text ? std::string(text, n) : raw_dump(L, index);
  lua_pop(L, 2);
  return bc::parse(bytes);
}

}  // namespace lutra
