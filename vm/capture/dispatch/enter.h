// A hot frame that runs on and on in, the same frame in bytecode that calls a portal at the head of its loop out.
#pragma once
#include <array>

#include "vm/bytecode/dump.h"
#include "vm/mirror/mirror.h"

struct lua_State;

namespace lutra {

struct CaptureState;

// The calls from which the latest walks of lt.auto have found frames of a prototype called away, in any order.
using Places = std::array<bc::Pc, 16>;

// Whether the frame has one more portal now.
bool enter_loop(CaptureState& state, lua_State* L, const mirror::LuaFrame& frame, const Places& places);

}  // namespace lutra
