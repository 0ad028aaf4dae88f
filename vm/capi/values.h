// lutra_Values to Lua values and back.
#pragma once
#include "vm/capi/state.h"

namespace lutra::capi {

// Pushes n values, those with names as fields of one table after the others; returns how many were pushed.
int push_values(lua_State* L, const lutra_Value* values, int n);
int push_tensors(lua_State* L, lutra_Tensor* const* tensors, int n);

// The results above `base` of the Lua stack: the first m, a list of tensors alone counting as so many. Outputs are
// empty beforehand. Where one cannot be given nothing is kept, and an ArgumentError tells.
void take_tensors(lua_State* L, int base, lutra_Tensor** outputs, int m);
void take_values(lutra_State* S, lua_State* L, int base, lutra_Value* outputs, int m);

// The value at idx, with strings where they are (they live as long as the stack has them). Its tensor is one reference.
lutra_Value value_at(lua_State* L, int idx);

}  // namespace lutra::capi
