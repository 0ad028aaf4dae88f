// The policy of a point: what it learns from a miss, how many entries it may have, whether another capture is worth its
// time.
#pragma once
#include "vm/capture/dispatch/compiled_proto.h"

struct lua_State;

namespace lutra {

struct CaptureState;

// The guard step of an entry that failed. `tables`: stack index of the entry's table of constants, as for run_guards.
struct Miss {
  const Entry& entry;
  int step = 0;
  int tables = 0;
};
// Learns from a miss. The lesson is taken from the first entry that the call would run if sizes, numbers and the like
// were other ones; if there is none, from `miss`. Returns false if no further entry may be made.
bool note_miss(CaptureState& state, lua_State* L, CompiledProto& compiled, ProtoPoint& point, const Miss& miss,
               const CallValues& call);
// Returns whether this call checks no entry: the point has reached its limit of entries, and lately checking them cost
// more than their runs have saved. Some calls still check.
bool skips_entries(ProtoPoint& point);
// Records that the entry serves a call with these inputs.
void note_hit(ProtoPoint& point, const Entry& entry, const GuardTensors& inputs);
// Returns the time that a graph's ops save because they pass results in registers, not in memory.
double passed_on_ms(const Entry& entry, const GuardTensors& inputs);
// Returns the time that a call saves which runs an entry of `ops` ops. It is negative if there are none.
double saved_ms(size_t ops);
// Returns whether code that does not repay its time is dropped. It is for automatic compiled prototypes, unless
// lt.config.profit says otherwise.
bool has_to_pay(lua_State* L, const CompiledProto& compiled);
// Returns whether lt.auto can afford a capture and a patch of `patch_ms` now, and no captured entry waits for its code.
// The capture is expected to take `needs_ms`, or as long as recent ones if that is longer. The sum of these and of what
// lt.auto has spent must be at most what its code has saved plus a small part of the time that has passed.
bool is_affordable(lua_State* L, CaptureState& state, double needs_ms = 0, double patch_ms = 0);
// Begins to compile a captured entry of lt.auto, if that is affordable now. Returns false if it is too early.
bool begins_compiling(lua_State* L, CaptureState& state, Entry& entry);
// Returns whether points that were given up may be reopened: both new bytecode and a capture are affordable. Otherwise
// the points would wait, and be given up again.
bool may_revive(lua_State* L, CaptureState& state, const CompiledProto& compiled);
// Returns how long a capture by lt.auto may take.
double most_capture_ms(const CaptureState& state, const ProtoPoint& point);
// Counts a call that waits because a capture is not affordable. Returns true if so many calls in a row have waited that
// the portal is removed. It comes back when the function is hot and a capture is affordable.
bool waits_long(ProtoPoint& point, CompiledProto& compiled);
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
