// Native helpers of stdlib/advice.lua, which adds to error messages: similar names, and where a name was looked up.
#include "vm/capi/advice.h"

#include <lua.hpp>
#include <string>

#include "ops/core/closest.h"
#include "vm/bytecode/analysis.h"
#include "vm/host/runtime.h"
#include "vm/host/stdlib.h"

namespace lutra {
namespace {

// closest(name, {known = anything, ...}) -> the known name that was meant, or nil
int closest_impl(lua_State* L) {
  size_t n;
  const char* name = luaL_checklstring(L, 1, &n);
  luaL_checktype(L, 2, LUA_TTABLE);
  Closest closest({name, n});
  lua_pushnil(L);
  while (lua_next(L, 2)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING) continue;
    const char* known = lua_tolstring(L, -1, &n);
    closest.look({known, n});
  }
  if (closest.best().empty()) return 0;
  lua_pushlstring(L, closest.best().data(), closest.best().size());
  return 1;
}

int append(lua_State*, const void* data, size_t size, void* to) {
  static_cast<std::string*>(to)->append(static_cast<const char*>(data), size);
  return 0;
}

const std::string* string_at(const bc::Proto& p, unsigned index) {
  return index < p.kgc.size() ? std::get_if<std::string>(&p.kgc[index]) : nullptr;
}

// Returns the path to the value in a slot: the kind of its root, the root's name, then fields. Empty if unknown.
std::vector<std::string> path_of(const bc::Proto& p, bc::Pc pc, unsigned slot) {
  const bc::ValueName n = bc::value_name(p, pc, slot);
  using Kind = bc::ValueName::Kind;
  switch (n.kind) {
    case Kind::kNone: return {};
    case Kind::kLocal: return {"local", bc::local_name(p, n.pc, n.index)};
    case Kind::kUpvalue: return {"upvalue", bc::upvalue_name(p, n.index)};
    case Kind::kGlobal: return {"global", *string_at(p, n.index)};
    default: break;
  }
  std::vector<std::string> path = path_of(p, n.pc, bc::op_b(p.code[n.pc]));
  if (!path.empty()) path.push_back(*string_at(p, n.index));
  return path;
}

// base_of(f, line, name) -> the path to the object in which that line of f looks up the field or method `name`, or nil
int base_impl(lua_State* L) {
  const int line = int(luaL_checkinteger(L, 2));
  const std::string name = luaL_checkstring(L, 3);
  std::string bytes;
  lua_settop(L, 1);
  if (!lua_isfunction(L, 1) || lua_iscfunction(L, 1) || lua_dump(L, append, &bytes)) return 0;
  const bc::Dump dump = bc::parse(bytes);
  const bc::Proto& p = dump.top();
  for (bc::Pc pc = 1; pc < p.size(); ++pc) {
    const bc::Ins i = p.code[pc];
    if (bc::op(i) != bc::Op::TGETS || int(p.line(pc)) != line) continue;
    const std::string* key = string_at(p, bc::op_c(i));
    if (!key || *key != name) continue;
    const std::vector<std::string> path = path_of(p, pc, bc::op_b(i));
    if (path.empty()) continue;
    lua_newtable(L);
    for (size_t k = 0; k < path.size(); ++k) {
      lua_pushlstring(L, path[k].data(), path[k].size());
      lua_rawseti(L, -2, int(k) + 1);
    }
    return 1;
  }
  return 0;
}

int closest(lua_State* L) { return guarded(L, closest_impl); }
int base_of(lua_State* L) { return guarded(L, base_impl); }

// Takes the message on the stack. Returns the message that stdlib/advice.lua makes of it.
int advise_impl(lua_State* L) {
  lua_getfield(L, LUA_REGISTRYINDEX, "lutra.module");
  if (lua_isnil(L, -1)) return 0;
  push_stdlib_value(L, "advice");
  lua_pushvalue(L, 1);
  lua_pushinteger(L, 4);  // below advice.lua's function, this one and the handler
  lua_call(L, 2, 1);
  return 1;
}

}  // namespace

void open_advice(lua_State* L) {
  lua_getfield(L, -1, "_native");
  lua_pushcfunction(L, closest);
  lua_setfield(L, -2, "closest");
  lua_pushcfunction(L, base_of);
  lua_setfield(L, -2, "base_of");
  lua_pop(L, 1);
}

void advise(lua_State* L) {
  lua_pushcfunction(L, advise_impl);
  lua_pushvalue(L, 1);
  if (lua_pcall(L, 1, 1, 0) == 0 && lua_isstring(L, -1)) lua_replace(L, 1);
  lua_settop(L, 1);
}

}  // namespace lutra
