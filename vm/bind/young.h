// Tensors that were made a moment ago and that nothing reaches any more: their memory goes back without a cycle of
// LuaJIT's collector, while it is still in the processor's cache.
#pragma once
struct lua_State;

namespace lutra {

struct TensorBox;

void open_young(lua_State* L);
// Tells of a new userdata, and of one that is finalized.
void add_young(lua_State* L, TensorBox* box);
void remove_young(lua_State* L, TensorBox* box);
// As the finalizer of a userdata that nothing reaches would; false where that must wait for it. (tensor_userdata.cc)
bool lose_tensor(lua_State* L, TensorBox* box);
// In place of a step of the collector by so many KB: where walks are possible it stops before the sweep, until they
// have left `most` bytes; `kept` counts what they leave. False: step it.
bool hold_for_young(lua_State* L, int kilobytes, double kept, double most);
// Frees what is dead once enough bytes have been allocated; returns how many bytes went back.
double collect_young(lua_State* L);

}  // namespace lutra
