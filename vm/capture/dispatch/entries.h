// The entries of a point and the values of a call in, the entry whose guards hold out.
#pragma once
#include <memory>

#include "vm/capture/dispatch/compiled_proto.h"
#include "vm/guard/program.h"

struct lua_State;

namespace lutra {

// The values of a portal call: stack 1 .. nargs, nslots of them slots; the function at `self`.
struct CallValues {
  int nslots = 0, nargs = 0, self = 0;
};

// Entries live as long as a portal call is under way (RunningCalls).
struct Lookup {
  Entry* entry = nullptr;  // the hit; null on a miss
  bool no_room = false;    // an entry's guards could not run: the original code must
  // On a miss: the entry that was hit or made last, and the step that failed; null where there is none.
  Entry* missed = nullptr;
  int failed = 0;
};
// values: those of a hit.
Lookup find_entry(lua_State* L, ProtoPoint& point, const CallValues& call, GuardValues& values);
// Entries of the point have gone, or have other guards.
void forget_tree(ProtoPoint& point);
// The entry goes, or all.
void forget_entry(lua_State* L, ProtoPoint& point, const Entry& entry);
void forget_entries(lua_State* L, ProtoPoint& point);

}  // namespace lutra
