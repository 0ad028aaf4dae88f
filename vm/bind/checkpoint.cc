// lt.checkpoint's natives: a function with its arguments in, a call that is watched and repeated out.
#include <lua.hpp>

#include "ops/grad/checkpoint.h"
#include "vm/bind/functions.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

// A function and its arguments, in the registry of their state.
struct AnchoredCall {
  lua_State* L;
  std::weak_ptr<bool> alive;
  int table, count;

  AnchoredCall(lua_State* main, lua_State* L) : L(main), alive(runtime_alive(main)), count(lua_gettop(L)) {
    lua_createtable(L, count, 0);
    for (int i = 1; i <= count; i++) lua_pushvalue(L, i), lua_rawseti(L, -2, i);
    table = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  AnchoredCall(const AnchoredCall&) = delete;
  ~AnchoredCall() {
    auto live = alive.lock();
    if (live && *live) luaL_unref(L, LUA_REGISTRYINDEX, table);
  }
  void call() const {
    lua_State* now = current_lua();
    if (!now) fail("checkpoint: its function cannot be run again outside Lua");
    const int top = lua_gettop(now);
    luaL_checkstack(now, count + 2, "checkpoint");
    lua_rawgeti(now, LUA_REGISTRYINDEX, table);
    for (int i = 1; i <= count; i++) lua_rawgeti(now, top + 1, i);
    lua_call(now, count - 1, 0);
    lua_settop(now, top);
  }
};

}  // namespace

// (f, ...): whether the call of f(...) that follows is watched, up to checkpoint_end. One within another is a part of
// it; without gradients there is nothing to save.
int checkpoint_of(lua_State* L) {
  const bool watched = !modes().watch && grad_enabled();
  if (watched) {
    auto call = std::make_shared<AnchoredCall>(runtime(L).L, L);
    make_ref<Checkpoint>([call] { call->call(); })->begin();
  }
  lua_pushboolean(L, watched);
  return 1;
}

int checkpoint_end_of(lua_State*) {
  if (auto* checkpoint = dynamic_cast<Checkpoint*>(modes().watch.get())) Ref<Checkpoint>(checkpoint)->end();
  return 0;
}

}  // namespace lutra
