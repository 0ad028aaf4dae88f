// Checks that global_State agrees with the public API. It reads only inside the struct, and through pointers that it
// has already verified.
#include "vm/mirror/global.h"

#include <lua.hpp>

#include "vm/mirror/prototypes.h"

namespace lutra::mirror {
namespace {

const void* interned(lua_State* L, const char* text) {
  lua_pushstring(L, text);
  const void* at = lua_topointer(L, -1);
  lua_pop(L, 1);
  return at;
}

const void* metatable_of_top(lua_State* L) {
  const void* at = lua_getmetatable(L, -1) ? lua_topointer(L, -1) : nullptr;
  lua_pop(L, at ? 2 : 1);
  return at;
}

bool are_roots_known(lua_State* L, const Global& g) {
  constexpr int kNames = 22, kText = kNames + 4, kNumber = kNames + 13, kOutput = kNumber + 2;
  if (g.roots[2] != interned(L, "__gc") || g.roots[3] != interned(L, "__mode")) return false;
  if (g.roots[kNames - 1] != interned(L, "__ipairs")) return false;
  lua_pushliteral(L, "");
  if (g.roots[kText] != metatable_of_top(L)) return false;
  lua_pushinteger(L, 1);
  if (g.roots[kNumber] != metatable_of_top(L)) return false;
  if (!push_library(L, "io")) return true;
  bool same = true;
  lua_getfield(L, -1, "output");
  if (lua_iscfunction(L, -1) && lua_pcall(L, 0, 1, 0) == 0 && lua_isuserdata(L, -1)) {
    same = g.roots[kOutput] == object(L, -1);
  }
  lua_pop(L, 2);
  return same;
}

bool are_settings_known(lua_State* L, Global& g) {
  const uint64_t total = uint64_t(lua_gc(L, LUA_GCCOUNT, 0)) * 1024 + uint64_t(lua_gc(L, LUA_GCCOUNTB, 0));
  if (g.total != total || g.state > kFinalize) return false;
  const int pause = lua_gc(L, LUA_GCSETPAUSE, 173), pace = lua_gc(L, LUA_GCSETSTEPMUL, 179);
  const bool same = g.pause == 173 && g.stepmul == 179;
  lua_gc(L, LUA_GCSETPAUSE, pause);
  lua_gc(L, LUA_GCSETSTEPMUL, pace);
  if (!same) return false;
  const uint64_t threshold = g.threshold;
  if ((threshold == kStopped) == (lua_gc(L, LUA_GCISRUNNING, 0) != 0)) return false;
  lua_gc(L, LUA_GCSTOP, 0);
  if (g.threshold != kStopped) return lua_gc(L, LUA_GCRESTART, -1), false;
  g.threshold = threshold;
  return true;
}

// Called as f(function with one open upvalue). Returns whether the ring of open upvalues begins with that one.
int check_ring(lua_State* L) {
  const auto* f = static_cast<const Func*>(lua_topointer(L, 1));
  lua_pushboolean(L, !f->upvalues[0]->closed && gc_pointer(f->upvalues[0]->tv) == &global(L).uvhead);
  return 1;
}

bool is_ring_known(lua_State* L) {
  constexpr char kProbe[] = "local check = ...; local v; local ok = check(function() return v end); v = 1; return ok";
  if (luaL_loadbuffer(L, kProbe, sizeof kProbe - 1, "=lutra mirror")) return lua_pop(L, 1), false;
  lua_pushcfunction(L, check_ring);
  lua_call(L, 1, 1);
  const bool known = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return known;
}

// Checks the JIT flag against jit.status(), which returns whether the compiler is on.
bool is_mode_known(lua_State* L, const Global& g) {
  if (!push_library(L, "jit")) return false;
  lua_getfield(L, -1, "status");
  if (!lua_iscfunction(L, -1)) return false;
  lua_call(L, 0, 1);
  const bool same = bool(g.dispatchmode & 0x10) == bool(lua_toboolean(L, -1));
  lua_pop(L, 2);
  return same;
}

int check_global(lua_State* L) {
  Global& g = global(L);
  lua_pushliteral(L, "");
  bool known = lua_topointer(L, -1) == &g.empty && gc_pointer(g.registry) == lua_topointer(L, LUA_REGISTRYINDEX);
  known = known && g.current == thread(L) && are_settings_known(L, g) && are_roots_known(L, g);
  known = known && is_mode_known(L, g) && is_ring_known(L);
  const std::vector<lua_State*> threads = threads_since(L, nullptr);
  lua_pushboolean(L, known && !threads.empty() && thread(threads.back()) == g.mainthread);
  return 1;
}

}  // namespace

bool is_global_known(lua_State* L) {
  if (!available(L) || !lua_checkstack(L, 4)) return false;
  lua_pushcfunction(L, check_global);
  const bool known = lua_pcall(L, 0, 1, 0) == 0 && lua_toboolean(L, -1);
  lua_pop(L, 1);
  return known;
}

}  // namespace lutra::mirror
