// What the files of this folder share and nobody else needs.
#pragma once

struct lua_State;

namespace lutra {

// Makes the weak table and the metatable of tensors; leaves the metatable (with __gc only) on the stack.
void open_tensor_userdata(lua_State* L);
// The one C function behind every binding; upvalue 1 is the Binding.
int binding_entry(lua_State* L);

}  // namespace lutra
