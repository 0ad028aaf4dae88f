// Variables that LuaJIT's traces may store in without a write barrier. In: a state that is held (minor.h). Out: LuaJIT
// marks at the end of its marking what such variables hold by then, whatever stored it.
//
// LuaJIT before November 2023 forgets a barrier: a trace that was made while a variable was open goes on to store in it
// once it is closed. LuaJIT itself looks at open variables once more before it frees anything, by a ring of them. So
// each variable that is marked gets a watcher: an object like an open variable, in that ring, whose slot is the place
// where the variable is once it is closed. Until then this place has links, which are numbers for the collector.
//
// Invariants:
// 1. A watcher is gray, and LuaJIT and Walk look through it, only in the cycle that it was made in: its variable lives
//    as long. Any sweep makes it white. The next one frees it and takes it out of the ring, as LuaJIT does with the
//    open variable of a dead thread.
// 2. A white variable has none: it would keep what a dead variable holds. It waits in `white` until it is marked.
#pragma once
#include <vector>

#include "vm/mirror/global.h"

namespace lutra::mirror {

class Watch {
 public:
  // All variables that are assigned to. False where there is no memory.
  bool begin(lua_State* L);
  // Those that are new, or marked since.
  bool go_on(lua_State* L, bool marked_more);
  size_t size() const { return watchers_; }

 private:
  bool find(lua_State* L, const Header* behind, bool all);
  bool watch(lua_State* L, Upval* variable);
  Upval* new_watcher(lua_State* L);

  const Header* newest_ = nullptr;  // of the objects that were looked at for variables
  std::vector<Upval*> white_, spare_;
  size_t watchers_ = 0;
};

}  // namespace lutra::mirror
