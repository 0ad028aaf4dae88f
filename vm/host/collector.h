// Stops Lua's collector for a scope. Otherwise the ops of a finalizer would be recorded with those of a capture.
#pragma once
#include <lua.hpp>

namespace lutra {

class CollectorPause {
 public:
  explicit CollectorPause(lua_State* L) : L_(L), running_(lua_gc(L, LUA_GCISRUNNING, 0) != 0) {
    if (running_) lua_gc(L, LUA_GCSTOP, 0);
  }
  ~CollectorPause() {
    if (running_) lua_gc(L_, LUA_GCRESTART, 0);
  }
  CollectorPause(const CollectorPause&) = delete;

 private:
  lua_State* L_;
  bool running_;
};

}  // namespace lutra
