// Policy of a point: what a miss teaches, how many entries there may be, whether another capture is worth its time.
#pragma once
#include "vm/capture/dispatch/compiled_proto.h"

struct lua_State;

namespace lutra {

struct CaptureState;

// What a miss teaches: of the first entry that the call would run but for sizes, numbers and their like; where there is
// none, of `entry`, whose step `failed`. Returns false when no further entry may be made.
bool note_miss(CaptureState& state, lua_State* L, CompiledProto& compiled, ProtoPoint& point, const Entry& entry,
               int failed, int nslots, int nargs, int self, int constants, int weak);
// Whether a call asks no entry: the point has as many as it may, and of late it cost more to ask them than the runs of
// those that served have saved. Some calls still ask.
bool rests(ProtoPoint& point);
// The entry serves a call that brings these inputs.
void note_hit(ProtoPoint& point, const Entry& entry, const GuardTensors& inputs);
// What the ops of a graph save that pass their results on by registers, not by memory.
double passed_on_ms(const Entry& entry, const GuardTensors& inputs);
// What a call saves that runs an entry of so many ops: less than nothing where it runs none.
double saved_ms(size_t ops);
// Whether what does not repay its time is dropped: of automatic compiled prototypes, unless lt.config.profit says
// otherwise.
bool has_to_pay(lua_State* L, const CompiledProto& compiled);
// Whether lt.auto may capture now, what needs that long, and patch: what it has spent and what that may take are no
// more than what its code has saved and a small part of the time that has passed.
bool is_affordable(lua_State* L, CaptureState& state, double needs_ms = 0, double patch_ms = 0);
// Begins to compile what lt.auto has captured, once that is affordable. False where it is too early.
bool begins_compiling(lua_State* L, CaptureState& state, Entry& entry);
// Whether points that were given up may be asked again: new bytecode and a capture are affordable, both. Else they
// would wait, and go once more.
bool may_revive(lua_State* L, CaptureState& state, const CompiledProto& compiled);
// How long a capture of lt.auto's may take.
double most_capture_ms(const CaptureState& state, const ProtoPoint& point);
// A call waits until a capture is affordable: true where so many did in a row that the portal goes, until the function
// is hot when it is.
bool waits_long(ProtoPoint& point, CompiledProto& compiled);
// Whether another capture at a point of such a compiled prototype is worth its time, by what the entries have saved.
// False many times in a row, and the point is given up.
bool worth_capture(lua_State* L, ProtoPoint& point, CompiledProto& compiled);
// A call of a portal that has run nothing; true where there were so many that the point is given up. In a loop it then
// goes on to where its entries have their first ops: rounds without ops are LuaJIT's.
bool gives_up(lua_State* L, ProtoPoint& point, CompiledProto& compiled);
// A point that has nothing to run goes. If it is in a loop, segments may begin where that is left to.
void leave_loop(CompiledProto& compiled, const ProtoPoint& point);
// Those that have gone so are tried again after 1024, 4096, ... hits of the others: rounds may have got ops. True where
// that is now.
bool comes_back(CompiledProto& compiled);

// A number of a graph that elements decided, and what it was.
struct LostSize {
  OpId op;  // that told it
  int32_t number;
  double value;
};
// A run of the entry was given up for a size that elements decided. Where that happens often, the entry goes: the next
// one is made for the size that came, a few times. Then the graphs of the point end where such a size is made.
void note_lost_size(lua_State* L, CompiledProto& compiled, ProtoPoint& point, const Entry& entry, const LostSize& lost);
// A call brought one tensor as two inputs that take gradients, which entries are not guarded against: guards cost more
// than that few functions are called so. From now on they are.
void note_shared_source(lua_State* L, ProtoPoint& point);

// A portal of the compiled prototype has run the entry. Frames that are rebuilt cost more than a few ops save. Where
// that has been so for long, no segment of the function and its rests ends in a callee any more: what breaks there is a
// frame of its own.
void note_rebuilt(lua_State* L, CompiledProto& compiled, const Entry& entry, const GuardTensors& inputs);

// Whether an entry only resumes a callee in which nothing was compiled in several calls. It then declines, and the
// point makes no more such; a point that has no other entries is given up.
bool leads_nowhere(ProtoPoint& point, CompiledProto& compiled, Entry& entry);

}  // namespace lutra
