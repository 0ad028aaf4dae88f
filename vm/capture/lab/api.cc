// lt.compile, lt.patch, lt.explain and the other functions that capture adds to the module table.
#include <algorithm>
#include <cstring>
#include <lua.hpp>
#include <span>

#include "jit/cache/segment_cache.h"
#include "jit/eager/eager.h"
#include "jit/repro/repro.h"
#include "ops/core/closest.h"
#include "ops/core/interrupt.h"
#include "vm/bind/lua_reader.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/capture/backward/parts.h"
#include "vm/capture/dispatch/auto.h"
#include "vm/capture/dispatch/callees.h"
#include "vm/capture/dispatch/compiled.h"
#include "vm/capture/dispatch/driver.h"
#include "vm/capture/dispatch/entries.h"
#include "vm/capture/dispatch/profit.h"
#include "vm/capture/dispatch/state.h"
#include "vm/capture/lab/open.h"
#include "vm/capture/lab/options.h"
#include "vm/capture/lab/report.h"
#include "vm/host/modes.h"
#include "vm/host/runtime.h"
#include "vm/host/stdlib.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

const char kAnchorKey = 0;  // registry key of the objects that are kept alive so that their addresses are not reused

[[noreturn]] void wrong_function(lua_State* L, const char* who, const char* wanted) {
  fail(who, ": argument 'f' must be ", wanted, ", got ", described(L, 1));
}

std::shared_ptr<CompiledProto> checked_proto(lua_State* L, const char* who) {
  if (!lua_isfunction(L, 1) && !lua_istable(L, 1)) wrong_function(L, who, "a compiled function or module");
  auto compiled = compiled_proto(L, 1);
  if (!compiled)
    fail(who, ": the ", lua_istable(L, 1) ? "module" : "function", " is not compiled (lt.compile gives one that is)");
  return compiled;
}

