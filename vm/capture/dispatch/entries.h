// In: the entries of a point and the values of a call. Out: the entry whose guards hold.
#pragma once
#include <memory>

#include "vm/capture/dispatch/compiled_proto.h"
#include "vm/guard/program.h"

struct lua_State;

namespace lutra {

// The result of find_entry. The entries live as long as the portal call (RunningCalls).
struct Lookup {
  Entry* entry = nullptr;  // the hit; null on a miss
  bool no_room = false;    // an entry's guards had no stack space, so the original code must run
  // On a miss: the entry that was hit or made last, and the step that failed; null where there is none.
  Entry* missed = nullptr;
  int failed = 0;
};
// Finds the entry whose guards hold. On a hit, `values` holds the values that its guards loaded.
Lookup find_entry(lua_State* L, ProtoPoint& point, const CallValues& call, GuardValues& values);
// Drops the guard tree, because entries were removed or their guards have changed.
void forget_tree(ProtoPoint& point);
// Removes one entry, or all.
void forget_entry(lua_State* L, ProtoPoint& point, const Entry& entry);
void forget_entries(lua_State* L, ProtoPoint& point);

}  // namespace lutra
