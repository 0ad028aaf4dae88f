// lt.config: one row a setting; a Lua proxy and LUTRA_<NAME> in the environment go in, Config comes out.
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <lua.hpp>
#include <variant>

#include "jit/runtime/executable.h"
#include "ops/core/error.h"
#include "ops/cuda/disk_cache.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

using Member = std::variant<int Config::*, bool Config::*, std::string Config::*>;

struct Row {
  const char* name;
  Member member;
  const char* choices = nullptr;  // of strings: "a|b|c"; null: anything
  int least = 0;                  // of numbers
  const char* later = "";         // choices that nothing carries out yet: better an error than no effect
};

const Row kRows[] = {
    {"recompile_limit", &Config::recompile_limit, nullptr, 1},
    {"cache_dir", &Config::cache_dir},
    {"num_threads", &Config::num_threads},
    {"isa", &Config::isa, "avx512|avx2|interp"},
    {"deterministic", &Config::deterministic},
    {"stress", &Config::stress, "capture|break"},
    {"profit", &Config::profit, "auto|always|measure", 0, "measure"},
};

const Row& find_row(const char* name) {
  std::string known;
  for (const Row& row : kRows) {
    if (std::strcmp(row.name, name) == 0) return row;
    known += std::string(known.empty() ? "" : ", ") + row.name;
  }
  fail("config: unknown name '", name, "' (known: ", known, ")");
}

bool among(const std::string& value, const char* choices) {
  return value.find('|') == std::string::npos && str("|", choices, "|").find("|" + value + "|") != std::string::npos;
}

void check_choice(const Row& row, const std::string& value) {
  if (!row.choices || value.empty()) return;
  if (!among(value, row.choices)) fail("config: ", row.name, " must be one of ", row.choices, ", got '", value, "'");
  if (among(value, row.later)) fail("config: ", row.name, " = '", value, "' is not available in this version");
}

int check_int(const Row& row, double value) {
  if (value != std::floor(value) || value < row.least || value > 1e9) {
    fail("config: ", row.name, " must be a whole number of at least ", row.least, ", got ", value);
  }
  return int(value);
}

// Settings that ops and jit keep for the process.
void apply(const Config& config) {
  runtime_config().num_threads = config.num_threads;
  runtime_config().isa = config.isa;
}
// That of a directory is taken over only where it is given: other states that start, and other settings, leave it, and
// what a relative path means.
void apply_directory(const Config& config, const Row& row) {
  if (row.member == Member(&Config::cache_dir)) set_cache_directory(config.cache_dir);
}

void set_from_text(Config& config, const Row& row, const std::string& text) {
  if (auto* number = std::get_if<int Config::*>(&row.member)) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end) fail("config: ", row.name, " must be a number, got '", text, "'");
    config.** number = check_int(row, value);
  } else if (auto* flag = std::get_if<bool Config::*>(&row.member)) {
    const bool on = text == "1" || text == "true", off = text == "0" || text == "false";
    if (!on && !off) fail("config: ", row.name, " must be true or false, got '", text, "'");
    config.** flag = on;
  } else {
    check_choice(row, text);
    config.*std::get<std::string Config::*>(row.member) = text;
  }
}

int get_impl(lua_State* L) {
  const Config& config = runtime(L).config;
  const Row& row = find_row(lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?");
  if (auto* number = std::get_if<int Config::*>(&row.member)) {
    lua_pushinteger(L, config.**number);
  } else if (auto* flag = std::get_if<bool Config::*>(&row.member)) {
    lua_pushboolean(L, config.**flag);
  } else {
    const std::string& text = config.*std::get<std::string Config::*>(row.member);
    text.empty() ? lua_pushnil(L) : lua_pushlstring(L, text.data(), text.size());
  }
  return 1;
}

int set_impl(lua_State* L) {
  Config& config = runtime(L).config;
  const Row& row = find_row(lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?");
  const int type = lua_type(L, 3);
  if (auto* number = std::get_if<int Config::*>(&row.member)) {
    if (type != LUA_TNUMBER) fail("config: ", row.name, " must be a number, got ", luaL_typename(L, 3));
    config.** number = check_int(row, lua_tonumber(L, 3));
  } else if (auto* flag = std::get_if<bool Config::*>(&row.member)) {
    if (type != LUA_TBOOLEAN) fail("config: ", row.name, " must be true or false, got ", luaL_typename(L, 3));
    config.** flag = lua_toboolean(L, 3);
  } else {
    if (type != LUA_TSTRING && type != LUA_TNIL) {
      fail("config: ", row.name, " must be a string or nil, got ", luaL_typename(L, 3));
    }
    set_from_text(config, row, type == LUA_TNIL ? "" : lua_tostring(L, 3));
  }
  apply(config);
  apply_directory(config, row);
  if (on_config_change) on_config_change(L);
  return 0;
}

int config_get(lua_State* L) { return guarded(L, get_impl); }
int config_set(lua_State* L) { return guarded(L, set_impl); }

}  // namespace

void (*on_config_change)(lua_State* L) = nullptr;

void load_environment(Config& config) {
  for (const Row& row : kRows) {
    std::string variable = "LUTRA_";
    for (const char* p = row.name; *p; ++p) variable += char(std::toupper(*p));
    const char* text = std::getenv(variable.c_str());
    if (!text || !*text) continue;
    try {
      set_from_text(config, row, text);
      apply_directory(config, row);
    } catch (const Error& e) {
      fail(variable, std::string(e.what()).substr(std::strlen("config")));
    }
  }
  apply(config);
}

void push_config(lua_State* L) {
  lua_newtable(L);
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, config_get);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, config_set);
  lua_setfield(L, -2, "__newindex");
  // For who lists the settings: the REPL.
  lua_newtable(L);
  for (const Row& row : kRows) lua_pushboolean(L, 1), lua_setfield(L, -2, row.name);
  lua_setfield(L, -2, "names");
  lua_setmetatable(L, -2);
}

}  // namespace lutra
