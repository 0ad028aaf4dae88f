// The call functions of lutra.h: calls of Lua functions and of ops by name, with tensors or values; functions of the
// host; state dictionaries.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <lua.hpp>
#include <memory>

#include "ops/core/closest.h"
#include "vm/bind/functions.h"
#include "vm/bind/save.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/capi/sandbox.h"
#include "vm/capi/values.h"
#include "vm/host/callable.h"
#include "vm/host/runtime.h"

struct lutra_Function {
  lutra_State* S;
  uint64_t generation;
  int place;  // reference in the registry
};

namespace lutra::capi {
namespace {

constexpr int kMaxValues = 250;  // the most arguments of one LuaJIT call
constexpr int kRoom = 16;

// The inputs and outputs of a call, as tensors or as values.
struct TensorCall {
  lutra_Tensor* const* inputs;
  int n;
  lutra_Tensor** outputs;
  int m;
  void clear() const {
    for (int i = 0; i < m; i++) outputs[i] = nullptr;
  }
  const lutra_Tensor* first() const { return n > 0 ? inputs[0] : nullptr; }
  int push(lua_State* L) const { return push_tensors(L, inputs, n); }
  void take(lutra_State*, lua_State* L, int base) const { take_tensors(L, base, outputs, m); }
};

struct ValueCall {
  const lutra_Value* inputs;
  int n;
  lutra_Value* outputs;
  int m;
  void clear() const {
    if (m > 0) std::memset(outputs, 0, size_t(m) * sizeof *outputs);
  }
  const lutra_Tensor* first() const { return n > 0 && inputs[0].kind == LUTRA_TENSOR ? inputs[0].as.tensor : nullptr; }
  int push(lua_State* L) const { return push_values(L, inputs, n); }
  void take(lutra_State* S, lua_State* L, int base) const { take_values(S, L, base, outputs, m); }
};

// Runs the call of the function that push(L) pushes.
template <class Call, class Push>
int run_call(StateScope& scope, lutra_State* S, const Call& call, Push&& push) {
  if (!scope) return scope.code();
  if (call.n < 0 || call.m < 0 || call.n > kMaxValues || call.m > kMaxValues) {
    return scope.fail(LUTRA_ERROR_ARGUMENT, scope.fn(), ": 0 to ", kMaxValues, " inputs and outputs are possible, got ",
                      call.n, " and ", call.m);
  }
  if ((call.n > 0 && !scope.has(call.inputs, "inputs")) || (call.m > 0 && !scope.has(call.outputs, "outputs"))) {
    return scope.code();
  }
  call.clear();
  return scope.run([&](lua_State* L) {
    push(L);
    const int base = lua_gettop(L) - 1;
    lua_call(L, call.push(L), LUA_MULTRET);
    call.take(S, L, base);
    return 0;
  });
}

template <class Call>
int invoke(lutra_Function* function, const Call& call, const char* fn) {
  if (!function) return fail_thread(LUTRA_ERROR_ARGUMENT, fn, "the function is NULL");
  lutra_State* S = function->S;
  if (S->generation != function->generation) return fail_thread(LUTRA_ERROR_STATE, fn, "the state is closed");
  StateScope scope(S, fn);
  return run_call(scope, S, call, [&](lua_State* L) { lua_rawgeti(L, LUA_REGISTRYINDEX, function->place); });
}

[[noreturn]] void no_such_op(const char* name) {
  KnownNames known;
  for (const Binding& row : bindings()) {
    if (row.flags & (kMethod | kFunctionOf)) known.add(row.name);
  }
  refuse("there is no op '", name, "'", known.question(name));
}

// "nil", "a number", ...
std::string kind_at(lua_State* L, int index) {
  return lua_isnil(L, index) ? "nil" : str("a ", luaL_typename(L, index));
}

// Pushes lt.NAME (for a name with dots lt.A.B). For a name that is only a method, pushes that method of the first
// tensor.
void push_op(lua_State* L, int module, const char* name, const lutra_Tensor* first) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, module);
  const char* at = name;
  while (const char* dot = std::strchr(at, '.')) {
    lua_pushlstring(L, at, size_t(dot - at));
    lua_gettable(L, -2);
    lua_remove(L, -2);
    if (!lua_istable(L, -1)) no_such_op(name);
    at = dot + 1;
  }
  lua_getfield(L, -1, at);
  if (lua_isnil(L, -1) && at == name && first && find_method(name)) {
    lua_pop(L, 1);
    push_tensor(L, first->tensor);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
  }
  lua_remove(L, -2);
  if (!can_be_called(L, -1)) no_such_op(name);
}

