// A captured graph as a Lua table: its nodes, and the graph's text where it is printed.
#include "vm/capture/segment/graph_table.h"

#include "jit/graph/graph.h"
#include "vm/capture/segment/entry.h"
#include "vm/capture/segment/fields.h"

namespace lutra {
namespace {

int text_of(lua_State* L) {
  lua_getfield(L, 1, "_text");
  return 1;
}

// The table at the top prints as text.
void set_text(lua_State* L, const std::string& text) {
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, text_of);
  lua_setfield(L, -2, "__tostring");
  lua_createtable(L, 0, 1);
  set_string(L, "_text", text);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
}

int next_node(lua_State* L) {
  lua_Integer i = lua_tointeger(L, lua_upvalueindex(2)) + 1;
  lua_pushinteger(L, i);
  lua_replace(L, lua_upvalueindex(2));
  lua_rawgeti(L, lua_upvalueindex(1), int(i));
  return 1;
}

int graph_nodes(lua_State* L) {
  lua_getfield(L, 1, "_nodes");
  lua_pushinteger(L, 0);
  lua_pushcclosure(L, next_node, 2);
  return 1;
}

}  // namespace

std::vector<NodeText> describe_nodes(const Graph& graph) {
  std::vector<NodeText> list;
  for (const auto& n : graph.nodes) {
    NodeText t;
    t.op = name(n->op);
    if (n->is_inplace_form()) t.op += "_";
    t.name = str("%", n->id);
    t.line = n->line;
    for (const Value& v : n->args) {
      if (!t.args.empty()) t.args += ", ";
      if (v.is<Tensor>() && v.tensor()) {
        t.args += str("%", v.tensor()->node->id + v.tensor()->result);
      } else if (v.is<Scalar>()) {
        t.args += str(v.as<Scalar>().to_double());
      } else if (v.is<Sizes>()) {
        t.args += to_string(v.as<Sizes>());
      } else {
        t.args += v.is_none() ? "None" : "...";
      }
    }
    if (!n->results.empty() && n->results[0]) {
      t.dtype = name(n->results[0]->dtype);
      for (const SymInt& s : n->results[0]->sizes) t.shape.push_back(s.hint);
    }
    list.push_back(std::move(t));
  }
  return list;
}

void push_graph(lua_State* L, const Entry& e) {
  lua_newtable(L);
  lua_newtable(L);
  for (size_t i = 0; i < e.nodes.size(); i++) {
    const NodeText& n = e.nodes[i];
    lua_newtable(L);
    set_string(L, "op", n.op);
    set_string(L, "name", n.name);
    set_string(L, "args", n.args);
    set_number(L, "line", n.line);
    lua_newtable(L);
    set_string(L, "dtype", n.dtype);
    lua_newtable(L);
    for (size_t d = 0; d < n.shape.size(); d++) lua_pushnumber(L, double(n.shape[d])), lua_rawseti(L, -2, int(d) + 1);
    lua_setfield(L, -2, "shape");
    lua_setfield(L, -2, "meta");
    lua_rawseti(L, -2, int(i) + 1);
  }
  lua_setfield(L, -2, "_nodes");
  lua_pushcfunction(L, graph_nodes);
  lua_setfield(L, -2, "nodes");
  set_text(L, e.graph_text);
}

}  // namespace lutra
