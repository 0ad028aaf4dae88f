// The policy of a point: what it learns from a miss, and how many entries it may have.
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

}  // namespace lutra
