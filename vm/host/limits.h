// lt.limits: how long a call may take.
#pragma once

struct lua_State;

namespace lutra {

// limits{seconds = n}: pushes a function (f, ...) -> f(...) that raises an error when n seconds are over. f must not
// yield out of it.
int make_limits(lua_State* L);

// From now on this state's machine code looks at a flag on every line, which a signal's handler sets: LuaJIT's profiler
// in its line mode, without ever ticking.
void keep_line_mode(lua_State* L);

}  // namespace lutra
