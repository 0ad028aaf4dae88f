// Results of Lua code whose gradients Lua code computes (lt.autograd.Function). Functions and tensors in; a node of the
// tape out.
#include <algorithm>

#include <lua.hpp>

#include "ops/grad/node_saves.h"
#include "ops/grad/tape.h"
#include "vm/bind/functions.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/bind/userdata.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

// A value in the registry of the state that put it there.
struct LuaAnchor {
  lua_State* L;
  std::weak_ptr<bool> alive;
  int function;
  LuaAnchor(lua_State* L, int function) : L(L), alive(runtime_alive(L)), function(function) {}
  LuaAnchor(const LuaAnchor&) = delete;
  ~LuaAnchor() { drop(); }
  void drop() {
    auto live = alive.lock();
    if (live && *live && function != LUA_NOREF) luaL_unref(L, LUA_REGISTRYINDEX, function);
    function = LUA_NOREF;
  }
};

void push_list(lua_State* L, const std::vector<Tensor>& list) {
  lua_createtable(L, int(list.size()), 0);
  for (size_t i = 0; i < list.size(); i++) {
    push_tensor(L, list[i]);  // nil where there is none
    lua_rawseti(L, -2, int(i) + 1);
  }
}

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

// Its function takes a context, the gradients of the results and what was saved, two lists, and gives the list of the
// inputs'.
struct LuaNode : GradNode {
  std::string title;
  LuaAnchor anchor, context;
  size_t results = 0;
  NodeSaves saved;

  LuaNode(std::string title, lua_State* L, int function, int context)
      : title(std::move(title)), anchor(L, function), context(L, context) {}
  const char* name() const override { return title.c_str(); }

  std::vector<Tensor> apply(const std::vector<Tensor>& grads, bool create_graph) override {
    lua_State* L = current_lua();
    if (anchor.function == LUA_NOREF || !L) fail_second_backward();
    std::vector<Tensor> given(grads.begin(), grads.begin() + std::min(results, grads.size()));
    given.resize(results);
    for (const Tensor& g : given) {
      if (g && g->is_fake()) throw NeedsData(title + ": its gradient is computed by Lua code");
    }
    const std::vector<Tensor> kept = saved.unpack(this, title, create_graph);
    const int top = lua_gettop(L);
    luaL_checkstack(L, 7, "backward");
    lua_rawgeti(L, LUA_REGISTRYINDEX, anchor.function);
    lua_rawgeti(L, LUA_REGISTRYINDEX, context.function);
    push_list(L, given);
    push_list(L, kept);
    lua_call(L, 3, 1);
    std::vector<Tensor> out = to_list(L, top + 1, next.size());
    lua_settop(L, top);
    return out;
  }

  void release() override {
    if (saved.empty()) return;  // nothing to give back: such a node may run again
    hooks.clear();
    anchor.drop(), context.drop();
    saved.clear();
  }
};

}  // namespace

// (name, function, context, inputs, results, tensors to save): results become those of a new node.
int make_node_of(lua_State* L) {
  lua_settop(L, 6);
  const auto list = [L](int at) { return to_list(L, at, lua_objlen(L, at)); };
  const std::vector<Tensor> inputs = list(4), results = list(5), saved = list(6);
  const std::string title = lua_tostring(L, 1);
  for (const Tensor& r : results) check_is_new(title.c_str(), r);
  lua_pushvalue(L, 2);
  const int function = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_pushvalue(L, 3);
  auto* node = new LuaNode(title, runtime(L).L, function, luaL_ref(L, LUA_REGISTRYINDEX));
  const Ref<GradNode> keep(node);
  link(*node, inputs);
  node->results = results.size();
  for (size_t i = 0; i < results.size(); i++) set_history(results[i], keep, uint32_t(i));
  for (const Tensor& t : saved) node->saved.save(node, t);
  return 0;
}

}  // namespace lutra
