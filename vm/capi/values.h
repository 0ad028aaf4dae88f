// Conversion of lutra_Values to Lua values and back.
#pragma once
#include "vm/capi/state.h"

namespace lutra::capi {

// Pushes n values. Named values become fields of one table, which is pushed last. Returns the number of pushed values.
int push_values(lua_State* L, const lutra_Value* values, int n);
int push_tensors(lua_State* L, lutra_Tensor* const* tensors, int n);

// Store the first m results that lie above `base` on the Lua stack. If the only result is a list of tensors, its
// elements count as the results. The outputs must be empty before. If a result cannot be converted, all outputs are
// cleared and an ArgumentError is thrown.
void take_tensors(lua_State* L, int base, lutra_Tensor** outputs, int m);
void take_values(lutra_State* S, lua_State* L, int base, lutra_Value* outputs, int m);

// Returns the value at idx. A string is not copied: it is valid while the stack holds it. A tensor is a new reference.
lutra_Value value_at(lua_State* L, int idx);

}  // namespace lutra::capi
