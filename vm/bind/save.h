// lt.load for bytes in memory.
#pragma once
#include <cstddef>

struct lua_State;

namespace lutra {

// Pushes the value that these bytes of a .safetensors file contain.
void push_safetensors(lua_State* L, const void* bytes, size_t size);

}  // namespace lutra
