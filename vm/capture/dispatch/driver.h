// What a portal call does: guards, the compiled segment, or a capture.
#pragma once
#include "vm/capture/dispatch/unit.h"

struct lua_State;

namespace lutra {

struct CaptureState;

// The PortalFn of this Lua state.
int run_portal(lua_State* L, int id);

// capture.cc: traces the segment that begins at `point` with the values on the stack (slots, then varargs; the function
// at `self`) and compiles it. Null where nothing can be made here (the point is dead then).
std::shared_ptr<Entry> capture(CaptureState& state, lua_State* L, const std::shared_ptr<Unit>& unit, UnitPoint& point,
                               int nslots, int nargs, int self);
// run.cc: runs an entry whose guards have passed. Pushes the exit's code and results; 0 where the original code must
// run.
int run_entry(CaptureState& state, lua_State* L, const std::shared_ptr<Unit>& unit, Entry& entry, GuardValues& values);
// report.cc: what a miss teaches. Returns false when no further entry may be made.
bool note_miss(CaptureState& state, lua_State* L, Unit& unit, UnitPoint& point, const Entry& entry, int failed,
               int nslots, int nargs, int self, int constants, int weak);
// auto.cc: whether what does not repay its time is dropped: of automatic units, unless lt.config.profit says otherwise.
bool has_to_pay(lua_State* L, const Unit& unit);
// Whether another capture at a point of such a unit is worth its time, by what the entries have saved.
// False many times in a row, and the point is given up.
bool worth_capture(UnitPoint& point, Unit& unit);
// A call of a portal that has run nothing; true where there were so many in a row that the point is given up.
bool gives_up(UnitPoint& point, Unit& unit);
void report_internal(CaptureState& state, Unit& unit, const std::string& what, const std::string& graph);

}  // namespace lutra
