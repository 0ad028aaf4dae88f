// Measurements for stdlib: the launches between start and stop, and the machine's rates.
#include "jit/runtime/profile.h"

#include <cstring>
#include <lua.hpp>

#include "jit/runtime/config.h"
#include "jit/runtime/limits.h"
#include "jit/runtime/tuning.h"
#include "ops/core/place.h"
#include "vm/bind/functions.h"
#include "vm/bind/userdata.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

// Finds the current line of the user's program: in a file, at the prompt or in a loaded text.
bool find_line(lua_Debug& at) {
  lua_State* L = current_lua();
  for (int level = 0; L && lua_getstack(L, level, &at); level++) {
    lua_getinfo(L, "Sl", &at);
    const std::string_view source = at.source;
    if (at.currentline > 0 && source.substr(0, 7) != "@lutra/" && source.substr(0, 6) != "=lutra") return true;
  }
  return false;
}
const char* file_of(const lua_Debug& at) {
  return at.source[0] == '@' || at.source[0] == '=' ? at.source + 1 : at.short_src;
}
void locate(LaunchRecord& record) {
  lua_Debug at;
  if (find_line(at)) record.file = file_of(at), record.line = at.currentline;
}
bool place_of_launch(Place& place) {
  lua_Debug at;
  if (!find_line(at)) return false;
  place.set(file_of(at), at.currentline);
  return true;
}

int profile_start(lua_State*) {
  start_profile(locate);
  return 0;
}

// Returns the launches, the milliseconds of compilation and the number of compiled kernels.
int profile_stop(lua_State* L) {
  const CompileCost cost = compile_cost();
  const std::vector<LaunchRecord> records = stop_profile();
  lua_createtable(L, int(records.size()), 0);
  int n = 0;
  for (const LaunchRecord& r : records) {
    lua_createtable(L, 0, 10);
    set_field(L, "name", r.name);
    set_field(L, "op", r.ops);
    lua_pushboolean(L, r.library);
    lua_setfield(L, -2, "library");
    if (!r.candidate.empty()) set_field(L, "candidate", r.candidate), set_field(L, "why", r.why);
    set_field(L, "calls", double(r.calls));
    set_field(L, "ms", r.ms);
    set_field(L, "bytes", double(r.bytes));
    set_field(L, "flops", r.flops), set_field(L, "bfloat16_flops", r.bfloat16_flops);
    if (!r.file.empty()) set_field(L, "file", r.file), set_field(L, "line", r.line);
    lua_rawseti(L, -2, ++n);
  }
  lua_pushnumber(L, cost.ms);
  lua_pushnumber(L, double(cost.kernels));
  return 3;
}

int tune_start(lua_State*) {
  start_tuning();
  return 0;
}

// Returns the measurements since tune_start: {{call, candidate, way, threads, options, gain}, ...}.
int tune_stop(lua_State* L) {
  const std::vector<TunedCall> calls = stop_tuning();
  lua_createtable(L, int(calls.size()), 0);
  int n = 0;
  for (const TunedCall& c : calls) {
    lua_createtable(L, 0, 6);
    set_field(L, "call", c.call), set_field(L, "candidate", std::string(c.choice.candidate));
    set_field(L, "way", c.choice.way), set_field(L, "threads", c.choice.threads),
        set_field(L, "options", c.choice.options);
    set_field(L, "gain", c.choice.gain);
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

// Saves the tuning table. Returns its path, or nil and the error.
int tune_save(lua_State* L) {
  try {
    lua_pushstring(L, save_tuning().c_str());
    return 1;
  } catch (const Error& e) {
    lua_pushnil(L);
    lua_pushstring(L, e.what());
    return 2;
  }
}

// measure(what, threads, bytes): bytes or operations per second.
int measure(lua_State* L) {
  const std::string what = luaL_checkstring(L, 1);
  const int threads = int(luaL_checkinteger(L, 2));
  const auto bytes = size_t(luaL_optnumber(L, 3, 0));
  lua_pushnumber(L, what == "read"   ? read_rate(threads, bytes)
                    : what == "copy" ? copy_rate(threads, bytes)
                                     : fma_rate(threads));
  return 1;
}

int cpu(lua_State* L) {
  lua_pushstring(L, cpu_name().c_str());
  return 1;
}

int has_tiles(lua_State* L) {
  lua_pushboolean(L, current_extern_isa() == ExternIsa::kAmx);
  return 1;
}

const Special kProfileSpecials[] = {
    {"_native.profile_start", kHostEffect, nullptr, profile_start},
    {"_native.profile_stop", kHostEffect, nullptr, profile_stop},
    {"_native.tune_start", kHostEffect, nullptr, tune_start},
    {"_native.tune_stop", kHostEffect, nullptr, tune_stop},
    {"_native.tune_save", kHostEffect, nullptr, tune_save},
    {"_native.measure", kHostEffect, nullptr, measure},
    {"_native.cpu_name", kHostEffect, nullptr, cpu},
    {"_native.has_tiles", kHostEffect, nullptr, has_tiles},
};

}  // namespace

std::span<const Special> profile_specials() { return kProfileSpecials; }
// Runs once in the process, since earlier states may launch kernels while another one opens.
void tell_places() { [[maybe_unused]] static const bool once = (set_place(place_of_launch), true); }

}  // namespace lutra
