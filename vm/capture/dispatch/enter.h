// A hot frame that runs on and on in, the same frame in bytecode that calls a portal at the head of its loop out.
#pragma once
#include <array>

#include "vm/bytecode/dump.h"
#include "vm/mirror/mirror.h"

struct lua_State;

namespace lutra {

struct CaptureState;
struct CompiledProto;

// The calls from which the latest walks of lt.auto have found frames of a prototype called away, in any order.
using Places = std::array<bc::Pc, 16>;

// LuaJIT rewrites loops over pairs for good where pairs is another function. A frame in such a loop must go on in code
// that has it in the same form, as the form decides what a control value is. Whether it may, at the original code's pc:
// from a prototype of the compiled prototype's (or its original) to another; null: to one that has not run.
bool iterates_alike(lua_State* L, const CompiledProto& compiled, bc::Pc pc, const mirror::Proto* from,
                    const mirror::Proto* to);
// Whether the frame has one more portal now.
bool enter_loop(CaptureState& state, lua_State* L, const mirror::LuaFrame& frame, const Places& places);

}  // namespace lutra
