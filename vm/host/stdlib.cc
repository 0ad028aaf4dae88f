// The loader of the embedded Lua modules (stdlib.h). It loads the bytecode of a module in kStdlib, or compiles its
// source or the file of that path beneath LUTRA_STDLIB.
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

// Loads the module's source. The paths are Lua strings, so that no C++ object with a destructor is alive when Lua
// raises.
int load_source(lua_State* L, const StdlibModule& module, const char* root) {
  const char* name = lua_pushfstring(L, root ? "%s/%s" : "@lutra/%s", root ? root : module.path, module.path);
  const int status = root ? luaL_loadfile(L, name) : luaL_loadbuffer(L, module.source.data(), module.source.size, name);
  lua_remove(L, -2);
  return status;
}

}  // namespace

namespace {

const char kGlobalsKey = 0;

// Gives the chunk at the top of the stack the globals that keep_globals saved, even if the program has other ones.
void trust(lua_State* L) {
  lua_pushlightuserdata(L, const_cast<char*>(&kGlobalsKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (lua_isnil(L, -1)) return lua_pop(L, 1);
  lua_setfenv(L, -2);
}

}  // namespace

void keep_globals(lua_State* L) {
  lua_pushlightuserdata(L, const_cast<char*>(&kGlobalsKey));
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

bool push_stdlib_chunk(lua_State* L, const char* name) {
  const StdlibModule* module = find_module(name);
  if (!module) return false;
  const char* root = std::getenv("LUTRA_STDLIB");
  if (!root && keeps_frames()) {
    if (luaL_loadbuffer(L, module->code.data(), module->code.size, module->path) == 0) return trust(L), true;
    lua_pop(L, 1);  // the host's LuaJIT has another bytecode format
  }
  if (load_source(L, *module, root) != 0) lua_error(L);
  keep_frames(L);
  trust(L);
  return true;
}

void push_stdlib_value(lua_State* L, const char* name) {
  lua_getfield(L, LUA_REGISTRYINDEX, "lutra.module");
  lua_getfield(L, -1, "_native");
  lua_getfield(L, -1, "use");
  lua_pushstring(L, name);
  lua_call(L, 1, 1);
  lua_replace(L, -3);
  lua_pop(L, 1);
}

int stdlib_function(lua_State* L) {
  const char* name = luaL_checkstring(L, 1);
  if (!push_stdlib_chunk(L, name)) return luaL_error(L, "no module '%s' in Lutra's standard library", name);
  return 1;
}

int stdlib_source(lua_State* L) {
  const StdlibModule* module = find_module(luaL_checkstring(L, 1));
  if (!module) return 0;
  lua_pushlstring(L, module->source.data(), module->source.size);
  return 1;
}

void open_stdlib(lua_State* L, int index) {
  lua_pushvalue(L, index);
  if (!push_stdlib_chunk(L, "lutra.init")) luaL_error(L, "Lutra's standard library has no init.lua");
  lua_insert(L, -2);
  lua_call(L, 1, 0);
}

}  // namespace lutra
