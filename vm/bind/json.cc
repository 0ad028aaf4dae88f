// lt._native.json(value): a JSON document of tables, texts, numbers and booleans. A list is a table with elements, or
// one whose metatable has __jsontype = "array". Other tables are objects, with their keys sorted. NaN and infinities
// become null, since JSON lacks them; bytes that are not UTF-8 are replaced.
#include <cmath>
#include <lua.hpp>
#include <nlohmann/json.hpp>

#include "vm/bind/functions.h"

namespace lutra {
namespace {

using nlohmann::json;

constexpr int kDeepest = 100;

bool is_list(lua_State* L, int index) {
  if (lua_objlen(L, index) > 0) return true;
  if (!luaL_getmetafield(L, index, "__jsontype")) return false;
  const bool list = lua_isstring(L, -1) && std::string(lua_tostring(L, -1)) == "array";
  lua_pop(L, 1);
  return list;
}

std::string text_at(lua_State* L, int index) {
  size_t n = 0;
  const char* text = lua_tolstring(L, index, &n);
  return std::string(text, n);
}

json value_at(lua_State* L, int index, int depth);

json table_at(lua_State* L, int index, int depth) {
  if (depth > kDeepest) fail("json: tables are nested more than ", kDeepest, " deep");
  luaL_checkstack(L, 4, "json");
  if (is_list(L, index)) {
    json out = json::array();
    const int n = int(lua_objlen(L, index));
    for (int i = 1; i <= n; ++i) {
      lua_rawgeti(L, index, i);
      out.push_back(value_at(L, lua_gettop(L), depth + 1));
      lua_pop(L, 1);
    }
    return out;
  }
  json out = json::object();
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    lua_pushvalue(L, -2);  // lua_tolstring would change the key
    if (!lua_isstring(L, -1)) fail("json: a key is a text or a number, not ", luaL_typename(L, -1));
    const std::string key = text_at(L, -1);
    lua_pop(L, 1);
    out[key] = value_at(L, lua_gettop(L), depth + 1);
  }
  return out;
}

json value_at(lua_State* L, int index, int depth) {
  switch (lua_type(L, index)) {
    case LUA_TNIL: return nullptr;
    case LUA_TBOOLEAN: return bool(lua_toboolean(L, index));
    case LUA_TSTRING: return text_at(L, index);
    case LUA_TTABLE: return table_at(L, index, depth);
    case LUA_TNUMBER: {
      const double d = lua_tonumber(L, index);
      if (d == std::floor(d) && std::fabs(d) <= 0x1p53) return int64_t(d);
      return d;
    }
    default: fail("json: a ", luaL_typename(L, index), " has no JSON");
  }
}

int to_json(lua_State* L) {
  luaL_checkany(L, 1);
  lua_settop(L, 1);
  const std::string text = value_at(L, 1, 0).dump(-1, ' ', false, json::error_handler_t::replace);
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

const Special kJsonSpecials[] = {{"_native.json", kHostEffect, nullptr, to_json}};

}  // namespace

std::span<const Special> json_specials() { return kJsonSpecials; }

}  // namespace lutra
