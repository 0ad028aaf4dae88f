// string.find, match, gmatch and gsub for untrusted programs: a match that takes long can be interrupted.
#pragma once

struct lua_State;

namespace lutra::capi {

// Pushes a table of these four functions.
void push_patterns(lua_State* L);

}  // namespace lutra::capi
