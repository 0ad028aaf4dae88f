// Makes tape nodes whose gradients Lua code computes.
#include "vm/bind/lua_node.h"

#include <algorithm>

#include <lua.hpp>

#include "vm/bind/functions.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/bind/userdata.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

// A reference to a value in a state's registry.
struct LuaAnchor {
  lua_State* L;
  std::weak_ptr<bool> alive;
  int reference;
  LuaAnchor(lua_State* L, int at) : L(runtime(L).L), alive(runtime_alive(L)) {
    lua_pushvalue(L, at);
    reference = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  LuaAnchor(const LuaAnchor&) = delete;
  ~LuaAnchor() {
    auto live = alive.lock();
    if (live && *live) luaL_unref(L, LUA_REGISTRYINDEX, reference);
  }
  void push(lua_State* now) const { lua_rawgeti(now, LUA_REGISTRYINDEX, reference); }
};

struct NodeCallee final : LuaCallee {
  LuaAnchor function, context;
  NodeCallee(lua_State* L, int function, int context) : function(L, function), context(L, context) {}

  int push_functions(lua_State* L) const override {
    if (runtime_alive(L).lock() != function.alive.lock()) return 0;
    luaL_checkstack(L, 2, "a backward");
    function.push(L);
    int count = 1;
    context.push(L);
    const int table = lua_gettop(L), last = lua_istable(L, table) ? int(lua_objlen(L, table)) : 0;
    luaL_checkstack(L, last, "a backward");
    for (int i = 1; i <= last; i++) {
      lua_rawgeti(L, table, i);
      lua_isfunction(L, -1) ? void(count++) : lua_pop(L, 1);
    }
    lua_remove(L, table);
    return count;
  }
  int push_arguments(lua_State* L, const std::vector<Tensor>& tensors) const override {
    luaL_checkstack(L, int(tensors.size()) + 2, "a backward");
    context.push(L);
    for (const Tensor& t : tensors) push_tensor(L, t);  // nil for a null tensor
    return int(tensors.size()) + 1;
  }
};

std::vector<Tensor> to_list(lua_State* L, int table, size_t count) {
  std::vector<Tensor> out;
  luaL_checkstack(L, 1, "tensors");
  for (size_t i = 0; i < count; i++) {
    lua_rawgeti(L, table, int(i) + 1);
    Tensor* t = to_tensor(L, -1);
    out.push_back(t ? *t : Tensor());
    lua_pop(L, 1);
  }
  return out;
}

}  // namespace

LuaNode::LuaNode(std::string title, lua_State* L, int function, int context)
    : title_(std::move(title)), callee_(std::make_shared<NodeCallee>(L, function, context)) {}

std::vector<Tensor> LuaNode::apply(const std::vector<Tensor>& grads, bool create_graph) {
  lua_State* L = current_lua();
  if (!callee_ || !L) fail_second_backward();
  std::vector<Tensor> given(grads.begin(), grads.begin() + int64_t(std::min(results, grads.size())));
  given.resize(results);
  for (const Tensor& g : given) {
    if (g && g->is_fake()) throw NeedsData(title_ + ": its gradient is computed by Lua code");
  }
  for (Tensor& t : saved.unpack(this, title_, create_graph)) given.push_back(std::move(t));
  const std::shared_ptr<const LuaCallee> callee = callee_;
  const int top = lua_gettop(L), functions = callee->push_functions(L);
  if (functions == 0) fail(title_, ": its function belongs to another Lua state");
  lua_settop(L, top + 1);
  const int arguments = callee->push_arguments(L, given);
  lua_call(L, arguments, int(next.size()));
  std::vector<Tensor> out;
  for (size_t i = 0; i < next.size(); i++) {
    Tensor* t = to_tensor(L, top + 1 + int(i));
    out.push_back(t ? *t : Tensor());
  }
  lua_settop(L, top);
  return out;
}

void LuaNode::release() {
  if (saved.empty()) return;  // nothing to free: such a node may run again
  hooks.clear();
  callee_ = nullptr;
  saved.clear();
}

std::vector<Edge> LuaNode::more_results(size_t count) {
  std::vector<Edge> edges;
  for (size_t i = 0; i < count; i++) edges.push_back({Ref<GradNode>(this), uint32_t(results++)});
  return edges;
}

// (name, function, context, inputs, results, tensors to save, to): makes the results those of a new node. If `to` is a
// result of an earlier node of this kind, that node gets the same number of further results, and the last gradients
// that the new node's function returns are theirs.
int make_node_of(lua_State* L) {
  lua_settop(L, 7);
  const auto list = [L](int at) { return to_list(L, at, lua_objlen(L, at)); };
  const std::vector<Tensor> inputs = list(4), results = list(5), saved = list(6);
  const std::string title = lua_tostring(L, 1);
  for (const Tensor& r : results) check_is_new(title.c_str(), r);
  auto* node = new LuaNode(title, L, 2, 3);
  const Ref<GradNode> keep(node);
  link(*node, inputs);
  if (Tensor* to = to_tensor(L, 7)) {
    auto* earlier = dynamic_cast<LuaNode*>(gradient_edge(*to).node.get());
    if (!earlier) fail_internal(title, ": what it passes gradients to is no node of Lua's");
    for (Edge& e : earlier->more_results(results.size())) node->next.push_back(std::move(e));
  }
  node->results = results.size();
  for (size_t i = 0; i < results.size(); i++) set_history(results[i], keep, uint32_t(i));
  for (const Tensor& t : saved) node->saved.save(node, t);
  return 0;
}

}  // namespace lutra
