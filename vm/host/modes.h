// The modes of a Lua state (ops/defs/modes.h): grad mode, autocast, the default device, the random state.
#pragma once
#include <memory>

#include "ops/defs/modes.h"

struct lua_State;

namespace lutra {

// Returns the modes of a state; null before make_runtime, and once the state closes.
std::shared_ptr<Modes> modes_of(lua_State* L);

}  // namespace lutra
