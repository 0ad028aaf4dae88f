// A captured graph as a Lua table, for backends and reports.
#pragma once
struct lua_State;

namespace lutra {

struct Entry;

void push_graph(lua_State* L, const Entry& entry);

}  // namespace lutra
