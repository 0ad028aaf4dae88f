// lt.config: one row for each setting. A Lua proxy and LUTRA_<NAME> in the environment set the members of Config.
// Reading a setting returns the value in effect.
#include <unistd.h>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <lua.hpp>
#include <variant>

#include "jit/inject/inject.h"
#include "jit/runtime/config.h"
#include "jit/runtime/pool.h"
#include "ops/core/closest.h"
#include "ops/core/disk_cache.h"
#include "ops/core/error.h"
#include "vm/host/passes.h"
#include "vm/host/proxy.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

// The only choice of a setting whose other choices are not implemented yet. Those raise an error instead of having no
// effect.
struct Fixed {
  const char* choice;
  bool operator==(const Fixed&) const = default;
};
// A table of switches.
struct Passes {
  bool operator==(const Passes&) const = default;
};
using Member = std::variant<int Config::*, double Config::*, bool Config::*, std::optional<bool> Config::*,
                            std::string Config::*, Fixed, Passes>;

struct Row {
  const char* name;
  Member member;
  const char* about;
  const char* choices = nullptr;        // for strings: "a|b|c"; null: anything
  int least = 0;                        // the smallest value, for numbers
  std::string (*in_force)() = nullptr;  // returns the value in effect if the setting is unset
  const char* exist = nullptr;          // the choices that are implemented; null: all
};

std::string thread_text() { return std::to_string(thread_count()); }

const Row kRows[] = {
    {"recompile_limit", &Config::recompile_limit,
     "the most entries that a function may have; further calls run its original code", nullptr, 1},
    {"capture_budget_ms", &Config::capture_budget_ms,
     "milliseconds that the capture of a segment may take; then the graph breaks; 0: no limit"},
    {"activation_memory_budget", &Config::activation_memory_budget,
     "the share of the values that gradients need which compiled forwards may save, 0 to 1; backwards compute the "
     "others again"},
    {"cache_dir", &Config::cache_dir,
     "the folder in which compiled code is kept; nil: one in the user's cache directory", nullptr, 0, cache_directory},
    {"cache", &Config::cache,
     "the use of compiled code on disk: on reads and writes it, read only reads it, off does neither", "on|read|off"},
    {"cache_mb", &Config::cache_mb,
     "megabytes that code on disk may take; beyond that, the least recently used is removed", nullptr, 1},
    {"num_threads", &Config::num_threads, "threads that one op uses; 0: as many as the machine has", nullptr, 0,
     thread_text},
    {"isa", &Config::isa,
     "the instruction set of kernels: avx512, avx2, arm64 or interp; nil: the best of the machine, with AMX if it has "
     "it",
     "avx512|avx2|arm64|interp", 0, current_isa},
    {"deterministic", Fixed{"true"}, "every run gives the same bits; always true", "true|false", 0, nullptr, "true"},
    {"passes", Passes{},
     "the passes that run on graphs: passes.cse = false switches one off from the next compilation on"},
    {"stress", &Config::stress,
     "for tests: capture compiles every function, break forces graph breaks, backward compiles backwards at once, "
     "collect looks for dead tensors at each new one; nil: none of these",
     "capture|break|backward|collect"},
    {"random_cut", &Config::random_cut,
     "for tests: a seed with which compiled forwards choose at random what they save; 0: they choose the cheapest"},
    {"verify", &Config::verify,
     "n: one of n calls of compiled code also runs eagerly, and the results are compared bit for bit; 0: none"},
    {"compiled_autograd", &Config::compiled_autograd,
     "true: a backward outside of compiled functions is compiled when it runs for the second time", "true|false"},
    {"cudagraphs", &Config::cudagraphs,
     "true: a compiled segment on a GPU is replayed as a CUDA graph from its second run on; false: each run launches "
     "its kernels",
     "true|false"},
    {"async", &Config::async,
     "true: no call waits for the compiler; calls run eagerly until the code, made in the background, is ready; nil: "
     "only for functions that lt.auto compiles",
     "true|false"},
    {"profit", &Config::profit,
     "what lt.auto compiles: auto captures while the time saved pays for it, and drops code that does not repay its "
     "time; always captures at once and drops nothing",
     "auto|always|measure", 0, nullptr, "auto|always"},
};

const Row& find_row(const char* name) {
  KnownNames known;
  for (const Row& row : kRows) {
    if (std::strcmp(row.name, name) == 0) return row;
    known.add(row.name);
  }
  fail("config: unknown name '", name, "'", known.known(name));
}

bool among(const std::string& value, const char* choices) {
  return value.find('|') == std::string::npos && str("|", choices, "|").find("|" + value + "|") != std::string::npos;
}

KnownNames parts(std::string_view choices) {
  KnownNames out;
  for (size_t at = 0, end; at <= choices.size(); at = end + 1) {
    end = std::min(choices.find('|', at), choices.size());
    out.add(choices.substr(at, end - at));
  }
  return out;
}

