// What LuaJIT's collector has not marked: userdata of a state in, those that nothing reaches out, without a whole cycle
// of the collector.
//
// LuaJIT marks in steps. Between the last step of marking and the sweep, what is reachable is marked or was made since,
// and write barriers keep it so: a marked object that was given an unmarked value is on a list. A collector that is
// left there ("parked") makes the question cheap: only stacks, listed tables and unmarked objects behind them are read.
//
// Invariants:
// 1. Nothing of LuaJIT's is written: it is stepped by lua_gc alone, and its own cycle goes on whenever it likes.
// 2. In doubt an object is reached: through weak tables, and from userdata with finalizers that are unmarked
// themselves.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "vm/mirror/mirror.h"
#include "vm/mirror/traces.h"

namespace lutra::mirror {

// Whether the collector's lists are where this file looks for them. The state's main thread must run. Costs
// microseconds; the caller remembers the answer.
bool check_collector(lua_State* L);

// Whether marking has ended and the sweep has not begun.
bool is_parked(lua_State* L);
bool is_marking(lua_State* L);  // or is about to
// At most `steps` steps of the collector, until it is parked, or has ended its sweep; returns whether it is parked. It
// goes on by itself once the heap has `until` bytes, which is chosen when a cycle begins.
bool park(lua_State* L, int steps, uint64_t* until);
// Of all userdata but those with the metatable `passive` and that with the payload `own`: is one unmarked that may have
// a finalizer, or be given one?
bool has_unmarked_finalizer(lua_State* L, const Tab* passive, const void* own);
// Looks at what LuaJIT has compiled since the last look (traces.h): whether the collector may be parked. Begins and
// ends between two sweeps.
bool look_at_traces(lua_State* L, UnbarredStores& stores);
bool learn_traces(lua_State* L);

struct Bounds {
  const Tab* apart;    // a table whose entries hold nothing
  const Tab* passive;  // the metatable of userdata whose finalizers use no Lua value
  const void* since;   // payload of a userdata made when the collector was parked; those asked for are younger
  size_t budget;       // values to read at most
};
// Of the userdata whose payloads come in, those that nothing reaches go out. False past the budget: then nothing is
// known. Only where is_parked.
bool unreached(lua_State* L, const Bounds& bounds, std::vector<void*>& payloads);

}  // namespace lutra::mirror
