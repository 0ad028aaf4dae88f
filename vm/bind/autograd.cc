// The tape from Lua: backward, grad, hooks, grad mode.
#include "ops/core/half.h"
#include "ops/defs/autocast.h"
#include "ops/grad/tape.h"

#include <lua.hpp>

#include "vm/bind/functions.h"
#include "vm/bind/lua_reader.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

// (input, gradient, retain_graph, create_graph, inputs)
LuaResults backward_of(Args& a) {
  const bool create = a[3].as<bool>(), retain = a[2].is_none() ? create : a[2].as<bool>();
  const auto inputs = a[4].is_none() ? std::vector<Tensor>() : a[4].as<std::vector<Tensor>>();
  backward({a[0].tensor()}, {a[1].tensor()}, retain, create, inputs);
  return {};
}

// (outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused)
LuaResults grad_of(Args& a) {
  const bool create = a[4].as<bool>(), retain = a[3].is_none() ? create : a[3].as<bool>();
  const auto outputs = a[0].as<std::vector<Tensor>>();
  auto seeds = a[2].is_none() ? std::vector<Tensor>(outputs.size()) : a[2].as<std::vector<Tensor>>();
  if (seeds.size() != outputs.size()) {
    fail("grad: ", outputs.size(), " outputs, but ", seeds.size(), " grad_outputs");
  }
  LuaResults out;
  for (const Tensor& g : grad(outputs, a[1].as<std::vector<Tensor>>(), seeds, retain, create, a[5].as<bool>())) {
    out.push_back(g ? Value(g) : Value());
  }
  return out;
}

LuaResults retain_grad_of(Args& a) {
  const Tensor t = a[0].tensor();
  if (!t->requires_grad) fail("retain_grad: the tensor does not require grad");
  if (!is_leaf(t)) retain_grad(t);
  return {};
}

// -- hooks: a Lua function anchored in the registry of the state that registered it

