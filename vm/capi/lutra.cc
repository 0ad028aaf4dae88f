// States, programs and calls of lutra.h over LuaJIT's API. Invariants:
// 1. Everything that can raise runs inside lua_pcall. Code that allocates in C++ catches std::bad_alloc.
// 2. A call leaves the Lua stack as it was, except for the results of lutra_call.
#include "vm/capi/lutra.h"

#include <algorithm>
#include <cstring>
#include <lua.hpp>
#include <string>

#include "ops/core/tensor.h"
#include "vm/capi/host_ops.h"
#include "vm/capi/output.h"
#include "vm/capi/sandbox.h"
#include "vm/capi/state.h"
#include "vm/host/modes.h"
#include "vm/loader/loader.h"

namespace lutra::capi {
namespace {

// -- opening

struct Opening {
  lutra_State* S;
  const lutra_Options& options;
};

// Installs the host's allocator, threads and cache setting, and makes lt.ops, the table of its ops. The module is at
// the top of the stack.
void bring(lua_State* L, const lutra_Options& options) {
  Modes& modes = *modes_of(L);
  const lutra_Allocator& memory = options.allocator;
  if (memory.allocate && modes.account->host.allocate) luaL_error(L, "this Lua state has an allocator already");
  if (memory.allocate) modes.account->host = {memory.allocate, memory.free, memory.arg};
  if (options.threads.run) modes.threads = {options.threads.run, options.threads.arg, options.threads.count};
  lua_getfield(L, -1, "ops");
  if (lua_isnil(L, -1)) lua_newtable(L), lua_setfield(L, -3, "ops");
  lua_pop(L, 1);
  if (options.cache) {
    lua_getfield(L, -1, "config");
    lua_pushstring(L, options.cache);
    lua_setfield(L, -2, "cache");
    lua_pop(L, 1);
  }
}

int open_all(lua_State* L) {
  const auto& opening = *static_cast<const Opening*>(lua_touserdata(L, 1));
  const lutra_Options& options = opening.options;
  if (!options.lua) {
    lua_gc(L, LUA_GCSTOP, 0);
    if (options.ignore_env) lua_pushboolean(L, 1), lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    luaL_openlibs(L);
    install_loader(L);
    lua_gc(L, LUA_GCRESTART, -1);
  }
  lua_pushcfunction(L, luaopen_lutra);
  lua_call(L, 0, 1);
  bring(L, options);
  if (options.device) {
    lua_getfield(L, -1, "set_default_device");
    lua_pushstring(L, options.device);
    lua_call(L, 1, 0);
  }
  direct_output(L, options);
  lua_pushvalue(L, -1);
  prepare(opening.S, L);
  if (options.sandbox) confine(L, options);
  if (!options.no_global) lua_setglobal(L, "lt");
  return 0;
}

// Reads the given options. Returns the error that they have, or null.
const char* read_options(const lutra_Options* given, lutra_Options& options) {
  if (given && !read_struct(given, offsetof(lutra_Options, cache), options))
    return "size must be sizeof(lutra_Options)";
  if (options.sandbox && options.lua) return "a sandbox is a state of its own, not one of the host";
  if (options.allocator.allocate && !options.allocator.free) return "an allocator needs a function that frees";
  const bool counted = options.threads.count >= 1 && options.threads.count <= 255;
  if (options.threads.run && !counted) return "a pool of threads has a count of 1 to 255";
  return nullptr;
}

void close_lua(lua_State* L) {
  remove_loader(L);
  lua_close(L);
}

// -- files

struct FileCall {
  const char* path;
  int argc;
  const char* const* argv;
};

// Copies the negative indices that a host set in the old `arg` (arg[-1] is the program, as in luajit).
void keep_negative_arguments(lua_State* L) {
  lua_getglobal(L, "arg");
  for (int i = -1; lua_istable(L, -1); --i) {
    lua_rawgeti(L, -1, i);
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      break;
    }
    lua_rawseti(L, -3, i);
  }
  lua_pop(L, 1);
}

// Sets `arg` and pushes the chunk and its arguments; the first result is the status of loading.
int push_file(lua_State* L, const FileCall& request) {
  lua_createtable(L, request.argc, 1);
  lua_pushstring(L, request.path ? request.path : "-");
  lua_rawseti(L, -2, 0);
  for (int i = 0; i < request.argc; ++i) {
    lua_pushstring(L, request.argv[i]);
    lua_rawseti(L, -2, i + 1);
  }
  keep_negative_arguments(L);
  lua_setglobal(L, "arg");
  luaL_checkstack(L, request.argc + 4, "too many arguments to script");
  const int status = luaL_loadfilex(L, request.path, chunk_mode(L));
  if (status == LUA_ERRMEM) lua_error(L);
  if (status == 0 && !lua_iscfunction(L, -1)) keep_frames(L);
  lua_pushinteger(L, status);
  lua_insert(L, 1);
  for (int i = 0; status == 0 && i < request.argc; ++i) lua_pushstring(L, request.argv[i]);
  return lua_gettop(L);
}

}  // namespace
}  // namespace lutra::capi

using namespace lutra;
using namespace lutra::capi;