template <class Call>
int run_op(lutra_State* S, const char* name, const Call& call, const char* fn) {
  StateScope scope(S, fn);
  if (!scope.has(name, "the name")) return scope.code();
  return run_call(scope, S, call, [&](lua_State* L) { push_op(L, S->module, name, call.first()); });
}

// Releases the functions that the host freed while the state could not be used.
void drop_functions(lutra_State* S) {
  std::lock_guard lock(S->mutex);
  for (const int place : S->dropped) luaL_unref(S->L, LUA_REGISTRYINDEX, place);
  S->dropped.clear();
}

// -- functions of the host

struct RegisteredFunction {
  lutra_State* S;
  uint64_t generation;
  lutra_Callback callback;
  void* arg;
};

// The values of a callback. The destructor frees all inputs and the outputs that the callback filled.
struct CallbackValues {
  lutra_Value inputs[kMaxValues] = {}, outputs[kRoom] = {};
  int n = 0;
  ~CallbackValues() {
    lutra_values_free(inputs, n);
    for (lutra_Value& v : outputs) {
      if (v.kind == LUTRA_TABLE) v = {};  // it belongs to the host
    }
    lutra_values_free(outputs, kRoom);
  }
};

// Makes the calling coroutine the state's lua_State while a callback runs.
class InCallback {
 public:
  InCallback(lutra_State* S, lua_State* L) : S_(S), saved_(S->L) { S->L = L; }
  ~InCallback() { S_->L = saved_; }
  InCallback(const InCallback&) = delete;

 private:
  lutra_State* S_;
  lua_State* saved_;
};

int call_host(lua_State* L) {
  const auto& r = *static_cast<const RegisteredFunction*>(lua_touserdata(L, lua_upvalueindex(1)));
  const char* name = lua_tostring(L, lua_upvalueindex(2));
  if (r.S->generation != r.generation || !r.S->open) fail(name, ": the host has closed its state");
  const StateScope scope(r.S, name);
  if (!scope) fail(thread_error());
  const InCallback in_callback(r.S, L);
  const auto values = std::make_unique<CallbackValues>();
  if (lua_gettop(L) > kMaxValues) fail(name, ": at most ", kMaxValues, " arguments are possible");
  for (int i = 0; i < lua_gettop(L); i++) values->inputs[i] = value_at(L, i + 1), values->n = i + 1;
  r.S->callback_error.clear();
  int m = kRoom;
  const int code = r.callback(r.S, r.arg, values->inputs, values->n, values->outputs, &m);
  if (code != LUTRA_OK) {
    if (!r.S->callback_error.empty()) fail(r.S->callback_error);
    fail(name, ": the host's function failed with code ", code);
  }
  if (m < 0 || m > kRoom) fail(name, ": the host's function says that it gives ", m, " results");
  try {
    return push_values(L, values->outputs, m);
  } catch (const ArgumentError& error) {
    fail(name, ": of the host's results ", error.what());
  }
}
int host_entry(lua_State* L) { return guarded(L, call_host); }

// Pushes the table that holds the last part of a dotted name, creating missing tables. Returns the last part.
const char* push_owner(lua_State* L, const char* name) {
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  const char* at = name;
  while (const char* dot = std::strchr(at, '.')) {
    const std::string part(at, dot);
    if (part.empty()) refuse("'", name, "' has an empty part");
    lua_getfield(L, -1, part.c_str());
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      lua_newtable(L);
      lua_pushvalue(L, -1);
      lua_setfield(L, -3, part.c_str());
    }
    if (!lua_istable(L, -1)) refuse("'", std::string(name, dot), "' is ", kind_at(L, -1), ", no table");
    lua_remove(L, -2);
    at = dot + 1;
  }
  return at;
}

// -- state dictionaries

// Calls module:load_state_dict(dictionary), where push(L) pushes the dictionary.
template <class Push>
int load_state(StateScope& scope, const char* module, Push&& push) {
  return scope.run([&](lua_State* L) {
    push_expression(L, module);
    if (!lua_istable(L, -1)) refuse("'", module, "' is ", kind_at(L, -1), ", no module");
    lua_getfield(L, -1, "load_state_dict");
    if (!lua_isfunction(L, -1)) refuse("'", module, "' has no load_state_dict");
    lua_insert(L, -2);
    push(L);
    lua_call(L, 2, 0);
    return 0;
  });
}

}  // namespace
}  // namespace lutra::capi

using namespace lutra;
using namespace lutra::capi;

