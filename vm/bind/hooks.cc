// Gradient hooks that are Lua functions. Registering one returns a handle that removes the hook. Invariants:
// 1. A hook may capture its tensor. So the environment of the tensor's userdata holds its function, where LuaJIT can
//    collect the cycle.
// 2. LuaJIT cannot see a graph that refers to the tensor, or a tensor without a userdata. In these cases the state
//    holds the function.
// 3. A hook of a non-leaf belongs to its node, which may outlive the tensor and is freed with the graph by backward. A
//    Watcher among the tensor's own hooks is notified of its userdata and of graphs.
#include "vm/bind/hooks.h"

#include <lua.hpp>

#include "ops/grad/tape.h"
#include "vm/bind/anchor.h"
#include "vm/bind/functions.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/bind/userdata.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

class LuaHook : public UserdataKeeper, public LuaCallee {
 public:
  // Makes a hook of the function at the top, which stays there. node: t's node, null for a leaf.
  LuaHook(lua_State* L, const TensorImpl* t, const GradNode* node)
      : function_(L), address_(lua_topointer(L, -1)), tensor_(t), node_(node) {}
  ~LuaHook() override { drop(); }

  void drop() {
    removed_ = true;
    if (in_turn_) return;
    if (function_.usable() && userdata_) function_.take_from_environment(tensor_);
    function_.drop();
  }

  void take_turn(bool begins) override {
    in_turn_ += begins ? 1 : -1;
    if (removed_) drop();
  }
  // If a reference to the node was dropped, the remaining one need not be the tensor's. The call is then ignored unless
  // it is.
  void graph_leads_here(bool leads) override {
    if (!leads && node_ && !(userdata_ && is_result())) return;
    graph_ = leads;
    hold();
  }
  void lose_userdata() override {
    userdata_ = false;
    hold();
  }
  void gain_userdata(lua_State* L) override {
    if (!function_.is_of(L)) return;
    function_.put_into_environment(L);
    userdata_ = true;
    hold();
  }

  HookFunction function() const {
    if (function_.dropped() || !function_.is_state_alive()) return {};
    return {function_.state(), address_};
  }
  int push_functions(lua_State* L) const override {
    if (function_.dropped() || !function_.is_of(L)) return 0;
    function_.push(L);
    return 1;
  }
  int push_arguments(lua_State* L, const std::vector<Tensor>& tensors) const override {
    push_tensor(L, tensors[0]);
    return 1;
  }

  // Calls the function with a gradient. Returns the gradient that replaces it, or null to keep it. Lua errors
  // propagate.
  Tensor call(const Tensor& given, bool post_accumulate) const {
    lua_State* now = current_lua();
    if (function_.dropped() || !now) return Tensor();
    const int top = lua_gettop(now);
    luaL_checkstack(now, 6, "hook");
    function_.push(now);
    push_tensor(now, given);
    lua_call(now, 1, 1);
    Tensor* replaced = to_tensor(now, -1);
    if (post_accumulate && !lua_isnil(now, -1)) {
      fail("register_post_accumulate_grad_hook: Tensor post accumulate grad hooks should return nil.");
    }
    if (!replaced && !lua_isnil(now, -1)) {
      fail("register_hook: a hook returns a Tensor or nil, not a ", luaL_typename(now, -1));
    }
    Tensor out = replaced ? *replaced : Tensor();
    lua_settop(now, top);
    return out;
  }

 private:
  bool is_result() const { return tensor_->autograd && tensor_->autograd->grad_fn.get() == node_; }
  void hold() { function_.hold(graph_ || !userdata_); }

  Anchor function_;
  const void* const address_;
  const TensorImpl* const tensor_;  // valid while it has a userdata
  const GradNode* const node_;
  bool graph_ = false, userdata_ = false, removed_ = false;
  int in_turn_ = 0;  // number of nested backwards that use it
};

// A keeper among the hooks of a non-leaf itself, which do not run. It forwards notifications as long as the node's hook
// exists.
struct Watcher : UserdataKeeper {
  std::weak_ptr<LuaHook> hook;
  explicit Watcher(const std::shared_ptr<LuaHook>& h) : hook(h) {}
  void graph_leads_here(bool leads) override {
    if (const auto h = hook.lock()) h->graph_leads_here(leads);
  }
  void lose_userdata() override {
    if (const auto h = hook.lock()) h->lose_userdata();
  }
  void gain_userdata(lua_State* L) override {
    if (const auto h = hook.lock()) h->gain_userdata(L);
  }
};

