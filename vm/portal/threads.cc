// Finds the coroutines that may hold frames of a function: those that have called a portal, and those that a walk of
// the heap finds. A walk visits only objects that were allocated since the last one.
//
// Invariants:
// 1. LuaJIT puts new objects at the front of its list of all objects and never reorders the others. The registry's
//    value at mark_key is the newest object that a walk has seen.
// 2. kThreads holds every live coroutine older than the mark, and every one that has called a portal. Dead coroutines
//    that are not swept yet must not enter it, since nothing would remove them.
#include <lua.hpp>

#include "vm/portal/state.h"

namespace lutra {
namespace {

char mark_key;

// Adds the coroutines created since the last walk to the table at the top of the stack. Returns the oldest of them.
lua_State* walk(lua_State* L) {
  lua_pushlightuserdata(L, &mark_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  const void* mark = lua_topointer(L, -1);
  lua_pushlightuserdata(L, &mark_key);
  lua_newtable(L);
  const std::vector<lua_State*> found = mirror::threads_since(L, mark);
  lua_rawset(L, LUA_REGISTRYINDEX);
  lua_pop(L, 1);
  for (lua_State* thread : found) {
    mirror::push_object(L, mirror::kThread, thread);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
  }
  return found.empty() ? nullptr : found.back();
}

}  // namespace

void open_threads(lua_State* L, PortalState& s) {
  push_table(L, PortalTable::kThreads);
  s.threads = static_cast<const mirror::Tab*>(lua_topointer(L, -1));
  s.main = walk(L);
  lua_pop(L, 1);
}

void add_thread(lua_State* L) {
  push_table(L, PortalTable::kThreads);
  lua_pushthread(L);
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

std::vector<lua_State*> threads_with_frames(lua_State* L, bool portals_only) {
  push_table(L, PortalTable::kThreads);
  if (!portals_only) walk(L);
  std::vector<lua_State*> threads{portal_state(L).main};
  if (L != threads[0]) threads.push_back(L);
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    lua_State* thread = lua_tothread(L, -2);
    if (thread != threads[0] && thread != L) threads.push_back(thread);
  }
  lua_pop(L, 1);
  return threads;
}

}  // namespace lutra
