// Tensors in Lua: one canonical userdata for each TensorImpl.
#pragma once
#include "ops/core/tensor.h"

struct lua_State;

namespace lutra {

// Pushes the canonical userdata (made on first use, kept in a weak table; a null tensor pushes nil).
void push_tensor(lua_State* L, const Tensor& t);
void push_tensor(lua_State* L, Tensor&& t);
void push_tensor_metatable(lua_State* L);  // pushes the metatable of all tensors of the state
// Returns the tensor at idx, or null if the value is not a tensor.
Tensor* to_tensor(lua_State* L, int idx);
// Does the same for the payload of a full userdata of that size (vm/guard reads userdata without the stack).
Tensor* tensor_in_userdata(void* payload, size_t bytes);
// Returns the Binding of a bound C function (see binding.h), or null for any other value.
const struct Binding* to_binding(lua_State* L, int idx);
void push_value(lua_State* L, const struct Value& v);

}  // namespace lutra
