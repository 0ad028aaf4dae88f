// In: a hot frame that stays in a loop. Out: the same frame in bytecode that calls a portal at the head of its loop.
#pragma once
#include <array>

#include "vm/bytecode/dump.h"
#include "vm/mirror/mirror.h"

struct lua_State;

namespace lutra {

struct CaptureState;
struct CompiledProto;

// The pcs of the calls that frames of a prototype were in during lt.auto's latest walks, in any order.
using Places = std::array<bc::Pc, 16>;

// Returns whether two prototypes iterate alike at the original code's pc. LuaJIT rewrites a loop over pairs for good
// when pairs is another function, and the loop's form decides what a control value is. So a frame in such a loop may
// only continue in code with the same form. `from` and `to` are the original or patched prototypes of the compiled
// prototype; null is a prototype that has not run.
bool iterates_alike(lua_State* L, const CompiledProto& compiled, bc::Pc pc, const mirror::Proto* from,
                    const mirror::Proto* to);
// Adds a portal at the head of the frame's loop and moves the frame to that bytecode. Returns whether it did.
bool enter_loop(CaptureState& state, lua_State* L, const mirror::LuaFrame& frame, const Places& places);

}  // namespace lutra