extern "C" lutra_State* lutra_open(const lutra_Options* given) {
  lutra_Options options = {};
  if (const char* wrong = read_options(given, options)) {
    fail_thread(LUTRA_ERROR_ARGUMENT, "lutra_open", wrong);
    return nullptr;
  }
  lutra_State* S = new_state();
  if (S) {
    S->owned = options.lua == nullptr;
    S->L = options.lua ? options.lua : luaL_newstate();
  }
  if (!S || !S->L) {
    if (S) recycle(S);
    fail_thread(LUTRA_ERROR_MEMORY, "lutra_open", "out of memory");
    return nullptr;
  }
  Opening opening{S, options};
  lua_pushcfunction(S->L, open_all);
  lua_pushlightuserdata(S->L, &opening);
  const int status = lua_pcall(S->L, 1, 0, 0);  // errors come from options or variables: a traceback would not help
  if (status == 0) {
    S->interruptible = !options.no_interrupt;
    if (S->owned && S->interruptible) share_line_mode(S->L);
    S->open.store(true, std::memory_order_release);
    return S;
  }
  fail_thread(LUTRA_ERROR_RUN, "lutra_open", lua_isstring(S->L, -1) ? lua_tostring(S->L, -1) : "unknown error");
  lua_pop(S->L, 1);
  if (S->owned) close_lua(S->L);
  recycle(S);
  return nullptr;
}

extern "C" void lutra_close(lutra_State* S) {
  if (!S) return;
  {
    const StateScope scope(S, "lutra_close");
    if (!scope) return;
    if (S->depth > 1) {
      scope.fail(LUTRA_ERROR_STATE, "lutra_close: the state is running: it cannot be closed within a callback");
      return;
    }
    S->open = false;
    close_host_ops(S);
    if (S->owned) {
      leave_line_mode(S->L);
      close_lua(S->L);
      free_host_ops(S);
    } else {
      for (const int place : {S->traceback, S->task, S->module, S->strings}) luaL_unref(S->L, LUA_REGISTRYINDEX, place);
    }
  }
  recycle(S);
  TensorImpl::keep_few_dropped(), Storage::keep_few_dropped();
}

extern "C" int lutra_do_string(lutra_State* S, const char* text, const char* chunkname) {
  StateScope scope(S, "lutra_do_string");
  if (!scope.has(text, "text")) return scope.code();
  int status = 0;
  const auto load = [&](lua_State* L) {
    status = luaL_loadbufferx(L, text, std::strlen(text), chunkname ? chunkname : text, chunk_mode(L));
    if (status == LUA_ERRMEM) lua_error(L);  // reported like any other error
    if (status == 0) keep_frames(L);
    return 1;
  };
  if (const int code = scope.run(load, 1); code != LUTRA_OK) return code;
  return status == 0 ? scope.call(0, 0) : scope.take_error(status);
}

extern "C" int lutra_do_file(lutra_State* S, const char* path, int argc, const char* const* argv) {
  StateScope scope(S, "lutra_do_file");
  if (!scope) return scope.code();
  if (argc < 0) return scope.fail(LUTRA_ERROR_ARGUMENT, "lutra_do_file: argc must not be negative");
  if (argc > 0 && !scope.has(argv, "argv")) return scope.code();
  for (int i = 0; i < argc; i++) {
    if (!scope.has(argv[i], "an argument")) return scope.code();
  }
  const FileCall request{path, argc, argv};
  lua_State* L = S->L;
  const int top = lua_gettop(L);
  const auto prepare_file = [&request](lua_State* L) { return push_file(L, request); };
  if (const int code = scope.run(prepare_file, LUA_MULTRET); code != LUTRA_OK) return code;
  const int status = int(lua_tointeger(L, top + 1));
  lua_remove(L, top + 1);
  if (status != 0) return scope.take_error(status);
  return scope.call(lua_gettop(L) - top - 1, 0);
}

extern "C" int lutra_call(lutra_State* S, int nargs, int nresults) {
  const StateScope scope(S, "lutra_call");
  if (!scope) return scope.code();
  if (nargs < 0 || nresults < LUA_MULTRET || nargs >= lua_gettop(S->L)) {
    return scope.fail(LUTRA_ERROR_ARGUMENT, "lutra_call: the stack has ", lua_gettop(S->L), " values: no function and ",
                      nargs, " arguments");
  }
  return scope.call(nargs, nresults);
}

extern "C" int lutra_interrupt(lutra_State* S) {
  if (!S || !S->open.load(std::memory_order_acquire)) return LUTRA_ERROR_STATE;
  if (const pid_t thread = S->interruptible ? S->runner.load() : 0) {
    S->interrupted.store(true);
    wake(thread);
  }
  return LUTRA_OK;
}

extern "C" int lutra_set_limits(lutra_State* S, const lutra_Limits* given) {
  const StateScope scope(S, "lutra_set_limits");
  if (!scope) return scope.code();
  lutra_Limits limits = {};
  if (given && !read_struct(given, offsetof(lutra_Limits, threads), limits))
    return scope.fail(LUTRA_ERROR_ARGUMENT, "lutra_set_limits: size must be sizeof(lutra_Limits)");
  if (limits.threads < 0) return scope.fail(LUTRA_ERROR_ARGUMENT, "lutra_set_limits: threads must not be negative");
  if (!(limits.seconds >= 0) || limits.seconds > 1e9) {
    return scope.fail(LUTRA_ERROR_ARGUMENT, "lutra_set_limits: seconds must be 0 to 1e9, got ", limits.seconds);
  }
  S->limits = {limits.seconds, int64_t(std::min<uint64_t>(limits.bytes, INT64_MAX)), limits.threads};
  return LUTRA_OK;
}

extern "C" const char* lutra_error(const lutra_State* S) { return is_mine(S) ? S->error.c_str() : thread_error(); }

extern "C" lua_State* lutra_lua(lutra_State* S) { return is_mine(S) ? S->L : nullptr; }

extern "C" const char* lutra_version(void) { return LUTRA_VERSION; }

extern "C" int lutra_abi(void) { return LUTRA_ABI; }
