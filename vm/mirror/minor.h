// Minor collections: they find the recently created userdata of one kind that are no longer reachable, without a walk
// over the whole heap. The state's collector must be running.
//
// LuaJIT marks incrementally, and a write barrier records each new object that is stored in a marked one. hold() lets
// LuaJIT mark all live objects and stops it there. From then on a new object can be reached only from the stacks, from
// objects that barriers have recorded, or from other new objects; collect() looks only at these. The hold ends when
// Lua's own allocation reaches LuaJIT's threshold, where LuaJIT would have begun a cycle.
//
// Invariants:
// 1. A held state is in the middle of marking, with no gray object left. The end of that cycle finalizes the sentinel,
//    a userdata that nothing refers to. Until then no object is freed or loses its mark.
// 2. The userdata that collect() returns are unreachable and are in no weak table but `own`. LuaJIT treats them as
//    finalized and frees their memory at the end of the cycle. The caller must release what the payloads hold before it
//    runs anything else.
// 3. Objects that other finalizers may still see stay alive: new userdata of other kinds are roots, even if nothing
//    refers to them. So are the objects in weak tables, except userdata of the kind.
#pragma once
#include <cstddef>
#include <vector>

#include "vm/mirror/mirror.h"

namespace lutra::mirror {

struct MinorKind {
  const Tab* metatable;  // the metatable of all of them; it has __gc
  uint32_t bytes;        // the size of each
  const Tab* own;        // a weak table that maps light userdata to userdata of the kind; the caller clears it
};

struct Found {
  std::vector<Udata*> gone;  // empty if std::bad_alloc was thrown
  size_t visited = 0;        // the approximate number of objects that were visited
};

enum class Minor {
  kDone,
  kBusy,     // nothing was done, because a trace is being recorded or a finalizer runs; try again soon
  kTooMuch,  // nothing was done, because the state is not held or there was too much to visit; call hold()
  kNever     // the layout of LuaJIT's structs is unknown
};
// Ends the collector's cycle and marks all live objects. Finds the unreachable userdata of the kind. Runs finalizers of
// other objects; their errors propagate.
Minor hold(lua_State* L, const MinorKind& kind, Found* found);
// Finds the userdata of the kind that were created since hold() and became unreachable since the last collect().
Minor collect(lua_State* L, const MinorKind& kind, Found* found);

// Returns all userdata of the kind in memory, including dead ones.
std::vector<Udata*> userdata_of(lua_State* L, const MinorKind& kind);

// Stops the collector for a scope, and restores its threshold afterwards.
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
