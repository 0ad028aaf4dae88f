// The module table `lt`.
#pragma once
#include <atomic>

struct lua_State;

namespace lutra {

// Pushes a new module table with every function of bindings(), dtypes and constants; makes the metatable of tensors.
void open_bindings(lua_State* L);
// Called before a binding that Lua calls, when modes().calls_to_hook has reached 0 (lt.auto counts eager ops).
extern std::atomic<void (*)(lua_State* L)> on_eager_call;

}  // namespace lutra
