// What a portal call does: guards, the compiled segment, or a capture.
#pragma once

struct lua_State;

namespace lutra {

// The PortalFn of this Lua state.
int run_portal(lua_State* L, int id);

}  // namespace lutra
