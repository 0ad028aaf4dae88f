// Reads the options of compiled functions and of marked sizes from tables on the stack.
#include "vm/capture/lab/options.h"

#include <cmath>
#include <lua.hpp>

#include "ops/core/closest.h"
#include "vm/bind/lua_reader.h"
#include "vm/capture/dispatch/state.h"
#include "vm/capture/trace/trace.h"

namespace lutra {

std::string described(lua_State* L, int index) { return LuaReader(L).describe(index - 1); }

namespace {

// Returns the registry reference of a backend. There is one for each function, so that compiling twice with it finds
// the same compiled prototype.
int backend_reference(lua_State* L) {
  int& reference = capture_state(L).backends[lua_topointer(L, -1)];
  if (!reference) {
    lua_pushvalue(L, -1);
    reference = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  return reference;
}

// Returns whether to measure library calls (max-autotune). On a GPU each segment is replayed as a CUDA graph from its
// second run on in any mode, so "reduce-overhead" is the same as "default".
bool read_mode(const char* who, const std::string& mode) {
  const KnownNames modes = {"default", "reduce-overhead", "max-autotune"};
  if (!modes.have(mode)) fail(who, ": unknown mode '", mode, "'", modes.known(mode));
  return mode == "max-autotune";
}

// Checks the table at the top of the stack, the settings of one compiled function. None exist yet.
void check_backend_options(lua_State* L, const char* who) {
  lua_pushnil(L);
  if (!lua_next(L, -2)) return;
  lua_pop(L, 1);
  lua_pushvalue(L, -1);
  fail(who, ": options.", lua_tostring(L, -1),
       " does not exist yet, nor does any other key (settings for all: lt.config)");
}

// Returns the argument names of the callable at `index`, with the source that the tracer gives to each. A module has
// those of its forward after self, and is called with varargs.
std::vector<std::pair<std::string, std::string>> arguments_of(lua_State* L, int index) {
  std::vector<std::pair<std::string, std::string>> arguments;
  const int top = lua_gettop(L);
  const bool module = lua_istable(L, index);
  if (module) lua_getfield(L, index, "forward");
  if (!module) lua_pushvalue(L, index);
  if (lua_isfunction(L, -1) && !lua_iscfunction(L, -1)) {
    for (int n = module ? 2 : 1; const char* name = lua_getlocal(L, nullptr, n); n++) {
      arguments.push_back({name, module ? vararg_name(n - 2) : name});
    }
  }
  lua_settop(L, top);
  return arguments;
}

// Reads the table at the top of the stack, such as {x = {0, -1}}.
DynamicDims read_dynamic(lua_State* L, int callable, const char* who) {
  DynamicDims dims;
  const auto arguments = arguments_of(L, callable);
  const int table = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, table); lua_settop(L, table + 1)) {
    const std::string name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    KnownNames known;
    const std::string* source = nullptr;
    for (const auto& [argument, text] : arguments) {
      known.add(argument);
      if (argument == name) source = &text;
    }
    if (!source) {
      fail(who, ": option 'dynamic': the function has no argument ", name.empty() ? described(L, table + 1) : name,
           known.known(name));
    }
    const auto wrong = [&](int at) {
      fail(who, ": option 'dynamic.", name, "' must be a list of dimensions, got ", described(L, at));
    };
    if (!lua_istable(L, -1)) wrong(table + 2);
    const int n = int(lua_objlen(L, -1));
    if (n == 0) wrong(table + 2);
    for (int i = 1; i <= n; i++) {
      lua_rawgeti(L, table + 2, i);
      const double dim = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : 0.5;
      if (dim != std::floor(dim) || std::fabs(dim) > 1000) wrong(lua_gettop(L));
      dims[*source].insert(int(dim));
      lua_pop(L, 1);
    }
  }
  return dims;
}

}  // namespace

CaptureOptions read_options(lua_State* L, int callable, int index, const char* who) {
  CaptureOptions o;
  if (lua_isnoneornil(L, index)) return o;
  if (!lua_istable(L, index)) fail(who, ": options are a table, not ", described(L, index));
  if (lua_getmetatable(L, index)) fail(who, ": options are a plain table, not one with a metatable, as a module is");
  lua_pushnil(L);
  while (lua_next(L, index)) {
    if (lua_type(L, -2) != LUA_TSTRING) fail(who, ": options have names");
    const std::string key = lua_tostring(L, -2);
    const auto wrong = [&](const char* wanted) {
      fail(who, ": option '", key, "' must be ", wanted, ", got ", described(L, lua_gettop(L)));
    };
    if ((key == "fullgraph" || key == "wait") && !lua_isboolean(L, -1)) wrong("a boolean");
    if (key == "wait") {
      o.wait = lua_toboolean(L, -1);
    } else if (key == "dynamic" && lua_istable(L, -1)) {
      o.dynamic_dims = read_dynamic(L, callable, who);
    } else if (key == "dynamic") {
      if (!lua_isboolean(L, -1)) wrong("a boolean, or a table of arguments and their dimensions");
      o.dynamic = lua_toboolean(L, -1);
    } else if (key == "fullgraph") {
      o.fullgraph = lua_toboolean(L, -1);
    } else if (key == "backend" && lua_isfunction(L, -1)) {
      o.backend_function = backend_reference(L);
    } else if (key == "backend") {
      if (lua_type(L, -1) != LUA_TSTRING) wrong("a name or a function");
      o.backend = lua_tostring(L, -1);
      const KnownNames backends = {"native", "eager", "aot_eager"};
      if (!backends.have(o.backend)) {
        fail(who, ": unknown backend '", o.backend, "' (native, eager, aot_eager or a function)",
             backends.question(o.backend));
      }
    } else if (key == "mode") {
      if (lua_type(L, -1) != LUA_TSTRING) wrong("a name");
      o.autotune = read_mode(who, lua_tostring(L, -1));
    } else if (key == "options") {
      if (!lua_istable(L, -1)) wrong("a table");
      check_backend_options(L, who);
    } else {
      const KnownNames options = {"dynamic", "fullgraph", "wait", "backend", "mode", "options"};
      fail(who, ": unknown option '", key, "'", options.known(key));
    }
    lua_pop(L, 1);
  }
  return o;
}

SizeBounds read_bounds(lua_State* L, int index, const char* who, bool allowed) {
  SizeBounds bounds;
  if (lua_isnoneornil(L, index)) return bounds;
  if (!lua_istable(L, index)) fail(who, ": options are a table, not ", described(L, index));
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    if (!allowed) fail(who, ": there are no options, got ", described(L, lua_gettop(L) - 1));
    const KnownNames known = {"min", "max"};
    if (!known.have(key)) fail(who, ": unknown option '", key, "'", known.known(key));
    const double size = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : -1;
    if (!(size >= 0) || size != std::floor(size) || size > double(SizeBounds().max)) {
      fail(who, ": option '", key, "' must be a size, got ", described(L, lua_gettop(L)));
    }
    (key == "min" ? bounds.min : bounds.max) = int64_t(size);
  }
  if (bounds.min > bounds.max) fail(who, ": min ", bounds.min, " is more than max ", bounds.max);
  return bounds;
}

}  // namespace lutra