void check_choice(const Row& row, const std::string& value) {
  if (!row.choices || value.empty()) return;
  if (!among(value, row.choices)) {
    fail("config: ", row.name, " must be one of ", row.choices, ", got '", value, "'",
         parts(row.choices).question(value));
  }
  if (row.exist && !among(value, row.exist)) {
    fail("config: ", row.name, " = ", value, " does not exist yet (what exists: ", row.exist, ")");
  }
}

int check_int(const Row& row, double value) {
  if (value != std::floor(value) || value < row.least || value > 1e9) {
    fail("config: ", row.name, " must be a whole number of at least ", row.least, ", got ", value);
  }
  return int(value);
}

double check_share(const Row& row, double value) {
  if (!(value >= 0 && value <= 1)) fail("config: ", row.name, " must be a number from 0 to 1, got ", value);
  return value;
}

bool flag_of(const Row& row, const std::string& text) {
  const std::string choice = text == "1" ? "true" : text == "0" ? "false" : text;
  check_choice(row, choice);
  return choice == "true";
}

double number_of(const Row& row, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end) fail("config: ", row.name, " must be a number, got '", text, "'");
  return value;
}

// Copies the settings that ops and jit use. The directory is set only if its own setting changes, since a relative path
// is resolved at that time.
void apply(const Config& config, const Row& row) {
  Settings& to = settings();
  to.num_threads = config.num_threads;
  to.isa = config.isa;
  to.cudagraphs = config.cudagraphs;
  to.cache = config.cache == "off" ? CacheMode::kOff : config.cache == "read" ? CacheMode::kRead : CacheMode::kOn;
  to.cache_bytes = uint64_t(config.cache_mb) << 20;
  if (row.member == Member(&Config::cache_dir)) set_cache_directory(config.cache_dir);
}

void set_from_text(Config& config, const Row& row, const std::string& text) {
  if (auto* number = std::get_if<int Config::*>(&row.member)) {
    config.** number = check_int(row, number_of(row, text));
  } else if (auto* share = std::get_if<double Config::*>(&row.member)) {
    config.** share = check_share(row, number_of(row, text));
  } else if (auto* flag = std::get_if<bool Config::*>(&row.member)) {
    config.** flag = flag_of(row, text);
  } else if (auto* open = std::get_if<std::optional<bool> Config::*>(&row.member)) {
    config.** open = flag_of(row, text);
  } else if (std::holds_alternative<Passes>(row.member)) {
    read_passes(config, text);
  } else if (std::holds_alternative<Fixed>(row.member)) {
    among("true", row.choices) ? void(flag_of(row, text)) : check_choice(row, text);
  } else {
    check_choice(row, text);
    const auto member = std::get<std::string Config::*>(row.member);
    config.*member = text.empty() ? Config().*member : text;  // nil: the default
  }
}

void push_setting(lua_State* L, const Config& config, const Row& row) {
  if (auto* fixed = std::get_if<Fixed>(&row.member)) {
    const std::string choice = fixed->choice;
    choice == "true" ? lua_pushboolean(L, 1) : lua_pushlstring(L, choice.data(), choice.size());
  } else if (std::holds_alternative<Passes>(row.member)) {
    push_passes(L);
  } else if (auto* number = std::get_if<int Config::*>(&row.member)) {
    lua_pushnumber(L, row.in_force ? std::stod(row.in_force()) : config.**number);
  } else if (auto* share = std::get_if<double Config::*>(&row.member)) {
    lua_pushnumber(L, config.**share);
  } else if (auto* flag = std::get_if<bool Config::*>(&row.member)) {
    lua_pushboolean(L, config.**flag);
  } else if (auto* open = std::get_if<std::optional<bool> Config::*>(&row.member)) {
    config.**open ? lua_pushboolean(L, *(config.**open)) : lua_pushnil(L);
  } else {
    const std::string text = row.in_force ? row.in_force() : config.*std::get<std::string Config::*>(row.member);
    text.empty() ? lua_pushnil(L) : lua_pushlstring(L, text.data(), text.size());
  }
}

