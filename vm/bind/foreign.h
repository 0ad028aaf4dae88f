// What storages over Lua's memory need of their state.
#pragma once

struct lua_State;

namespace lutra {

// Lets go of the Lua values behind storages that are gone, and calls their deleters.
void return_foreign(lua_State* L);

}  // namespace lutra
