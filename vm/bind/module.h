// The module table `lt`.
#pragma once

struct lua_State;

namespace lutra {

// Pushes a new module table with every function of bindings(), dtypes and constants; makes the metatable of tensors.
void open_bindings(lua_State* L);
// Called before each binding that Lua calls, where set (lt.auto counts eager ops).
extern void (*on_eager_call)(lua_State* L);

}  // namespace lutra
