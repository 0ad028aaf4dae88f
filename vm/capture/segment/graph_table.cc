// A captured graph as a Lua table: its nodes, parsed from its text, and the text for printing.
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

// Makes the table at the top print as the text.
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

std::string argument_text(const Value& v) {
  if (v.is<Tensor>() && v.tensor()) return str("%", v.tensor()->node->id + v.tensor()->result);
  if (v.is<Scalar>()) return str(v.as<Scalar>().to_double());
  if (v.is<Sizes>()) return to_string(v.as<Sizes>());
  return v.is_none() ? "None" : "...";
}

void push_node(lua_State* L, const Node& n) {
  std::string args;
  for (const Value& v : n.args) args += (args.empty() ? "" : ", ") + argument_text(v);
  lua_newtable(L);
  set_string(L, "op", str(name(n.op), n.is_inplace_form() ? "_" : ""));
  set_string(L, "name", str("%", n.id));
  set_string(L, "args", args);
  set_number(L, "line", n.line);
  lua_newtable(L);
  const Tensor result = n.results.empty() ? Tensor() : n.results[0];
  set_string(L, "dtype", result ? name(result->dtype) : "");
  lua_newtable(L);
  for (size_t d = 0; result && d < result->sizes.size(); d++) {
    lua_pushnumber(L, double(result->sizes[d].hint));
    lua_rawseti(L, -2, int(d) + 1);
  }
  lua_setfield(L, -2, "shape");
  lua_setfield(L, -2, "meta");
}

}  // namespace

void push_graph(lua_State* L, const Entry& e) {
  lua_newtable(L);
  lua_newtable(L);
  const std::unique_ptr<Graph> graph = e.graph_text.empty() ? nullptr : parse_graph(e.graph_text);
  for (size_t i = 0; graph && i < graph->nodes.size(); i++) {
    push_node(L, *graph->nodes[i]);
    lua_rawseti(L, -2, int(i) + 1);
  }
  lua_setfield(L, -2, "_nodes");
  lua_pushcfunction(L, graph_nodes);
  lua_setfield(L, -2, "nodes");
  set_text(L, e.graph_text);
}

}  // namespace lutra