struct Handle {
  std::weak_ptr<LuaHook> hook;
  std::function<void()> remove;
};

int collect_handle(lua_State* L) {
  static_cast<Handle*>(lua_touserdata(L, 1))->~Handle();
  return 0;
}

int remove_handle(lua_State* L) {
  auto* handle = static_cast<Handle*>(lua_touserdata(L, lua_upvalueindex(1)));
  handle->remove();
  if (auto hook = handle->hook.lock()) hook->drop();
  return 0;
}

// Pushes a handle: a table with remove(), as in PyTorch.
void push_handle(lua_State* L, Handle handle) {
  lua_createtable(L, 0, 1);
  new (lua_newuserdata(L, sizeof(Handle))) Handle(std::move(handle));
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, collect_handle);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_pushcclosure(L, remove_handle, 1);
  lua_setfield(L, -2, "remove");
}

UserdataKeeper* keeper_of(const GradHook& hook) { return static_cast<UserdataKeeper*>(hook.keeper.get()); }

// Returns null if the hook does not call a Lua function.
const LuaHook* lua_hook(const GradHook& hook) { return dynamic_cast<const LuaHook*>(hook.keeper.get()); }

int register_hook_of(lua_State* L, const char* name, bool post_accumulate) {
  Tensor* t = to_tensor(L, 1);
  if (!t) fail(name, ": argument 'input' must be a Tensor, got ", luaL_typename(L, 1));
  if (lua_type(L, 2) != LUA_TFUNCTION) {
    fail(name, ": argument 'hook' must be a function, got ", luaL_typename(L, 2));
  }
  if (!(*t)->requires_grad) fail(name, ": the tensor does not require grad");
  lua_settop(L, 2);
  const GradNode* node = is_leaf(*t) ? nullptr : gradient_edge(*t).node.get();
  auto hook = std::make_shared<LuaHook>(L, t->get(), node);
  const auto run = [hook, post_accumulate](const Tensor& given) { return hook->call(given, post_accumulate); };
  lua_pushvalue(L, 1);
  hook->gain_userdata(L);
  lua_settop(L, 2);
  Handle handle{hook,
                post_accumulate ? register_post_accumulate_grad_hook(*t, run, hook) : register_hook(*t, run, hook)};
  if (node) {
    const auto live = node->hooks.back().second.live;
    (*t)->autograd->hooks.push_back({[](const Tensor&) { return Tensor(); }, std::make_shared<Watcher>(hook), live});
    hook->graph_leads_here(node->refs.load() > 1);
  }
  push_handle(L, std::move(handle));
  return 1;
}

}  // namespace

int register_hook_of(lua_State* L) { return register_hook_of(L, "register_hook", false); }
int register_post_accumulate_grad_hook_of(lua_State* L) {
  return register_hook_of(L, "register_post_accumulate_grad_hook", true);
}

const GradHook* hook_at(const Tensor& leaf, int k) {
  if (!leaf->autograd) return nullptr;
  const bool post_accumulate = k < 0;
  if (post_accumulate) k = ~k;
  for (const GradHook& hook : leaf->autograd->hooks) {
    if (*hook.live && hook.post_accumulate == post_accumulate && k-- == 0) return &hook;
  }
  return nullptr;
}

HookFunction function_of(const GradHook& hook) {
  const LuaHook* h = lua_hook(hook);
  return h ? h->function() : HookFunction();
}

void push_hook(lua_State* L, const Tensor& leaf, int k) {
  const GradHook* hook = hook_at(leaf, k);
  if (!hook) return lua_pushnil(L);
  const LuaHook* h = lua_hook(*hook);
  if (!h || !h->push_functions(L)) lua_pushboolean(L, 0);
}

void hooks_gain_userdata(lua_State* L, const AutogradMeta& meta) {
  luaL_checkstack(L, 6, "hooks");
  for (const GradHook& hook : meta.hooks) {
    if (hook.keeper) keeper_of(hook)->gain_userdata(L);
  }
}

void hooks_lose_userdata(const AutogradMeta& meta) {
  for (const GradHook& hook : meta.hooks) {
    if (hook.keeper) keeper_of(hook)->lose_userdata();
  }
}

}  // namespace lutra
