// Watchers of upvalues that LuaJIT's traces may store to without a write barrier. In a held state (minor.h), they make
// LuaJIT mark, at the end of its marking, the values that such upvalues hold by then.
//
// LuaJIT before November 2023 misses a barrier: a trace that was compiled while an upvalue was open stores to it
// without a barrier after it was closed. LuaJIT marks open upvalues, which form a ring, once more before it frees
// anything. So each marked upvalue gets a watcher: an object in that ring that looks like an open upvalue, and whose
// slot is the field that holds the upvalue's value once it is closed. Until then this field holds list links, which the
// collector sees as numbers.
//
// Invariants:
// 1. A watcher is gray, and LuaJIT and Walk follow it, only in the cycle in which it was made: its upvalue lives that
//    long. Any sweep makes it white. The next sweep frees it and removes it from the ring, as LuaJIT does with the open
//    upvalue of a dead thread.
// 2. A white upvalue has no watcher, which would keep the value of a dead upvalue alive. It waits in `white_` until it
//    is marked.
#pragma once
#include <vector>

#include "vm/mirror/global.h"

namespace lutra::mirror {

class Watch {
 public:
  // Watches all upvalues that are assigned to. Returns false if out of memory.
  bool begin(lua_State* L);
  // Watches the upvalues that are new or were marked since. Returns false if out of memory.
  bool go_on(lua_State* L, bool marked_more);
  size_t size() const { return watchers_; }

 private:
  bool find(lua_State* L, const Header* behind, bool all);
  bool watch(lua_State* L, Upval* variable);
  Upval* new_watcher(lua_State* L);

  const Header* newest_ = nullptr;  // the newest object that was already searched for upvalues
  std::vector<Upval*> white_, spare_;
  size_t watchers_ = 0;
};

}  // namespace lutra::mirror
