// lt.limits: how long a call may take.
#pragma once

struct lua_State;

namespace lutra {

// limits{seconds = n}: pushes a function (f, ...) -> f(...) that raises an error when n seconds are over. f must not
// yield out of it.
int make_limits(lua_State* L);

// Raises an error on the line that runs. In a hook that is level 0, not luaL_error's 1.
void raise_in_hook(lua_State* L, const char* message);

// From now on this state's machine code looks at a flag on every line, which a signal's handler sets: LuaJIT's profiler
// in its line mode, without ever ticking.
void keep_line_mode(lua_State* L);

}  // namespace lutra