int get_impl(lua_State* L) {
  push_setting(L, runtime(L).config, find_row(lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?"));
  return 1;
}

// Implements lt.config(), which returns all settings in a plain table: LuaJIT's pairs finds no fields in a proxy.
int all_impl(lua_State* L) {
  const Config& config = runtime(L).config;
  lua_newtable(L);
  for (const Row& row : kRows) push_setting(L, config, row), lua_setfield(L, -2, row.name);
  return 1;
}

// Fails unless the new value of a setting has one of two types.
void expect_type(lua_State* L, const Row& row, int first, int second, const std::string& what) {
  const int type = lua_type(L, 3);
  if (type != first && type != second) fail("config: ", row.name, " must be ", what, ", got ", luaL_typename(L, 3));
}

int set_impl(lua_State* L) {
  Config& config = runtime(L).config;
  const Row& row = find_row(lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?");
  const int type = lua_type(L, 3);
  if (auto* number = std::get_if<int Config::*>(&row.member)) {
    expect_type(L, row, LUA_TNUMBER, LUA_TNUMBER, "a number");
    config.** number = check_int(row, lua_tonumber(L, 3));
  } else if (auto* share = std::get_if<double Config::*>(&row.member)) {
    expect_type(L, row, LUA_TNUMBER, LUA_TNUMBER, "a number");
    config.** share = check_share(row, lua_tonumber(L, 3));
  } else if (auto* flag = std::get_if<bool Config::*>(&row.member)) {
    expect_type(L, row, LUA_TBOOLEAN, LUA_TBOOLEAN, "a boolean");
    config.** flag = lua_toboolean(L, 3);
  } else if (auto* open = std::get_if<std::optional<bool> Config::*>(&row.member)) {
    expect_type(L, row, LUA_TBOOLEAN, LUA_TNIL, "a boolean or nil");
    config.** open = type == LUA_TNIL ? std::nullopt : std::optional<bool>(lua_toboolean(L, 3));
  } else if (std::holds_alternative<Passes>(row.member)) {
    assign_passes(L, 3);
  } else if (std::holds_alternative<Fixed>(row.member)) {
    expect_type(L, row, LUA_TBOOLEAN, LUA_TSTRING, str("one of ", row.choices));
    check_choice(row, type == LUA_TSTRING ? lua_tostring(L, 3) : lua_toboolean(L, 3) ? "true" : "false");
  } else {
    expect_type(L, row, LUA_TSTRING, LUA_TNIL, "a string or nil");
    set_from_text(config, row, type == LUA_TNIL ? "" : lua_tostring(L, 3));
  }
  apply(config, row);
  if (on_config_change) on_config_change(L);
  return 0;
}

int config_get(lua_State* L) { return guarded(L, get_impl); }
int config_set(lua_State* L) { return guarded(L, set_impl); }
int config_all(lua_State* L) { return guarded(L, all_impl); }

std::string variable_of(const Row& row) {
  std::string variable = "LUTRA_";
  for (const char* p = row.name; *p; ++p) variable += char(std::toupper(*p));
  return variable;
}

// Variables that other folders, the tests and the scripts read.
const char* const kOtherVariables[] = {"LUTRA_LOGS",     "LUTRA_TAILCALLS",  "LUTRA_STDLIB", "LUTRA_KEEP_KERNELS",
                                       "LUTRA_BLESS",    "LUTRA_SOURCE_DIR", "LUTRA_CUDA_*", "LUTRA_TEST_*",
                                       "LUTRA_FUZZ_*",   "LUTRA_FAKE_*",     "LUTRA_SHIM_*", "LUTRA_TORCH",
                                       "LUTRA_ORACLE_*", "LUTRA_INJECT"};

bool is_other_variable(const std::string& name) {
  for (const std::string pattern : kOtherVariables) {
    if (pattern == name) return true;
    if (pattern.back() == '*' && name.rfind(pattern.substr(0, pattern.size() - 1), 0) == 0) return true;
  }
  return false;
}

// Rejects unknown variables: a misspelt LUTRA_NUMTHREADS would have no effect.
void check_variables() {
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    if (name.rfind("LUTRA_", 0) != 0 || is_other_variable(name)) continue;
    std::vector<std::string> variables;
    for (const Row& row : kRows) variables.push_back(variable_of(row));
    variables.push_back("LUTRA_LOGS");
    KnownNames known;
    for (const std::string& each : variables) known.add(each);
    if (!known.have(name)) fail(name, ": unknown setting", known.known(name));
  }
}

}  // namespace

void (*on_config_change)(lua_State* L) = nullptr;

void load_environment(Config& config) {
  check_variables();
  // Runs once in the process: when another state opens, compilations of the first ones may be running.
  [[maybe_unused]] static const bool once = [] {
    const char* bugs = std::getenv("LUTRA_INJECT");
    switch_on_bugs(bugs ? bugs : "");
    return true;
  }();
  for (const Row& row : kRows) {
    const std::string variable = variable_of(row);
    const char* text = std::getenv(variable.c_str());
    if (!text || !*text) continue;
    try {
      set_from_text(config, row, text);
      apply(config, row);
    } catch (const Error& e) {
      fail(variable, std::string(e.what()).substr(std::strlen("config")));
    }
  }
}

void push_config(lua_State* L) {
  push_proxy(L, config_get, config_set, config_all);
  // The descriptions of the settings, which the REPL lists.
  lua_getmetatable(L, -1);
  lua_newtable(L);
  for (const Row& row : kRows) lua_pushstring(L, row.about), lua_setfield(L, -2, row.name);
  lua_setfield(L, -2, "names");
  lua_pop(L, 1);
}

}  // namespace lutra
