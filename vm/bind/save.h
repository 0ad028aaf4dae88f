// What lt.load gives, of bytes in memory.
#pragma once
#include <cstddef>

struct lua_State;

namespace lutra {

// Pushes the value whose .safetensors file these bytes are.
void push_safetensors(lua_State* L, const void* bytes, size_t size);

}  // namespace lutra
