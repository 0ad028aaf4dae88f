// Bindings as Lua functions: the module table, the metatable of tensors, and the C function behind each of them.
#include "vm/bind/module.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <lua.hpp>
#include <string_view>
#include <utility>

#include "ops/core/closest.h"
#include "ops/defs/modes.h"
#include "vm/bind/binding.h"
#include "vm/bind/lua_reader.h"
#include "vm/bind/pressure.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/bind/userdata.h"
#include "vm/host/runtime.h"
#include "vm/host/stdlib.h"

namespace lutra {
namespace {

const Binding& binding_of(lua_State* L) { return *static_cast<const Binding*>(lua_touserdata(L, lua_upvalueindex(1))); }

int push_results(lua_State* L, const LuaResults& results) {
  luaL_checkstack(L, int(results.size()) + 4, "too many results");
  for (const Value& v : results) push_value(L, v);
  return int(results.size());
}

// Returns whether the error does not name a function: errors about memory, a device, a dtype for gradients, sizes.
bool is_unnamed(const Error& error) {
  const std::string_view text = error.what();
  if (error.kind == ErrorKind::kMemory && text.starts_with("out of memory")) return true;
  static constexpr std::string_view kStarts[] = {"device '", "requires_grad: ", "tensors have at most ",
                                                 "a tensor cannot have ", "sizes {"};
  return std::any_of(std::begin(kStarts), std::end(kStarts), [&](auto start) { return text.starts_with(start); });
}

// Runs run() and puts the called function's name in front of errors that name none.
template <class F>
auto run_named(const std::string& fn, const F& run) -> decltype(run()) {
  try {
    return run();
  } catch (const Error& error) {
    if (!is_unnamed(error)) throw;
    Error named(error.kind, fn + ": " + error.what());
    named.file = error.file, named.line = error.line;
    throw named;
  }
}

int call_binding(lua_State* L) {
  before_call(L);
  if (--modes().calls_to_hook == 0) on_eager_call.load(std::memory_order_relaxed)(L);
  const Binding& binding = binding_of(L);
  if (binding.raw) return run_named(binding.name, [&] { return binding.raw(L); });
  if (binding.op != OpId::kCount && !binding.inplace && lua_gettop(L) == 2) {
    const Tensor *a = to_tensor(L, 1), *b = to_tensor(L, 2);
    Tensor out;
    if (a && b && !binding.copies && call_same(binding.op, *a, *b, out)) return push_tensor(L, out), 1;
  }
  LuaReader in(L);
  return run_named(binding.name, [&] { return push_results(L, binding.fn(binding, in)); });
}

// Lua passes the operand of __unm and __len twice.
int call_unary(lua_State* L) {
  lua_settop(L, 1);
  return call_binding(L);
}
int unary_entry(lua_State* L) { return guarded(L, call_unary); }

// -- x[key], x.name, x:name. Upvalues: 1 methods by name, 2 attributes by name.

// Returns whether s can be a name in x.name. "None" cannot: x[lt.newaxis] is an index.
bool is_identifier(const char* s) {
  if (std::strcmp(s, "None") == 0) return false;
  if (!std::isalpha(static_cast<unsigned char>(*s)) && *s != '_') return false;
  while (std::isalnum(static_cast<unsigned char>(*s)) || *s == '_') ++s;
  return *s == 0;
}

Tensor self_of(lua_State* L) {
  Tensor* t = to_tensor(L, 1);
  if (!t) fail("index: not a Tensor");
  return *t;
}

const Attribute* attribute_of(lua_State* L) {
  lua_pushvalue(L, 2);
  lua_rawget(L, lua_upvalueindex(2));
  auto* attribute = static_cast<const Attribute*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return attribute;
}

[[noreturn]] void no_such_name(const char* kind, std::string_view name) {
  Closest closest(name);
  for (const Attribute& row : attributes()) closest.look(row.name);
  for (const Binding& row : bindings()) {
    if (row.flags & kMethod && std::strcmp(kind, "attribute") != 0) closest.look(row.name);
  }
  fail("Tensor has no ", kind, " '", name,
       closest.best().empty() ? str("'") : str("' (did you mean '", closest.best(), "'?)"));
}

int index_tensor(lua_State* L) {
  const Tensor self = self_of(L);
  if (lua_type(L, 2) == LUA_TSTRING) {
    if (const Attribute* attribute = attribute_of(L)) return push_results(L, attribute->get(self));
    if (is_identifier(lua_tostring(L, 2))) no_such_name("attribute or method", lua_tostring(L, 2));
  }
  LuaReader in(L);
  push_tensor(L, run_named("index", [&] { return index_get(self, in, 1); }));
  return 1;
}

int index_entry(lua_State* L) {
  if (lua_type(L, 2) == LUA_TSTRING) {
    lua_pushvalue(L, 2);
    lua_rawget(L, lua_upvalueindex(1));
    if (!lua_isnil(L, -1)) return 1;
    lua_pop(L, 1);
  }
  return guarded(L, index_tensor);
}

int newindex_tensor(lua_State* L) {
  const Tensor self = self_of(L);
  LuaReader in(L);
  if (lua_type(L, 2) == LUA_TSTRING && is_identifier(lua_tostring(L, 2))) {
    const Attribute* attribute = attribute_of(L);
    if (!attribute) no_such_name("attribute", lua_tostring(L, 2));
    if (!attribute->set) fail("Tensor: attribute '", lua_tostring(L, 2), "' cannot be set");
    attribute->set(self, in, 2);
    return 0;
  }
  run_named("index", [&] { index_set(self, in, 1, 2); });
  return 0;
}

int newindex_entry(lua_State* L) { return guarded(L, newindex_tensor); }

// -- tables

void push_binding(lua_State* L, const Binding& binding, lua_CFunction entry) {
  lua_pushlightuserdata(L, const_cast<Binding*>(&binding));
  lua_pushcclosure(L, entry, 1);
}

// Adds the bindings to the module at -2 and the methods at -1, which share the functions.
void add_functions(lua_State* L) {
  for (const Binding& binding : bindings()) {
    const Binding &method = as_method(binding), &function = as_function(binding);
    push_binding(L, method, binding_entry);
    if (binding.flags & kMethod) {
      lua_pushvalue(L, -1);
      lua_setfield(L, -3, binding.name.c_str());
    }
    if (&function != &method) lua_pop(L, 1), push_binding(L, function, binding_entry);
    if (binding.flags & kFunctionOf && !in_room(binding)) {
      lua_setfield(L, -3, binding.name.c_str());
    } else {
      lua_pop(L, 1);
    }
  }
}

struct Name {
  const char* name;
  const char* value;
};

// Constants of the module. Dtypes and devices are strings, and so are the index markers, which have the same text
// inside an index string.
const Name kNames[] = {
    {"newaxis", "None"},
    {"ellipsis", "..."},
    {"__version__", "0.1.0"},
};

void add_constants(lua_State* L) {
  for (size_t i = 0; i < size_t(DType::kNone); i++) {
    const DTypeInfo& row = info(DType(i));
    for (const char* key : {row.name, row.short_name}) {
      if (*key) lua_pushstring(L, row.name), lua_setfield(L, -2, key);
    }
  }
  for (const Name& row : kNames) lua_pushstring(L, row.value), lua_setfield(L, -2, row.name);
  lua_pushnumber(L, INFINITY), lua_setfield(L, -2, "inf");
  lua_pushnumber(L, std::nan("")), lua_setfield(L, -2, "nan");
  lua_pushnumber(L, M_PI), lua_setfield(L, -2, "pi");
}

int stdlib_entry(lua_State* L) { return guarded(L, stdlib_function); }
int source_entry(lua_State* L) { return guarded(L, stdlib_source); }

// Adds the bindings whose names begin with the prefix to the table at the top.
void add_room(lua_State* L, std::string_view prefix) {
  for (const Binding& binding : bindings()) {
    if (binding.name.compare(0, prefix.size(), prefix) != 0) continue;
    push_binding(L, binding, binding_entry);
    lua_setfield(L, -2, binding.name.c_str() + prefix.size());
  }
}

// Adds lt._native: functions for the standard library only.
void add_native(lua_State* L) {
  lua_newtable(L);
  lua_pushcfunction(L, stdlib_entry);
  lua_setfield(L, -2, "stdlib");
  lua_pushcfunction(L, source_entry);
  lua_setfield(L, -2, "source");
  lua_createtable(L, int(DType::kNone), 0);
  for (int i = 0; i < int(DType::kNone); i++) lua_pushstring(L, name(DType(i))), lua_rawseti(L, -2, i + 1);
  lua_setfield(L, -2, "dtypes");
  add_room(L, "_native.");
  for (const auto& [field, prefix] : {std::pair("cuda", "cuda."), std::pair("functional", "nn.functional.")}) {
    lua_newtable(L);
    add_room(L, prefix);
    lua_setfield(L, -2, field);
  }
  lua_setfield(L, -2, "_native");
}

void add_metamethods(lua_State* L) {
  for (const char* event : {"__add", "__sub", "__mul", "__div", "__pow", "__mod", "__lt", "__le", "__tostring",
                            "__concat", "__unm", "__len"}) {
    const bool unary = std::strcmp(event, "__unm") == 0 || std::strcmp(event, "__len") == 0;
    push_binding(L, *find_metamethod(event), unary ? unary_entry : binding_entry);
    lua_setfield(L, -2, event);
  }
  lua_pushliteral(L, "Tensor");
  lua_setfield(L, -2, "__name");
}

// Stack: module, methods, metatable. __index and __newindex get methods and attributes as upvalues.
void add_indexing(lua_State* L) {
  const std::pair<const char*, lua_CFunction> kEvents[] = {{"__index", index_entry}, {"__newindex", newindex_entry}};
  for (auto [event, entry] : kEvents) {
    lua_pushvalue(L, -2);
    lua_newtable(L);
    for (const Attribute& row : attributes()) {
      lua_pushlightuserdata(L, const_cast<Attribute*>(&row));
      lua_setfield(L, -2, row.name);
    }
    lua_pushcclosure(L, entry, 2);
    lua_setfield(L, -2, event);
  }
}

}  // namespace

std::atomic<void (*)(lua_State* L)> on_eager_call{nullptr};

int binding_entry(lua_State* L) { return guarded(L, call_binding); }

const Binding* to_binding(lua_State* L, int idx) {
  const lua_CFunction fn = lua_tocfunction(L, idx);
  if (fn != binding_entry && fn != unary_entry) return nullptr;
  if (!lua_getupvalue(L, idx, 1)) return nullptr;
  auto* binding = static_cast<const Binding*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return binding;
}

void open_bindings(lua_State* L) {
  lua_createtable(L, 0, 320);
  lua_createtable(L, 0, 256);
  add_functions(L);
  open_tensor_userdata(L);
  add_metamethods(L);
  add_indexing(L);
  lua_pop(L, 2);
  add_constants(L);
  add_native(L);
  lua_newtable(L);
  add_room(L, "special.");
  lua_setfield(L, -2, "special");
  push_config(L);
  lua_setfield(L, -2, "config");
}

}  // namespace lutra
