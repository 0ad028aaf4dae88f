// Drives Lua's collector by the memory of tensors, so that tensors that Lua no longer refers to free their memory soon.
#pragma once
#include <span>

struct lua_State;

namespace lutra {

struct Runtime;
namespace mirror {
struct Udata;
}

void open_pressure();
// Call it before each new userdata of a tensor.
void tell_collector(lua_State* L, const Runtime& rt);
// Runs the collection that is due, before each call of a binding. The last result has been stored by then, so the value
// that it replaced may be dead, and the next result can use its memory.
extern constinit thread_local bool collection_is_due;
void collect_what_is_due(lua_State* L);
inline void before_call(lua_State* L) {
  if (collection_is_due) [[unlikely]]
    collect_what_is_due(L);
}
// Drops the tensors of userdata that nothing refers to, and removes them from the state's table (tensor_userdata.cc).
void drop_gone_tensors(lua_State* L, std::span<mirror::Udata* const> gone);

}  // namespace lutra
