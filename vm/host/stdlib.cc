// The loader of the embedded Lua sources (stdlib.h): compiles one of kStdlib, or the file of that path beneath
// LUTRA_STDLIB.
#include "vm/host/stdlib.h"

#include <cstdlib>
#include <cstring>
#include <lua.hpp>

#include "vm/loader/loader.h"

namespace lutra {
namespace {

const StdlibModule* find_module(const char* name) {
  for (size_t i = 0; i < kStdlibCount; ++i) {
    if (std::strcmp(kStdlib[i].name, name) == 0) return &kStdlib[i];
  }
  return nullptr;
}

// No C++ object with a destructor is alive here when Lua raises: the paths are Lua strings.
int load_module(lua_State* L, const StdlibModule& module) {
  if (const char* root = std::getenv("LUTRA_STDLIB")) {
    const char* path = lua_pushfstring(L, "%s/%s", root, module.path);
    int status = luaL_loadfile(L, path);
    lua_remove(L, -2);
    return status;
  }
  const char* chunk_name = lua_pushfstring(L, "@lutra/%s", module.path);
  int status = luaL_loadbuffer(L, module.data, module.size, chunk_name);
  lua_remove(L, -2);
  return status;
}

}  // namespace

bool push_stdlib_chunk(lua_State* L, const char* name) {
  const StdlibModule* module = find_module(name);
  if (!module) return false;
  if (load_module(L, *module) != 0) lua_error(L);
  keep_frames(L);
  return true;
}

int stdlib_function(lua_State* L) {
  const char* name = luaL_checkstring(L, 1);
  if (!push_stdlib_chunk(L, name)) return luaL_error(L, "no module '%s' in Lutra's standard library", name);
  return 1;
}

int stdlib_source(lua_State* L) {
  const StdlibModule* module = find_module(luaL_checkstring(L, 1));
  if (!module) return 0;
  lua_pushlstring(L, module->data, module->size);
  return 1;
}

void open_stdlib(lua_State* L, int index) {
  lua_pushvalue(L, index);
  if (!push_stdlib_chunk(L, "lutra.init")) luaL_error(L, "Lutra's standard library has no init.lua");
  lua_insert(L, -2);
  lua_call(L, 1, 0);
}

}  // namespace lutra
