// Whether LuaJIT's machine code writes variables without a write barrier: objects of a state in, yes or no out.
//
// A trace that was recorded while a variable was open (the frame that declares it still ran) stores to it without a
// barrier, as open variables need none. LuaJIT before November 2023 runs it on when the variable has been closed: then
// a marked variable holds an unmarked value, and no list tells so. LuaJIT itself loses such a value where the store
// comes between its marking and its sweep. So who keeps the collector there must ask for such traces first, and again.
//
// Invariants:
// 1. Nothing is freed between two looks without forget(): what was seen before is not read again.
// 2. The layout of traces is known only where learn_traces() has compared a fresh one with what jit.util says of it.
//    Elsewhere any trace may have such stores.
#pragma once
#include "vm/mirror/mirror.h"

namespace lutra::mirror {

struct UnbarredStores {
  bool found = false;
  bool unknown = false;  // there is a trace, and learn_traces() has not succeeded
  const Header* newest = nullptr;
  void forget() { *this = UnbarredStores(); }
};

// Looks at the traces among the objects from `newest` to `oldest` that the last look did not see. Whether there is none
// with such a store.
bool look_at_traces(UnbarredStores& stores, const Header* newest, const Header* oldest);

// Whether this LuaJIT's traces guard that an open variable still is. From then on looks are free.
bool guards_open_variables(lua_State* L);

// Compiles a loop and finds the opcodes in its trace. Once a process is enough; may allocate, so may step the
// collector. `list` tells the newest and the oldest object of a state.
bool learn_traces(lua_State* L, void (*list)(lua_State* L, const Header** newest, const Header** oldest));

}  // namespace lutra::mirror
