// lutra.h over LuaJIT's API. Invariants:
// 1. Everything that can raise runs inside lua_pcall or lua_cpcall; what allocates in C++ catches std::bad_alloc.
// 2. A call leaves the Lua stack as it was, but for the results of lutra_call.
#include "vm/capi/lutra.h"

#include <lua.hpp>
#include <memory>
#include <new>
#include <string>

#include "vm/capi/advice.h"
#include "vm/loader/loader.h"

struct lutra_State {
  lua_State* L = nullptr;
  bool owned = true;
  std::string error;
};

namespace lutra {
namespace {

thread_local std::string open_error;

// The message and, after the point where it was raised, the traceback. Other values than strings by their __tostring.
int traceback(lua_State* L) {
  lua_settop(L, 1);
  if (!lua_isstring(L, 1)) {
    if (!luaL_callmeta(L, 1, "__tostring") || !lua_isstring(L, -1)) {
      lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
    }
    lua_replace(L, 1);
    lua_settop(L, 1);
  }
  advise(L);
  luaL_traceback(L, L, lua_tostring(L, 1), 1);
  return 1;
}

int code_of(int status) {
  switch (status) {
    case 0: return LUTRA_OK;
    case LUA_ERRSYNTAX: return LUTRA_ERROR_SYNTAX;
    case LUA_ERRMEM: return LUTRA_ERROR_MEMORY;
    case LUA_ERRFILE: return LUTRA_ERROR_FILE;
    default: return LUTRA_ERROR_RUN;
  }
}

// Takes the message from the top of the stack.
int take_error(lutra_State* S, int status) {
  const char* text = lua_type(S->L, -1) == LUA_TSTRING ? lua_tostring(S->L, -1) : "unknown error";
  try {
    S->error = text;
  } catch (const std::bad_alloc&) {
    S->error.clear();
  }
  lua_pop(S->L, 1);
  return code_of(status);
}

int call(lutra_State* S, int nargs, int nresults) {
  lua_State* L = S->L;
  const int base = lua_gettop(L) - nargs;
  lua_pushcfunction(L, traceback);
  lua_insert(L, base);
  const int status = lua_pcall(L, nargs, nresults, base);
  lua_remove(L, base);
  if (status == 0) return LUTRA_OK;
  return take_error(S, status);
}

// -- opening

int open_all(lua_State* L) {
  const auto& options = *static_cast<const lutra_Options*>(lua_touserdata(L, 1));
  if (!options.lua) {
    lua_gc(L, LUA_GCSTOP, 0);
    if (options.ignore_env) lua_pushboolean(L, 1), lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    luaL_openlibs(L);
    install_loader(L);
    lua_gc(L, LUA_GCRESTART, -1);
  }
  lua_pushcfunction(L, luaopen_lutra);
  lua_call(L, 0, 1);
  if (options.device) {
    lua_getfield(L, -1, "set_default_device");
    lua_pushstring(L, options.device);
    lua_call(L, 1, 0);
  }
  if (!options.no_global) lua_setglobal(L, "lt");
  return 0;
}

lutra_Options read_options(const lutra_Options* given) {
  lutra_Options options = {};
  if (!given) return options;
  const size_t known = given->size < sizeof options ? given->size : sizeof options;
  for (size_t i = 0; i < known; ++i) reinterpret_cast<char*>(&options)[i] = reinterpret_cast<const char*>(given)[i];
  return options;
}

// -- files

struct FileCall {
  const char* path;
  int argc;
  const char* const* argv;
};

// What a host put before the script (arg[-1] is the program, as in luajit) stays.
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
int prepare_file(lua_State* L) {
  const auto& request = *static_cast<const FileCall*>(lua_touserdata(L, 1));
  lua_settop(L, 0);
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
  const int status = luaL_loadfile(L, request.path);
  if (status == 0 && !lua_iscfunction(L, -1)) keep_frames(L);
  lua_pushinteger(L, status);
  lua_insert(L, 1);
  for (int i = 0; status == 0 && i < request.argc; ++i) lua_pushstring(L, request.argv[i]);
  return lua_gettop(L);
}

}  // namespace
}  // namespace lutra

using namespace lutra;

extern "C" lutra_State* lutra_open(const lutra_Options* given) {
  lutra_Options options = read_options(given);
  std::unique_ptr<lutra_State> S(new (std::nothrow) lutra_State);
  if (S) {
    S->owned = options.lua == nullptr;
    S->L = options.lua ? options.lua : luaL_newstate();
  }
  if (!S || !S->L) {
    open_error = "lutra_open: out of memory";
    return nullptr;
  }
  lua_pushcfunction(S->L, open_all);
  lua_pushlightuserdata(S->L, &options);
  const int status = lua_pcall(S->L, 1, 0, 0);  // an option or a variable is wrong: a traceback would say nothing
  if (status == 0) return S.release();
  take_error(S.get(), status);
  open_error = S->error;
  if (S->owned) lua_close(S->L);
  return nullptr;
}

extern "C" void lutra_close(lutra_State* S) {
  if (!S) return;
  if (S->owned) lua_close(S->L);
  delete S;
}

extern "C" int lutra_do_string(lutra_State* S, const char* text, const char* chunkname) {
  const int status = luaL_loadbuffer(S->L, text, std::char_traits<char>::length(text), chunkname ? chunkname : text);
  if (status != 0) return take_error(S, status);
  keep_frames(S->L);
  return call(S, 0, 0);
}

extern "C" int lutra_do_file(lutra_State* S, const char* path, int argc, const char* const* argv) {
  FileCall request{path, argc, argv};
  const int top = lua_gettop(S->L);
  lua_pushcfunction(S->L, prepare_file);
  lua_pushlightuserdata(S->L, &request);
  if (int code = call(S, 1, LUA_MULTRET); code != LUTRA_OK) return code;
  const int status = int(lua_tointeger(S->L, top + 1));
  lua_remove(S->L, top + 1);
  if (status != 0) return take_error(S, status);
  return call(S, lua_gettop(S->L) - top - 1, 0);
}

extern "C" int lutra_call(lutra_State* S, int nargs, int nresults) { return call(S, nargs, nresults); }

extern "C" const char* lutra_error(const lutra_State* S) { return S ? S->error.c_str() : open_error.c_str(); }

extern "C" lua_State* lutra_lua(lutra_State* S) { return S->L; }

extern "C" const char* lutra_version(void) { return LUTRA_VERSION; }
