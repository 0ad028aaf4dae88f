// Lua's collector and the memory of tensors. In: a new tensor of a state; out: tensors that Lua refers to no more give
// their memory back, soon after they are gone.
#pragma once
#include <span>

struct lua_State;

namespace lutra {

struct Runtime;
namespace mirror {
struct Udata;
}

void open_pressure();
// Before each new userdata of a tensor.
void tell_collector(lua_State* L, const Runtime& rt);
// Before each call of a binding: the last result is in its place, so what was there before may be gone, and the next
// result takes its memory.
extern constinit thread_local bool collection_is_due;
void collect_what_is_due(lua_State* L);
inline void before_call(lua_State* L) {
  if (collection_is_due) [[unlikely]]
    collect_what_is_due(L);
}
// Of userdata that nothing refers to: out of the state's table, their tensors dropped (tensor_userdata.cc).
void drop_gone_tensors(lua_State* L, std::span<mirror::Udata* const> gone);

}  // namespace lutra
