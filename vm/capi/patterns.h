// string.find, match, gmatch and gsub for programs that may not be trusted: a pattern that takes long can be stopped.
#pragma once

struct lua_State;

namespace lutra::capi {

// Pushes a table of the four.
void push_patterns(lua_State* L);

}  // namespace lutra::capi
