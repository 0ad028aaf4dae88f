// Portal calls: each checks guards, then runs a compiled segment or captures one.
#pragma once

struct lua_State;

namespace lutra {

// Runs portal `id` (the PortalFn of the Lua state).
int run_portal(lua_State* L, int id);

}  // namespace lutra
