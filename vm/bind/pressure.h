// Lua's collector and the memory of tensors. In: a new tensor of a state; out: tensors that Lua refers to no more give
// their memory back, soon after they are gone.
#pragma once
#include <vector>

struct lua_State;

namespace lutra {

struct Runtime;
struct TensorBox;

void open_pressure();
// Before each new userdata of a tensor.
void tell_collector(lua_State* L, const Runtime& rt);
// Of userdata that nothing refers to: out of the state's table, their tensors dropped (tensor_userdata.cc).
void drop_gone_tensors(lua_State* L, const std::vector<TensorBox*>& boxes);

}  // namespace lutra
