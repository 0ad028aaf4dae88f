// A captured graph as a Lua table, as backends get it and reports list it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

struct lua_State;

namespace lutra {

struct Entry;
struct Graph;

struct NodeText {
  std::string op, name, args, dtype;
  std::vector<int64_t> shape;
  int line = 0;
};
std::vector<NodeText> describe_nodes(const Graph& graph);
void push_graph(lua_State* L, const Entry& entry);

}  // namespace lutra