extern "C" int lutra_function(lutra_State* S, const char* expression, lutra_Function** function) {
  if (function) *function = nullptr;
  StateScope scope(S, "lutra_function");
  if (!scope.has(expression, "the expression") || !scope.has(function, "function")) return scope.code();
  drop_functions(S);
  auto fresh = std::unique_ptr<lutra_Function>(new (std::nothrow) lutra_Function{S, S->generation, LUA_NOREF});
  if (!fresh) return scope.fail(LUTRA_ERROR_MEMORY, "lutra_function: out of memory");
  const int code = scope.run([&](lua_State* L) {
    push_expression(L, expression);
    if (!can_be_called(L, -1)) {
      refuse("'", expression, "' is ", kind_at(L, -1), ", which cannot be called");
    }
    fresh->place = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
  });
  if (code == LUTRA_OK) *function = fresh.release();
  return code;
}

extern "C" void lutra_function_free(lutra_Function* function) {
  if (!function) return;
  const std::unique_ptr<lutra_Function> owned(function);
  lutra_State* S = function->S;
  std::lock_guard lock(S->mutex);
  if (S->generation != function->generation || !S->open) return;
  try {
    S->dropped.push_back(function->place);
  } catch (const std::bad_alloc&) {  // the function stays in the registry
  }
}

extern "C" int lutra_invoke(lutra_Function* function, lutra_Tensor* const* inputs, int n, lutra_Tensor** outputs,
                            int m) {
  return invoke(function, TensorCall{inputs, n, outputs, m}, "lutra_invoke");
}

extern "C" int lutra_invoke_values(lutra_Function* function, const lutra_Value* inputs, int n, lutra_Value* outputs,
                                   int m) {
  return invoke(function, ValueCall{inputs, n, outputs, m}, "lutra_invoke_values");
}

extern "C" int lutra_op(lutra_State* S, const char* name, lutra_Tensor* const* inputs, int n, lutra_Tensor** outputs,
                        int m) {
  return run_op(S, name, TensorCall{inputs, n, outputs, m}, "lutra_op");
}

extern "C" int lutra_op_values(lutra_State* S, const char* name, const lutra_Value* inputs, int n, lutra_Value* outputs,
                               int m) {
  return run_op(S, name, ValueCall{inputs, n, outputs, m}, "lutra_op_values");
}

extern "C" void lutra_values_free(lutra_Value* values, int n) {
  for (int i = 0; values && i < n; i++) {
    if (values[i].kind == LUTRA_TENSOR) lutra_tensor_free(values[i].as.tensor);
    if (values[i].kind == LUTRA_TABLE) {
      lutra_values_free(values[i].as.values, int(values[i].length));
      delete[] values[i].as.values;
    }
    values[i] = {};
  }
}

extern "C" int lutra_register(lutra_State* S, const char* name, lutra_Callback callback, void* arg) {
  StateScope scope(S, "lutra_register");
  if (!scope.has(name, "the name")) return scope.code();
  if (!callback) return scope.fail(LUTRA_ERROR_ARGUMENT, "lutra_register: the callback must not be NULL");
  return scope.run([&](lua_State* L) {
    const char* last = push_owner(L, name);
    if (!*last) refuse("'", name, "' has an empty part");
    *static_cast<RegisteredFunction*>(lua_newuserdata(L, sizeof(RegisteredFunction))) = {S, S->generation, callback,
                                                                                         arg};
    lua_pushstring(L, name);
    lua_pushcclosure(L, host_entry, 2);
    lua_setfield(L, -2, last);
    return 0;
  });
}

extern "C" int lutra_fail(lutra_State* S, const char* message) {
  if (!is_mine(S)) return fail_thread(LUTRA_ERROR_STATE, "lutra_fail", "the state cannot be used here");
  try {
    S->callback_error = message ? message : "the host's function failed";
  } catch (const std::bad_alloc&) {
    S->callback_error.clear();
  }
  return LUTRA_ERROR_RUN;
}

extern "C" int lutra_load_state(lutra_State* S, const char* module, const char* path) {
  StateScope scope(S, "lutra_load_state");
  if (!scope.has(module, "the module") || !scope.has(path, "the path")) return scope.code();
  if (FILE* file = std::fopen(path, "rb")) {
    std::fclose(file);
  } else {
    return scope.fail(LUTRA_ERROR_FILE, "lutra_load_state: cannot open '", path, "': ", std::strerror(errno));
  }
  return load_state(scope, module, [&](lua_State* L) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, S->module);
    lua_getfield(L, -1, "load");
    lua_remove(L, -2);
    lua_pushstring(L, path);
    const SandboxPause by_the_host(L);
    lua_call(L, 1, 1);
  });
}

extern "C" int lutra_load_state_memory(lutra_State* S, const char* module, const void* data, size_t bytes) {
  StateScope scope(S, "lutra_load_state_memory");
  if (!scope.has(module, "the module") || !scope.has(data, "data")) return scope.code();
  return load_state(scope, module, [&](lua_State* L) { push_safetensors(L, data, bytes); });
}
