// lt.config.passes: the Lua proxy and LUTRA_PASSES, which set the stages that later compilations skip.
#include <algorithm>
#include <lua.hpp>
#include <span>

#include "jit/stages.h"
#include "vm/host/passes.h"
#include "vm/host/proxy.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

void check_name(const std::string& name) {
  const KnownNames known = optional_stages();
  if (!known.have(name)) fail("config: passes: '", name, "' is no pass that can be switched off", known.known(name));
}

std::string name_at(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TSTRING) fail("config: passes has names of passes, got ", luaL_typename(L, index));
  return lua_tostring(L, index);
}

bool flag_at(lua_State* L, int index, const std::string& name) {
  if (!lua_isboolean(L, index)) fail("config: passes.", name, " must be true or false, got ", luaL_typename(L, index));
  return lua_toboolean(L, index);
}

void set_pass(Config& config, const std::string& name, bool on) {
  check_name(name);
  std::erase(config.passes_off, name);
  if (!on) config.passes_off.push_back(name);
  std::sort(config.passes_off.begin(), config.passes_off.end());
}

bool is_on(const Config& config, const std::string& name) {
  return std::find(config.passes_off.begin(), config.passes_off.end(), name) == config.passes_off.end();
}

int passes_get_impl(lua_State* L) {
  const std::string name = name_at(L, 2);
  check_name(name);
  lua_pushboolean(L, is_on(runtime(L).config, name));
  return 1;
}

int passes_set_impl(lua_State* L) {
  const std::string name = name_at(L, 2);
  check_name(name);
  set_pass(runtime(L).config, name, flag_at(L, 3, name));
  return 0;
}

// Implements lt.config.passes(), which returns a plain table: LuaJIT's pairs finds no fields in a proxy.
int passes_all_impl(lua_State* L) {
  lua_newtable(L);
  for (const Stage& stage : std::span(kStages, kStageCount)) {
    if (stage.when != Stage::kUnlessOff) continue;
    lua_pushboolean(L, is_on(runtime(L).config, stage.name));
    lua_setfield(L, -2, stage.name);
  }
  return 1;
}

int passes_get(lua_State* L) { return guarded(L, passes_get_impl); }
int passes_set(lua_State* L) { return guarded(L, passes_set_impl); }
int passes_all(lua_State* L) { return guarded(L, passes_all_impl); }

}  // namespace

void push_passes(lua_State* L) {
  static const char kKey = 0;  // its address is the registry key; one proxy for each state
  lua_pushlightuserdata(L, const_cast<char*>(&kKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  push_proxy(L, passes_get, passes_set, passes_all);
  lua_pushlightuserdata(L, const_cast<char*>(&kKey));
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

void assign_passes(lua_State* L, int index) {
  Config& config = runtime(L).config;
  if (lua_isnil(L, index)) return config.passes_off.clear();
  if (!lua_istable(L, index)) fail("config: passes must be a table or nil, got ", luaL_typename(L, index));
  Config wanted = config;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    const std::string name = name_at(L, -2);
    check_name(name);
    set_pass(wanted, name, flag_at(L, -1, name));
  }
  config = wanted;
}

void read_passes(Config& config, const std::string& text) {
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    if (part.empty() || part[0] != '-') fail("config: passes: '", part, "' must be -NAME: a pass that is switched off");
    set_pass(config, part.substr(1), false);
  }
}

}  // namespace lutra