void anchor(lua_State* L, int index) {
  lua_pushvalue(L, index);
  lua_pushlightuserdata(L, const_cast<char*>(&kAnchorKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  lua_insert(L, -2);
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

// Makes the function that calls a module, and the __call of an object for its compiled form. It is loaded here, since
// chunks that Lua code loads keep the frames of tail calls: errors would name a module by a variable of this text.
const char kWrapper[] =
    "local module = ... return function(...) return module(...) end, "
    "function(f) return function(_, ...) return f(...) end end";

// module_wrapper(): a new chunk, whose functions have prototypes of their own (stdlib/compiled_module.lua).
int api_module_wrapper(lua_State* L) {
  if (luaL_loadbuffer(L, kWrapper, sizeof kWrapper - 1, "=lutra.compile") != 0) lua_error(L);
  return 1;
}

// Replaces the callable at `index` by a function; true if it was a table.
bool to_function(lua_State* L, int index, const char* who) {
  if (lua_isfunction(L, index)) {
    if (lua_iscfunction(L, index)) fail(who, ": a C function has no bytecode to capture");
    return false;
  }
  if (!lua_istable(L, index) || !luaL_getmetafield(L, index, "__call")) {
    wrong_function(L, who, "a function or a module");
  }
  lua_pop(L, 1);
  push_stdlib_value(L, "compiled_module");
  lua_pushvalue(L, index);
  lua_call(L, 1, 2);
  lua_insert(L, index + 1);  // the maker of the object
  lua_replace(L, index);
  return true;
}

// Pushes a compiled clone of the Lua function at `index`.
std::shared_ptr<CompiledProto> push_compiled(lua_State* L, int index, const CaptureOptions& options, uint64_t serial) {
  CaptureState& state = capture_state(L);
  auto compiled = find_proto(state, L, index, options, serial);
  if (!compiled) fail("compile: the function has no bytecode");
  compiled->automatic = compiled->callee = false;
  push_clone(state, L, compiled, index, true);
  remember_compiled(L, -1, *compiled);
  return compiled;
}

int api_compile(lua_State* L) {
  lua_settop(L, 2);
  const CaptureOptions options = read_options(L, 1, 2, "compile");
  lua_settop(L, 1);
  const bool module = to_function(L, 1, "compile");
  auto compiled = push_compiled(L, 1, options, 0);
  if (!module) return 1;
  lua_pushvalue(L, 2);  // the maker
  lua_pushvalue(L, 3);
  lua_call(L, 1, 1);
  remember_compiled(L, -1, *compiled);
  return 1;
}

// compile_for_library(f): f, a function of stdlib, compiled in the background although no user has asked for it. It has
// a limit of its own beside other compiled forms of f.
int api_compile_for_library(lua_State* L) {
  lua_settop(L, 1);
  CaptureOptions options;
  options.wait = 0;
  push_compiled(L, 1, options, capture_state(L).next_proto++)->for_library = true;
  return 1;
}

int api_patch(lua_State* L) {
  lua_settop(L, 2);
  const CaptureOptions options = read_options(L, 1, 2, "patch");
  lua_settop(L, 1);
  if (lua_iscfunction(L, 1)) fail("patch: a C function has no bytecode to capture");
  if (!lua_isfunction(L, 1)) wrong_function(L, "patch", "a Lua function");
  CaptureState& state = capture_state(L);
  auto compiled = find_proto(state, L, 1, options, 0);
  if (!compiled) fail("patch: the function has no bytecode");
  compiled->automatic = compiled->callee = false;
  const auto before = compiled_proto(L, 1);
  if (redirected(L, 1) && before == compiled) return 1;
  if (before) unfollow(L, *before, 1);
  push_clone(state, L, compiled, 1, true);
  const std::string why = redirect(L, 1, 2);
  if (!why.empty()) fail("patch: ", why);
  lua_settop(L, 1);
  remember_compiled(L, 1, *compiled);
  return 1;
}

int api_unpatch(lua_State* L) {
  lua_settop(L, 1);
  if (!lua_isfunction(L, 1)) wrong_function(L, "unpatch", "a function");
  if (auto compiled = compiled_proto(L, 1)) {
    unfollow(L, *compiled, 1);
    restore(L, 1);
    note_unpatched(L, 1);
  } else if (restore_newborn(L, 1)) {
    note_unpatched(L, 1);
  }
  return 1;
}

// Upvalues: the given callable as a Lua function, the given callable, options.
int run_explain(lua_State* L) {
  const int n = lua_gettop(L);
  CaptureState& state = capture_state(L);
  for (int i = 1; i <= 3; i++) lua_pushvalue(L, lua_upvalueindex(i));
  CaptureOptions options = read_options(L, n + 2, n + 3, "explain");
  options.wait = 1;
  const int f = n + 1;
  lua_settop(L, f);
  auto compiled = push_compiled(L, f, options, state.next_proto++);
  const size_t backwards = state.backward->log().size();
  for (int i = 1; i <= n; i++) lua_pushvalue(L, i);
  const int failed = lua_pcall(L, n, LUA_MULTRET, 0);
  restore_callees(L, compiled);
  if (failed) return lua_error(L);
  push_explanation(L, compiled, f + 1, lua_gettop(L) - f);
  push_backwards(L, *state.backward, backwards);
  lua_setfield(L, -2, "backwards");
  return 1;
}
int explain_entry(lua_State* L) { return guarded(L, run_explain); }

int api_explain(lua_State* L) {
  lua_settop(L, 2);
  read_options(L, 1, 2, "explain");
  lua_pushvalue(L, 1);
  to_function(L, 3, "explain");
  lua_settop(L, 3);
  lua_insert(L, 1);
  lua_pushcclosure(L, explain_entry, 3);
  return 1;
}

int api_guards(lua_State* L) {
  push_entries(L, *checked_proto(L, "guards"));
  return 1;
}

// Returns the report of lt.explain for a compiled function that has run.
int api_report(lua_State* L) {
  push_explanation(L, checked_proto(L, "explain"), lua_gettop(L) + 1, 0);
  return 1;
}

// Returns the list of parts of backwards that were compiled outside of compiled functions.
int api_backwards(lua_State* L) {
  push_backwards(L, *capture_state(L).backward, 0);
  return 1;
}

int api_break_rows(lua_State* L) {
  push_break_rows(L);
  return 1;
}

int api_recompiles(lua_State* L) {
  push_recompiles(L, *checked_proto(L, "recompiles"));
  return 1;
}

// Returns the compiled prototype and those of its rebuilt frames.
std::vector<std::shared_ptr<CompiledProto>> with_resumes(const std::shared_ptr<CompiledProto>& compiled) {
  std::vector<std::shared_ptr<CompiledProto>> all{compiled};
  for (size_t i = 0; i < all.size(); i++) {
    for (const auto& [where, resume] : all[i]->resumes) all.push_back(resume);
  }
  return all;
}

std::vector<std::shared_ptr<CompiledProto>> all_protos(const CaptureState& state) {
  std::vector<std::shared_ptr<CompiledProto>> all = state.resume_protos;
  for (const auto& [key, compiled] : state.protos) all.push_back(compiled);
  return all;
}

// wait_compiled(), wait_compiled(f): waits until all background compilations have finished, or those of f. The next
// call reports their errors.
int api_wait_compiled(lua_State* L) {
  std::vector<std::shared_ptr<CompiledProto>> protos = all_protos(capture_state(L));
  if (!lua_isnoneornil(L, 1)) {
    protos.clear();
    for (const auto& frame : with_callees(checked_proto(L, "wait_compiled"))) {
      for (auto& compiled : with_resumes(frame)) protos.push_back(std::move(compiled));
    }
  }
  for (const auto& compiled : protos) {
    each_point(*compiled, [](const ProtoPoint& point) {
      for (const auto& e : point.entries) {
        constexpr std::chrono::milliseconds kTurn(10);
        while (e->compiling && !e->compiling->work->wait(kTurn)) check_stop();
        while (!e->compiling && e->segment && !e->segment->wait(kTurn)) check_stop();
      }
    });
  }
  return 0;
}

// Drops entries and counters. Compiled functions stay compiled functions, and capture again.
int api_reset(lua_State* L) {
  CaptureState& state = capture_state(L);
  runtime(L).counters = Counters();
  clear_eager();
  state.backward->clear();
  for (auto& compiled : all_protos(state)) {
    compiled->failed = false;
    compiled->recompiles->clear(), compiled->log->clear(), compiled->breaks->clear();
    each_point(*compiled, [L](ProtoPoint& point) { forget_entries(L, point); });
    compiled->rebuilt_ms = 0, compiled->leaves_calls = false;
    compiled->called_ops.clear(), compiled->parted_calls.clear(), compiled->gone_on.clear();
    compiled->hits_since = 0, compiled->brings_back_at = CompiledProto().brings_back_at;
    for (auto& [pc, point] : compiled->points) {
      // Functions that lt.auto has patched wait until they are hot again, except running loops, which keep their
      // portal.
      const bool waits = has_to_pay(L, *compiled) && !point.entered_loop.any();
      if (point.dead != waits) compiled->changed = true;
      point.dead = point.given_up = waits;
      point.limit_reached = point.breaks_for_places = false;
      point.misses = point.worth = 0;
      point.enters_callees = true;
      point.dynamic_dims.clear();
      point.changing_values.clear();
      point.small_sizes = false;
      point.loop_variables.clear();
      point.decisions = TraceDecisions();
      point.stays = point.crosses = false;
      point.with_callers.clear();
      point.most_callers = ProtoPoint().most_callers, point.steered.clear();
      point.idle_captures = point.idle_calls = point.idle_rounds = 0;
      point.ops_at.clear();
      point.saved_ms = point.spent_ms = point.needs_ms = 0;
    }
    if (compiled->patched) refresh(state, L, compiled);  // abandoned points have no portal
  }
  return 0;
}

// Applies changed settings. Code that was compiled without verification is captured again once lt.config.verify is on.
void apply_settings(lua_State* L) {
  apply_stress(L);
  CaptureState& state = capture_state(L);
  Runtime& rt = runtime(L);
  const int before = rt.verify->exchange(rt.config.verify);
  if (rt.config.verify > 0 && before == 0) {
    state.backward->clear();
    for (auto& compiled : all_protos(state)) {
      each_point(*compiled, [L](ProtoPoint& point) { forget_entries(L, point); });
    }
  }
}

int api_disable(lua_State* L) {
  lua_settop(L, 2);
  if (!lua_isfunction(L, 1)) wrong_function(L, "disable", "a function");
  if (!lua_isnil(L, 2) && !lua_istable(L, 2)) fail("disable: options are a table, not ", described(L, 2));
  if (lua_isnil(L, 2)) lua_newtable(L), lua_replace(L, 2);
  for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : described(L, -2);
    if (key != "reason") fail("disable: unknown option '", key, "'", KnownNames{"reason"}.known(key));
  }
  if (const auto own = compiled_proto(L, 1); own && own->callee)
    unfollow(L, *own, 1), restore(L, 1), forget_compiled(L, 1);
  restore_newborn(L, 1);
  lua_getfield(L, 2, "reason");
  if (!lua_isnil(L, 3) && lua_type(L, 3) != LUA_TSTRING) {
    fail("disable: option 'reason' must be a text, got ", described(L, 3));
  }
  capture_state(L).trace.disabled[lua_topointer(L, 1)] = lua_isnil(L, 3) ? "" : lua_tostring(L, 3);
  anchor(L, 1);
  lua_settop(L, 1);
  return 1;
}

int api_graph_break(lua_State* L) {
  if (!lua_isnoneornil(L, 1) && lua_type(L, 1) != LUA_TSTRING) {
    fail("graph_break: argument 'message' must be a text, got ", described(L, 1));
  }
  return 0;
}

// Returns whether a compiled function is running and the innermost one has not called a disabled function.
int api_is_compiling(lua_State* L) {
  const auto& disabled = capture_state(L).trace.disabled;
  bool is_compiled = false, found = false;
  lua_Debug frame;
  for (int level = 1; !found && lua_getstack(L, level, &frame); level++) {
    lua_getinfo(L, "f", &frame);
    is_compiled = compiled_proto(L, lua_gettop(L)) != nullptr;
    found = is_compiled || disabled.count(lua_topointer(L, -1)) > 0;
    lua_pop(L, 1);
  }
  lua_pushboolean(L, is_compiled);
  return 1;
}

// Outside of a trace, control flow is ordinary Lua. The other functions that stdlib calls in a trace have only models
// (vm/capture/trace/regions.cc).
int api_beside_trace(lua_State* L) {
  lua_pushboolean(L, 0);
  return 1;
}
int api_of_a_trace(lua_State*) { fail_internal("a function of traces is called"); }
// Returns where a function is defined, such as "model.lua:12".
int api_place_of(lua_State* L) {
  lua_Debug about;
  lua_pushvalue(L, 1);
  lua_getinfo(L, ">S", &about);
  const std::string place = str(about.short_src, ":", about.linedefined);
  lua_pushstring(L, about.linedefined < 0 ? "no function of Lua's" : place.c_str());
  return 1;
}

int api_allow_in_graph(lua_State* L) {
  if (!lua_isfunction(L, 1)) wrong_function(L, "allow_in_graph", "a function");
  fail(
      "allow_in_graph: does not exist yet: a call that cannot be captured ends the graph (lt.disable(f) keeps f out of "
      "graphs)");
}

// mark_dynamic(x, dim, {min=, max=}), mark_static(x, dim); without dim, marks all dims.
int mark(lua_State* L, bool dynamic) {
  Tensor* t = to_tensor(L, 1);
  const char* who = dynamic ? "mark_dynamic" : "mark_static";
  if (!t) fail(who, ": argument 'x' must be a Tensor, got ", described(L, 1));
  lua_settop(L, 3);
  if (lua_istable(L, 2)) lua_replace(L, 3);
  const SizeBounds bounds = read_bounds(L, 3, who, dynamic);
  if (!lua_isnil(L, 2) && lua_type(L, 2) != LUA_TNUMBER) {
    fail(who, ": argument 'dim' must be an integer, got ", described(L, 2));
  }
  const int64_t all = -1000, dim = int64_t(luaL_optnumber(L, 2, double(all))), rank = (*t)->dim();
  if (dim != all && (dim < -rank || dim >= rank)) fail(who, ": dim ", dim, " is out of range for ", rank, " dims");
  CaptureState& state = capture_state(L);
  for (int64_t d = 0; d < rank; d++) {
    if (dim != all && d != (dim < 0 ? dim + rank : dim)) continue;
    const int64_t size = (*t)->sizes[size_t(d)].hint;
    if (size < bounds.min || size > bounds.max) {
      fail(who, ": dim ", d, " has size ", size, ", which is not from ", bounds.min, " to ", bounds.max);
    }
    set_mark(state.trace, L, *t, int(d), {dynamic ? 1 : -1, bounds});
  }
  lua_settop(L, 1);
  return 1;
}
int api_mark_dynamic(lua_State* L) { return mark(L, true); }
int api_mark_static(lua_State* L) { return mark(L, false); }

int api_auto(lua_State* L) {
  if (lua_type(L, 1) == LUA_TBOOLEAN && !lua_toboolean(L, 1)) {
    set_auto(L, 0);
    return 0;
  }
  int threshold = 16;
  if (lua_istable(L, 1)) {
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
      if (lua_type(L, -2) == LUA_TSTRING && strcmp(lua_tostring(L, -2), "threshold") == 0) continue;
      lua_pushvalue(L, -2);
      const std::string key = lua_isstring(L, -1) ? lua_tostring(L, -1) : "?";
      fail("auto: unknown option '", key, "'", KnownNames{"threshold"}.known(key));
    }
    lua_getfield(L, 1, "threshold");
    if (!lua_isnil(L, -1)) {
      if (lua_type(L, -1) != LUA_TNUMBER || !(lua_tonumber(L, -1) >= 1 && lua_tonumber(L, -1) <= 1e9)) {
        fail("auto: option 'threshold' must be a number >= 1, got ", described(L, lua_gettop(L)));
      }
      threshold = int(lua_tonumber(L, -1));
    }
  } else if (lua_type(L, 1) != LUA_TBOOLEAN) {
    fail("auto: argument 1 must be true, false or {threshold = n}, got ", described(L, 1));
  }
  set_auto(L, threshold);
  return 0;
}

// set_stance(name): sets the stance and returns the name of the old one.
int api_set_stance(lua_State* L) {
  if (lua_type(L, 1) != LUA_TSTRING) fail("set_stance: argument 'stance' must be a name, got ", described(L, 1));
  const std::string name = lua_tostring(L, 1);
  Stance& stance = capture_state(L).stance;
  const auto found = std::find(std::begin(kStances), std::end(kStances), name);
  if (found == std::end(kStances)) {
    KnownNames names;
    for (const char* known : kStances) names.add(known);
    fail("set_stance: unknown stance '", name, "'", names.known(name));
  }
  lua_pushstring(L, kStances[size_t(stance)]);
  stance = Stance(found - std::begin(kStances));
  return 1;
}

struct ApiRow {
  const char* name;
  int (*run)(lua_State*);
};
const ApiRow kApi[] = {
    {"compile", api_compile},
    {"patch", api_patch},
    {"unpatch", api_unpatch},
    {"explain", api_explain},
    {"guards", api_guards},
    {"recompiles", api_recompiles},
    {"_report", api_report},  // stdlib/explain.lua
    {"_backwards", api_backwards},
    {"counters", push_counters},
    {"wait_compiled", api_wait_compiled},
    {"reset", api_reset},
    {"disable", api_disable},
    {"graph_break", api_graph_break},
    {"is_compiling", api_is_compiling},
    {"allow_in_graph", api_allow_in_graph},
    {"mark_dynamic", api_mark_dynamic},
    {"mark_static", api_mark_static},
    {"auto", api_auto},
};

const ApiRow kNative[] = {{"control_possible", api_beside_trace},   {"control_peels", api_beside_trace},
                          {"control_open", api_of_a_trace},         {"control_close", api_of_a_trace},
                          {"control_refuse", api_of_a_trace},       {"control_cond", api_of_a_trace},
                          {"control_while", api_of_a_trace},        {"control_scan", api_of_a_trace},
                          {"control_branch_reads", api_of_a_trace}, {"control_loop_reads", api_of_a_trace},
                          {"control_place_of", api_place_of},       {"is_plain_checkpoint", api_beside_trace},
                          {"break_rows", api_break_rows},           {"is_captured", api_beside_trace},
                          {"set_stance", api_set_stance},           {"compile_for_library", api_compile_for_library},
                          {"module_wrapper", api_module_wrapper}};

int api_entry(lua_State* L) {
  auto* row = static_cast<const ApiRow*>(lua_touserdata(L, lua_upvalueindex(1)));
  return guarded(L, row->run);
}

void add_rows(lua_State* L, std::span<const ApiRow> rows, int table) {
  for (const ApiRow& row : rows) {
    lua_pushlightuserdata(L, const_cast<ApiRow*>(&row));
    lua_pushcclosure(L, api_entry, 1);
    lua_setfield(L, table, row.name);
  }
}

int run_portal_entry(lua_State* L, int id) { return run_portal(L, id); }

}  // namespace

int open_capture(lua_State* L) {
  const int module = lua_gettop(L);
  Runtime& rt = runtime(L);
  rt.capture = std::make_shared<CaptureState>();
  rt.capture->runtime = &rt, rt.capture->mirror = mirror::available(L);
  rt.capture->backward = std::make_shared<CompiledBackward>(rt, rt.capture->trace);
  modes_of(L)->backward_parts = rt.capture->backward.get();
  open_compiled(L);
  lua_pushlightuserdata(L, const_cast<char*>(&kAnchorKey));
  lua_newtable(L);
  lua_rawset(L, LUA_REGISTRYINDEX);
  add_rows(L, kApi, module);
  lua_getfield(L, module, "_native");
  add_rows(L, kNative, lua_gettop(L));
  lua_pop(L, 1);
  lua_pushvalue(L, module);
  lua_setfield(L, LUA_REGISTRYINDEX, "lutra.module");
  install_portals(L, run_portal_entry);
  learn_builtins(L, rt.capture->trace);  // including those that were just replaced
  // Runs once in the process, since earlier states may change settings while another one opens.
  [[maybe_unused]] static const bool once = (on_config_change = apply_settings, true);
  apply_settings(L);
  return 0;
}

}  // namespace lutra
