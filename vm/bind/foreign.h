// The state's part in storages over Lua's memory.
#pragma once

struct lua_State;

namespace lutra {

// Releases the Lua values behind storages that were freed, and calls their deleters.
void return_foreign(lua_State* L);

}  // namespace lutra
