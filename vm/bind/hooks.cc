// Hooks of gradients, which are Lua functions. A tensor and a function in; a handle out that removes the hook again.
// Invariants:
// 1. kFunctionsKey is a weak-valued table from ids to functions; who holds a function is another question.
// 2. A hook of a leaf may capture the leaf. So its function lies in the environment of the leaf's userdata, where
//    LuaJIT sees the cycle.
// 3. What LuaJIT cannot see is a graph that leads to the leaf, or a leaf that has no userdata: then kHeldKey, which is
//    a table from ids to functions or false, holds the function. Of a non-leaf, it always does.
#include <lua.hpp>

#include "ops/grad/tape.h"
#include "vm/bind/functions.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/bind/userdata.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

const char kFunctionsKey = 0, kHeldKey = 0, kOwnKey = 0;

// The registry's table under key, made on first use with values of this mode.
void push_table_of(lua_State* L, const char* key, const char* mode) {
  lua_pushlightuserdata(L, const_cast<char*>(key));
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_newtable(L);
  if (*mode) {
    lua_createtable(L, 0, 1);
    lua_pushstring(L, mode);
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
  }
  lua_pushlightuserdata(L, const_cast<char*>(key));
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}
void push_functions(lua_State* L) { push_table_of(L, &kFunctionsKey, "v"); }
void push_held(lua_State* L) { push_table_of(L, &kHeldKey, ""); }

// The environment of the userdata at the top, which is hooks' own from the first one on.
void push_environment(lua_State* L) {
  lua_getfenv(L, -1);
  lua_pushlightuserdata(L, const_cast<char*>(&kOwnKey));
  lua_rawget(L, -2);
  const bool own = lua_toboolean(L, -1);
  lua_pop(L, 1);
  if (own) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushlightuserdata(L, const_cast<char*>(&kOwnKey));
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  lua_pushvalue(L, -1);
  lua_setfenv(L, -3);
}

class LuaHook : public HookKeeper {
 public:
  // Of the function at the top, which stays there; leaf: null for a non-leaf.
  LuaHook(lua_State* L, const TensorImpl* leaf) : L_(runtime(L).L), alive_(runtime_alive(L)), leaf_(leaf) {
    push_held(L);
    lua_pushvalue(L, -2);
    id_ = luaL_ref(L, -2);
    lua_pop(L, 1);
    push_functions(L);
    lua_pushvalue(L, -2);
    lua_rawseti(L, -2, id_);
    lua_pop(L, 1);
  }
  LuaHook(const LuaHook&) = delete;
  ~LuaHook() override { drop(); }

  void drop() {
    if (!usable()) return;
    forget_in_environment();
    push_functions(L_);
    lua_pushnil(L_);
    lua_rawseti(L_, -2, id_);
    push_held(L_);
    luaL_unref(L_, -1, id_);
    lua_pop(L_, 2);
    id_ = LUA_NOREF;
  }

  void graph_leads_here(bool leads) override {
    graph_ = leads;
    hold();
  }
  void lose_userdata() {
    userdata_ = false;
    hold();
  }
  // The userdata is at the top of L, a thread of this state or of another one.
  void gain_userdata(lua_State* L) {
    if (!usable() || !leaf_ || runtime(L).L != L_) return;
    push_environment(L);
    push_functions(L);
    lua_rawgeti(L, -1, id_);
    lua_rawseti(L, -3, id_);
    lua_pop(L, 2);
    userdata_ = true;
    hold();
  }

  // The gradient in its place, or null to keep it. Lua errors pass through.
  Tensor call(const Tensor& grad) const {
    lua_State* now = current_lua();
    if (id_ == LUA_NOREF || !now) return Tensor();
    const int top = lua_gettop(now);
    luaL_checkstack(now, 6, "hook");
    push_functions(now);
    lua_rawgeti(now, -1, id_);
    push_tensor(now, grad);
    lua_call(now, 1, 1);
    Tensor* replaced = to_tensor(now, -1);
    if (!replaced && !lua_isnil(now, -1)) {
      fail("register_hook: a hook returns a Tensor or nil, not a ", luaL_typename(now, -1));
    }
    Tensor out = replaced ? *replaced : Tensor();
    lua_settop(now, top);
    return out;
  }

 private:
  bool usable() const {
    const auto live = alive_.lock();
    return live && *live && id_ != LUA_NOREF && lua_checkstack(L_, 6);
  }
  // A key that is there takes another value: that needs no memory.
  void hold() {
    if (!usable()) return;
    push_held(L_);
    push_functions(L_);
    lua_rawgeti(L_, -1, id_);
    if (leaf_ && !graph_ && userdata_) lua_pop(L_, 1), lua_pushboolean(L_, 0);
    lua_rawseti(L_, -3, id_);
    lua_pop(L_, 2);
  }
  void forget_in_environment() {
    if (!leaf_ || !userdata_) return;
    push_known_tensor(L_, leaf_);
    if (!lua_isnil(L_, -1)) {
      push_environment(L_);
      lua_pushnil(L_);
      lua_rawseti(L_, -2, id_);
      lua_pop(L_, 1);
    }
    lua_pop(L_, 1);
  }

  lua_State* L_;
  std::weak_ptr<bool> alive_;
  const TensorImpl* leaf_;
  int id_;
  bool graph_ = false, userdata_ = false;
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

// A table with remove(), as PyTorch's handles.
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

LuaHook* hook_of(const GradHook& hook) { return static_cast<LuaHook*>(hook.keeper.get()); }

}  // namespace

int register_hook_of(lua_State* L) {
  Tensor* t = to_tensor(L, 1);
  if (!t) fail("register_hook: argument 'input' must be a Tensor, got ", luaL_typename(L, 1));
  if (lua_type(L, 2) != LUA_TFUNCTION) {
    fail("register_hook: argument 'hook' must be a function, got ", luaL_typename(L, 2));
  }
  if (!(*t)->requires_grad) fail("register_hook: the tensor does not require grad");
  lua_settop(L, 2);
  auto hook = std::make_shared<LuaHook>(L, is_leaf(*t) ? t->get() : nullptr);
  lua_pushvalue(L, 1);
  hook->gain_userdata(L);
  lua_settop(L, 2);
  push_handle(L, {hook, register_hook(
                            *t, [hook](const Tensor& grad) { return hook->call(grad); }, hook)});
  return 1;
}

void hooks_gain_userdata(lua_State* L, const AutogradMeta& meta) {
  luaL_checkstack(L, 6, "hooks");
  for (const GradHook& hook : meta.hooks) {
    if (hook.keeper) hook_of(hook)->gain_userdata(L);
  }
}

void hooks_lose_userdata(const AutogradMeta& meta) {
  for (const GradHook& hook : meta.hooks) {
    if (hook.keeper) hook_of(hook)->lose_userdata();
  }
}

}  // namespace lutra
