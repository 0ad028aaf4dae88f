// The tape from Lua: backward, grad, hooks, grad mode.
#include "ops/core/closest.h"
#include "ops/core/half.h"
#include "ops/defs/autocast.h"
#include "ops/grad/tape.h"

#include <lua.hpp>

#include "vm/bind/functions.h"
#include "vm/bind/lua_reader.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/bind/userdata.h"
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

// (parameter, tensor), for nn.Module:to. Gives the parameter the tensor's memory and dtype; it stays the same object
// for optimisers. Graphs keep the memory that they have saved.
int set_data_of(lua_State* L) {
  Tensor *t = to_tensor(L, 1), *from = to_tensor(L, 2);
  if (!t || !from) fail("set_data: takes two Tensors");
  set_data(*t, *from);
  return 0;
}

size_t autocast_device(const char* function, const Args& args) {
  const std::string& type = args[0].as<std::string>();
  if (type != "cpu" && type != "cuda") {
    fail(function, ": argument 'device_type' must be \"cpu\" or \"cuda\", got \"", type, "\"",
         KnownNames{"cpu", "cuda"}.question(type));
  }
  return type == "cuda";
}

const HostFunction kAutogradRows[] = {
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
       if (t->is_view()) fail("detach_: a view cannot be detached in place; use detach()");
       t->autograd = nullptr;
       t->requires_grad = false;
       t->changed();
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

const Special kAutogradSpecials[] = {
    {"register_hook", kMethod | kHostEffect, nullptr, register_hook_of},
    {"register_post_accumulate_grad_hook", kMethod | kHostEffect, nullptr, register_post_accumulate_grad_hook_of},
    {"_native.set_data", kHostEffect, nullptr, set_data_of},
    {"_native.make_node", kHostEffect, nullptr, make_node_of},
    {"_native.checkpoint", kHostEffect, nullptr, checkpoint_of},
};

}  // namespace

std::span<const HostFunction> autograd_rows() { return kAutogradRows; }
std::span<const Special> autograd_specials() { return kAutogradSpecials; }

}  // namespace lutra
