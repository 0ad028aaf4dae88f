// Runs portals: the `__call` of numbers and its helpers, ids, and the coexistence with another library's metatable of
// numbers. A call of a number returns the portal's code and results, or behaves as it would without Lutra.
#include "vm/portal/portal.h"

#include <algorithm>
#include <lua.hpp>
#include <new>

#include "ops/core/error.h"
#include "vm/bytecode/analysis.h"
#include "vm/portal/state.h"

namespace lutra {

namespace {

char state_key, own_metatable_key, user_call_key, call_key;

void push_registry(lua_State* L, void* key) {
  lua_pushlightuserdata(L, key);
  lua_rawget(L, LUA_REGISTRYINDEX);
}

// Pops the top value and stores it in the registry.
void set_registry(lua_State* L, void* key) {
  lua_pushlightuserdata(L, key);
  lua_insert(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

int close_state(lua_State* L) {
  // Other finalizers may still call patched functions, so the object stays valid and portals decline.
  auto* s = static_cast<PortalState*>(lua_touserdata(L, 1));
  *s = PortalState{.closed = true, .ids = {}};  // allocates nothing, since nothing destroys it
  return 0;
}

bool calls_from_clone(lua_State* L) {
  lua_Debug ar;
  if (!lua_getstack(L, 1, &ar) || !lua_getinfo(L, "f", &ar)) return false;
  push_table(L, PrototypeTable::kClones);
  lua_insert(L, -2);
  lua_rawget(L, -2);
  const bool found = !lua_isnil(L, -1);
  lua_pop(L, 2);
  return found;
}

// Returns whether the code that apply_patch emitted for it called number `id`.
bool is_portal_call(lua_State* L, PortalState& s, int id) {
  if (id <= -1 && id >= kCallHash) {
    if (!s.mirror) return calls_from_clone(L);
    const uint32_t* ret = mirror::return_pc(L);
    if (id == kCallWide || id == kCallRunPacked) {
      const int low = id == kCallWide ? 2 : 3;
      id = static_cast<int>(lua_tointeger(L, low)) | static_cast<int>(lua_tointeger(L, low + 1)) << 15;
    } else {
      return s.helper_sites.count(ret) != 0;
    }
  }
  if (id < 1 || static_cast<size_t>(id) >= s.ids.size()) return false;
  if (!s.mirror) return calls_from_clone(L);
  const uint32_t* ret = mirror::return_pc(L);
  for (const uint32_t* site : s.ids[id].sites) {
    if (site == ret) return true;
  }
  return false;
}

// Runs portal `id`; its arguments are the whole stack.
int run_portal(lua_State* L, PortalState& s, int id) {
  try {
    return s.run(L, id);
  } catch (const std::exception& e) {
    if (dynamic_cast<const PlacedError*>(&e)) {
      lua_pushliteral(L, "");
    } else {
      luaL_where(L, 1);
    }
    lua_pushstring(L, e.what());
    lua_concat(L, 2);
  }
  return lua_error(L);
}

int table_count(lua_State* L, int table) {
  lua_rawgeti(L, table, 0);
  const int n = static_cast<int>(lua_tointeger(L, -1));
  lua_pop(L, 1);
  return n;
}

// Stack: kCallPush, table or nil, values.
int push_values(lua_State* L) {
  const int top = lua_gettop(L);
  if (lua_isnil(L, 2)) {
    lua_createtable(L, top, 0);
    lua_replace(L, 2);
  }
  const int had = lua_isnil(L, 2) ? 0 : table_count(L, 2);
  for (int i = top; i > 2; --i) lua_rawseti(L, 2, had + i - 2);
  lua_pushinteger(L, had + top - 2);
  lua_rawseti(L, 2, 0);
  return 1;
}

// Stack: kCallFetch, table, first, count. Returns at most `count` values, since LuaJIT writes all that a C function
// returns.
int fetch_values(lua_State* L) {
  const int first = static_cast<int>(lua_tointeger(L, 3));
  const int n = std::min(table_count(L, 2) - first + 1, static_cast<int>(lua_tointeger(L, 4)));
  luaL_checkstack(L, n + 1, "portal");
  for (int i = 0; i < n; ++i) lua_rawgeti(L, 2, first + i);
  return std::max(n, 0);
}

// Fixes the upvalue hashes of the closure at `index`, which an FNEW of the calling function has made.
int hash_made(lua_State* L, const PortalState& s, int index) {
  if (!s.mirror) return 0;
  const mirror::TValue* frame = mirror::previous_frame(mirror::base(L) - 1);
  mirror::push_object(L, mirror::kFunc, mirror::gc_pointer(frame[-1]));
  hash_variables(lua_function(L, index), original_proto(L, -1));
  adopt_newborn(s, lua_function(L, index));
  lua_pop(L, 1);
  return 0;
}

// Stack: kCallShare, a closure that shares upvalues with the frame, a closure, pairs of upvalue indices.
int share_variables(lua_State* L, const PortalState& s) {
  hash_made(L, s, 2);
  for (int i = 4, n = lua_gettop(L); i < n; i += 2) {
    lua_upvaluejoin(L, 3, int(lua_tointeger(L, i)) + 1, 2, int(lua_tointeger(L, i + 1)) + 1);
  }
  return 0;
}

// Replaces the top n values by one table.
void pack_values(lua_State* L, int n) {
  lua_createtable(L, n + 1, 0);
  lua_insert(L, -n - 1);
  const int table = lua_gettop(L) - n;
  for (int i = n; i >= 1; --i) lua_rawseti(L, table, i);
  lua_pushinteger(L, n);
  lua_rawseti(L, table, 0);
}

// Stack: kCallRunPacked, table or nil, low, high, pack results?, varargs.
int run_packed(lua_State* L, PortalState& s) {
  const int id = static_cast<int>(lua_tointeger(L, 3)) | static_cast<int>(lua_tointeger(L, 4)) << 15;
  const bool pack = lua_toboolean(L, 5);
  if (lua_istable(L, 2)) {
    const int n = table_count(L, 2);
    luaL_checkstack(L, n + 1, "portal");
    lua_pushvalue(L, 2);
    for (int i = 1; i <= 5; ++i) lua_remove(L, 1);
    lua_insert(L, 1);
    for (int i = 1; i <= n; ++i) {
      lua_rawgeti(L, 1, i);
      lua_insert(L, 1 + i);
    }
    lua_remove(L, 1);
  } else {
    for (int i = 1; i <= 5; ++i) lua_remove(L, 1);
  }
  const int n = run_portal(L, s, id);
  if (!pack || n <= 1) return n;
  pack_values(L, n - 1);
  return 2;
}

int no_such_call(lua_State* L) {
  std::string name;
  mirror::Caller caller;
  if (mirror::caller_function(L, &caller)) {
    try {
      const bc::Dump dump = bc::parse(raw_dump(L, lua_gettop(L)));
      const bc::Proto& p = dump.top();
      if (caller.pc && caller.pc < p.size()) {
        if (const int slot = bc::callee_slot(p.code[caller.pc]); slot >= 0)
          name = bc::describe(p, caller.pc, unsigned(slot));
      }
    } catch (const std::exception&) {
      name.clear();  // the message is then less precise
    }
  }
  luaL_where(L, 1);
  if (name.empty()) {
    lua_pushliteral(L, "attempt to call a number value");
  } else {
    lua_pushfstring(L, "attempt to call %s (a number value)", name.c_str());
  }
  lua_concat(L, 2);
  return 1;
}

int user_call(lua_State* L) {
  push_registry(L, &user_call_key);
  if (lua_isnil(L, -1)) {
    no_such_call(L);
    return lua_error(L);
  }
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

int number_call(lua_State* L) {
  PortalState& s = *static_cast<PortalState*>(lua_touserdata(L, lua_upvalueindex(1)));
  if (s.closed) return 0;
  const lua_Number number = lua_tonumber(L, 1);
  if (!(number >= static_cast<int>(kCallHash) && number < 1 << 30)) return user_call(L);
  const int id = static_cast<int>(number);
  if (id != number || !is_portal_call(L, s, id)) return user_call(L);
  const ModesScope modes(s.modes.get());
  if (s.mirror) note_thread(L, s);
  if (id > 0) {
    lua_remove(L, 1);
    return run_portal(L, s, id);
  }
  switch (id) {
    case kCallFetch: return fetch_values(L);
    case kCallPush: return push_values(L);
    case kCallShare: return share_variables(L, s);
    case kCallHash: return hash_made(L, s, 2);
    case kCallRunPacked: return run_packed(L, s);
    default: {
      const int wide = static_cast<int>(lua_tointeger(L, 2)) | static_cast<int>(lua_tointeger(L, 3)) << 15;
      for (int i = 0; i < 3; ++i) lua_remove(L, 1);
      return run_portal(L, s, wide);
    }
  }
}

// Puts our __call into the current metatable of numbers, and saves the previous __call in the registry.
void adopt_metatable(lua_State* L) {
  lua_pushinteger(L, 0);
  if (!lua_getmetatable(L, -1)) {
    push_registry(L, &own_metatable_key);
    lua_pushvalue(L, -1);
    lua_setmetatable(L, -3);
  }
  lua_pushliteral(L, "__call");
  lua_rawget(L, -2);
  push_registry(L, &call_key);
  if (lua_rawequal(L, -1, -2)) {
    lua_pop(L, 4);
    return;
  }
  lua_insert(L, -2);
  set_registry(L, &user_call_key);
  lua_pushliteral(L, "__call");
  lua_insert(L, -2);
  lua_rawset(L, -3);
  lua_pop(L, 2);
}

// Restores the previous __call of the metatable of numbers.
void release_metatable(lua_State* L) {
  lua_pushinteger(L, 0);
  if (!lua_getmetatable(L, -1)) {
    lua_pop(L, 1);
    return;
  }
  lua_pushliteral(L, "__call");
  push_registry(L, &user_call_key);
  lua_rawset(L, -3);
  lua_pushnil(L);
  set_registry(L, &user_call_key);
  lua_pop(L, 2);
}

// Implements debug.setmetatable; upvalue 1 is the original.
int set_metatable(lua_State* L) {
  const bool number = lua_type(L, 1) == LUA_TNUMBER && (lua_isnoneornil(L, 2) || lua_istable(L, 2));
  if (number && lua_gettop(L) >= 2) release_metatable(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  if (number) adopt_metatable(L);
  return lua_gettop(L);
}

}  // namespace

PortalState& portal_state(lua_State* L) {
  push_registry(L, &state_key);
  auto* s = static_cast<PortalState*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  if (!s) fail_internal("portals are not installed");
  return *s;
}

void install_number_call(lua_State* L, PortalState* state) {
  lua_pushlightuserdata(L, state);
  lua_pushcclosure(L, number_call, 1);
  set_registry(L, &call_key);
  // Hides our metatable: libraries check a value's metatable for __call to decide whether it can be called.
  lua_createtable(L, 0, 2);
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  set_registry(L, &own_metatable_key);
  adopt_metatable(L);
  if (!push_library(L, "debug")) return;
  lua_getfield(L, -1, "setmetatable");
  lua_pushcclosure(L, set_metatable, 1);
  lua_setfield(L, -2, "setmetatable");
  lua_pop(L, 1);
}

void install_portals(lua_State* L, PortalFn run) {
  luaL_checkstack(L, 20, "portal");
  push_registry(L, &state_key);
  if (auto* s = static_cast<PortalState*>(lua_touserdata(L, -1))) {
    s->run = run;
    lua_pop(L, 1);
    return;
  }
  lua_pop(L, 1);
  auto* s = new (lua_newuserdata(L, sizeof(PortalState))) PortalState();
  s->run = run;
  s->mirror = mirror::available(L);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, close_state);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  set_registry(L, &state_key);
  open_prototypes(L);
  s->modes = modes_of(L);
  if (s->mirror) open_threads(L, *s);
  install_number_call(L, s);
  wrap_string_dump(L);
  wrap_getinfo(L);
  wrap_setfenv(L);
}

int alloc_portal_id(lua_State* L) {
  PortalState& s = portal_state(L);
  int id;
  if (!s.free_ids.empty()) {
    id = s.free_ids.back();
    s.free_ids.pop_back();
  } else {
    id = static_cast<int>(s.ids.size());
    if (id >= 1 << 29) fail("patch: no portal ids left");
    s.ids.emplace_back();
  }
  s.ids[id].used = true;
  return id;
}

void free_portal_id(lua_State* L, int id) {
  PortalState& s = portal_state(L);
  if (id < 1 || static_cast<size_t>(id) >= s.ids.size() || !s.ids[id].used) return;
  s.ids[id].used = false;
  if (s.ids[id].refs == 0) s.free_ids.push_back(id);
}

}  // namespace lutra
