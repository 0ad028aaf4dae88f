// Minor collections: which userdata of one kind nothing refers to any more, of those made of late. In: a lua_State
// whose collector runs. Out: the userdata that are gone, without a walk over the whole heap.
//
// LuaJIT marks in steps, and a write barrier tells it of each new object that is stored in one it has marked. hold()
// lets it mark all that lives and stops there: from then on a new object is reached from the stacks, from what barriers
// have noted, or from other new objects, and collect() looks at nothing else. Lua's own allocation ends the hold, when
// LuaJIT's threshold is reached, as it would have begun a cycle there.
//
// Invariants:
// 1. Only a state in the middle of marking, with no gray object left, is held. Whatever ends that cycle finalizes the
//    sentinel, a userdata that nothing refers to; until then no object is freed or loses its mark.
// 2. What collect() gives is unreachable, is in no weak table but `own`, and counts as finalized for LuaJIT,
//    which frees its memory at the end of the cycle. The caller drops what the payloads hold before it runs anything
//    else.
// 3. What other finalizers may still see lives on: new userdata of other kinds are roots, whether or not anything
//    refers to them; so is what a weak table refers to, other than userdata of the kind.
#pragma once
#include <cstddef>
#include <vector>

#include "vm/mirror/mirror.h"

namespace lutra::mirror {

struct MinorKind {
  const Tab* metatable;  // of all of them, with __gc
  uint32_t bytes;        // of each
  const Tab* own;        // a weak table with such userdata as values under light keys: the caller clears it
};

struct Found {
  std::vector<Udata*> gone;  // empty where std::bad_alloc was thrown
  size_t looks = 0;          // about how many objects were looked at
};

enum class Minor {
  kDone,
  kBusy,     // nothing was done: a trace is recorded or a finalizer runs; soon it will be possible
  kTooMuch,  // nothing was done: not held, or too much was to be looked at; hold() helps
  kNever     // LuaJIT's structs are not known
};
// Ends the collector's cycle and marks all that lives. Finds the userdata of the kind that are gone. Runs finalizers of
// others, whose errors pass.
Minor hold(lua_State* L, const MinorKind& kind, Found* found);
// The userdata of the kind that were made since hold() and are gone since the last collect().
Minor collect(lua_State* L, const MinorKind& kind, Found* found);

// All userdata of the kind that are in memory, dead ones too.
std::vector<Udata*> userdata_of(lua_State* L, const MinorKind& kind);

// No collection runs in this scope; the collector's threshold is as before behind it.
class ThresholdScope {
 public:
  explicit ThresholdScope(lua_State* L);
  ~ThresholdScope();
  ThresholdScope(const ThresholdScope&) = delete;

 private:
  uint64_t* threshold_;
  uint64_t saved_;
};

}  // namespace lutra::mirror