struct LuaHook {
  lua_State* L;
  std::weak_ptr<bool> alive;
  int function;
  LuaHook(lua_State* L, int function) : L(L), alive(runtime_alive(L)), function(function) {}
  LuaHook(const LuaHook&) = delete;
  ~LuaHook() { drop(); }
  void drop() {
    auto live = alive.lock();
    if (live && *live && function != LUA_NOREF) luaL_unref(L, LUA_REGISTRYINDEX, function);
    function = LUA_NOREF;
  }
  lay_anew(*t);
  // The gradient in its place, or null to keep it. Lua errors pass through.
  Tensor call(const Tensor& grad) const {
    lua_State* now = current_lua();
    if (function == LUA_NOREF || !now) return Tensor();
    const int top = lua_gettop(now);
    luaL_checkstack(now, 4, "hook");
    lua_rawgeti(now, LUA_REGISTRYINDEX, function);
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

int register_lua_hook(lua_State* L) {
  Tensor* t = to_tensor(L, 1);
  if (!t) fail("register_hook: argument 'input' must be a Tensor, got ", luaL_typename(L, 1));
  if (lua_type(L, 2) != LUA_TFUNCTION) {
    fail("register_hook: argument 'hook' must be a function, got ", luaL_typename(L, 2));
  }
  if (!(*t)->requires_grad) fail("register_hook: the tensor does not require grad");
  lua_settop(L, 2);
  const int ref = luaL_ref(L, LUA_REGISTRYINDEX);
  auto hook = std::make_shared<LuaHook>(runtime(L).L, ref);
  push_handle(L, {hook, register_hook(*t, [hook](const Tensor& grad) { return hook->call(grad); })});
  return 1;
}

// (parameter, tensor): nn.Module:to. The parameter stays the object that optimisers hold and takes the tensor's memory
// and dtype. Graphs hold what they have saved of it; compiled code holds the parameter itself, and learns by the
// version that its elements are others.
int set_data(lua_State* L) {
  Tensor *t = to_tensor(L, 1), *from = to_tensor(L, 2);
  if (!t || !from) fail("set_data: takes two Tensors");
  if ((*t)->base || !is_leaf(*t)) fail("set_data: the tensor is a view or the result of an op");
  clear_autocast_cache();
  (*from)->storage->version = (*t)->storage->version + 1;
  (*t)->storage = (*from)->storage;
  (*t)->sizes = (*from)->sizes, (*t)->strides = (*from)->strides, (*t)->offset = (*from)->offset;
  (*t)->dtype = (*from)->dtype;
  return 0;
}

size_t autocast_device(const char* function, const Args& args) {
  const std::string& type = args[0].as<std::string>();
  if (type != "cpu" && type != "cuda") {
    fail(function, ": argument 'device_type' must be \"cpu\" or \"cuda\", got \"", type, "\"");
  }
  return type == "cuda";
}

const HostFunction kRows[] = {
    {"backward",
     "Tensor input, Tensor? gradient=None, bool? retain_graph=None, bool create_graph=False, Tensor[]? inputs=None",
     kMethod, backward_of},
    {"grad",
     "Tensor[] outputs, Tensor[] inputs, Tensor[]? grad_outputs=None, bool? retain_graph=None, bool "
     "create_graph=False, "
     "bool allow_unused=False",
     kFunctionOf, grad_of},
    {"requires_grad_", "Tensor input, bool requires_grad=True", kMethod,
     [](Args& a) -> LuaResults {
       set_requires_grad(a[0].tensor(), a[1].as<bool>(), "requires_grad_");
       return {a[0]};
     }},
    {"retain_grad", "Tensor input", kMethod | kHostEffect, retain_grad_of},
    {"detach_", "Tensor input", kMethod | kHostEffect,
     [](Args& a) -> LuaResults {
       const Tensor t = a[0].tensor();
       if (t->base) fail("detach_: a view cannot be detached in place; use detach()");
       t->autograd = nullptr;
       t->requires_grad = false;
       return {t};
     }},
    {"set_grad_enabled", "bool mode", kFunctionOf | kHostEffect,
     [](Args& a) -> LuaResults {
       set_grad_enabled(a[0].as<bool>());
       return {};
     }},
    {"is_grad_enabled", "", kFunctionOf, [](Args&) -> LuaResults { return {grad_enabled()}; }},
    {"is_autocast_enabled", "str device_type='cuda'", kFunctionOf,
     [](Args& a) -> LuaResults {
       note_autocast_read();
       return {autocast_mode().enabled[autocast_device("is_autocast_enabled", a)]};
     }},
    {"get_autocast_dtype", "str device_type", kFunctionOf,
     [](Args& a) -> LuaResults {
       note_autocast_read();
       return {autocast_mode().dtype[autocast_device("get_autocast_dtype", a)]};
     }},
    {"is_autocast_cache_enabled", "", kFunctionOf,
     [](Args&) -> LuaResults {
       note_autocast_read();
       return {autocast_mode().cache};
     }},
    {"set_autocast_enabled", "str device_type, bool enabled", kFunctionOf | kHostEffect,
     [](Args& a) -> LuaResults {
       AutocastMode mode = autocast_mode();
       mode.enabled[autocast_device("set_autocast_enabled", a)] = a[1].as<bool>();
       set_autocast_mode(mode);
       return {};
     }},
    {"set_autocast_dtype", "str device_type, dtype dtype", kFunctionOf | kHostEffect,
     [](Args& a) -> LuaResults {
       AutocastMode mode = autocast_mode();
       const DType type = a[1].as<DType>();
       if (!is_half(type)) {
         fail("set_autocast_dtype: dtype must be bfloat16 or float16, got ", name(type));
       }
       mode.dtype[autocast_device("set_autocast_dtype", a)] = type;
       set_autocast_mode(mode);
       return {};
     }},
    {"set_autocast_cache_enabled", "bool enabled", kFunctionOf | kHostEffect,
     [](Args& a) -> LuaResults {
       AutocastMode mode = autocast_mode();
       mode.cache = a[0].as<bool>();
       set_autocast_mode(mode);
       return {};
     }},
    {"clear_autocast_cache", "", kFunctionOf | kHostEffect,
     [](Args&) -> LuaResults {
       clear_autocast_cache();
       return {};
     }},
};

const Special kSpecials[] = {
    {"register_hook", kMethod | kHostEffect, nullptr, register_lua_hook},
    {"_native.set_data", kHostEffect, nullptr, set_data},
};

}  // namespace

std::span<const HostFunction> autograd_rows() { return kRows; }
std::span<const Special> autograd_specials() { return kSpecials; }

}  // namespace lutra
