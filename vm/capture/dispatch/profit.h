// Whether the compiled code of a point saves more time than it costs, and what happens if it does not.
#pragma once
#include "vm/capture/dispatch/compiled_proto.h"

struct lua_State;

namespace lutra {

// Returns the time that a call saves which runs an entry of `ops` ops. It is negative if there are none.
double saved_ms(size_t ops);
// Returns whether code that does not repay its time is dropped. It is for automatic compiled prototypes, unless
// lt.config.profit says otherwise.
bool has_to_pay(lua_State* L, const CompiledProto& compiled);
// Returns whether another capture at the point is worth its time, judged by what its entries have saved. After many
// negative answers in a row the point is given up.
bool worth_capture(lua_State* L, ProtoPoint& point, CompiledProto& compiled);
// Counts a portal call that ran nothing. Returns true if there were so many that the point is given up. A point in a
// loop then moves to where its entries have their first ops, so that LuaJIT can compile rounds without ops.
bool gives_up(lua_State* L, ProtoPoint& point, CompiledProto& compiled);
// For a point that is removed because it has nothing to run: if it is in a loop, adds points where the loop is left.
void leave_loop(CompiledProto& compiled, const ProtoPoint& point);
// Reopens the points that were removed so, after 1024, 4096, ... hits of the other points: rounds may have got ops
// meanwhile. Returns whether it did.
bool comes_back(CompiledProto& compiled);

// A number of a graph that tensor elements decided (data-dependent), and its value in the run.
struct LostSize {
  OpId op;  // that made the number
  int32_t number;
  double value;
};
// Records that a run of the entry was abandoned because of a data-dependent size. If that happens often, the entry is
// removed, and the next one is made for the size that came; this is tried a few times. After that the point's graphs
// end where such a size is made.
void note_lost_size(lua_State* L, CompiledProto& compiled, ProtoPoint& point, const Entry& entry, const LostSize& lost);
// Records that a call passed one tensor as two inputs that require gradients. Entries are not guarded against that,
// because few functions are called so and the guards would cost more. From now on the point's entries are guarded.
void note_shared_source(lua_State* L, ProtoPoint& point);

// Records that a portal of the compiled prototype has run the entry. Rebuilding frames costs more than a few ops save.
// If that was so for long, segments of the function and of its resume prototypes no longer end in a callee: a callee
// that breaks is a frame of its own.
void note_rebuilt(lua_State* L, CompiledProto& compiled, const Entry& entry, const GuardTensors& inputs);

// Returns whether the entry only resumes a callee in which several calls compiled nothing. Such an entry then declines,
// and the point makes no more of them. A point without other entries is given up.
bool leads_nowhere(ProtoPoint& point, CompiledProto& compiled, Entry& entry);

}  // namespace lutra
