// Patches the functions whose calls segments leave to Lua. The caller calls the original function, so that function
// itself is patched, in place.
#include "vm/capture/dispatch/callees.h"

#include <algorithm>
#include <lua.hpp>
#include <utility>

#include "vm/capture/dispatch/compiled.h"
#include "vm/capture/dispatch/entries.h"
#include "vm/capture/dispatch/state.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

// Each redirection flushes LuaJIT's traces. So if a program makes a function again and again, only its first few
// closures are patched.
constexpr int kMaxFunctions = 8;

int count_functions(lua_State* L, const CompiledProto& compiled) {
  int n = 0;
  lua_rawgeti(L, LUA_REGISTRYINDEX, compiled.functions);
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) n++;
  lua_pop(L, 1);
  return n;
}

// Returns whether the function runs what the user, lt.auto or another segment has chosen.
bool runs_otherwise(const CaptureState& state, lua_State* L, int index) {
  return was_unpatched(L, index) || disabled_because(state.trace, lua_topointer(L, index)) || is_resumed(L, index) ||
         original_proto(L, index) != mirror::proto_of(lua_function(L, index));
}

void note_callee(CompiledProto& root, const std::shared_ptr<CompiledProto>& callee) {
  const auto same = [&](const std::weak_ptr<CompiledProto>& known) { return known.lock() == callee; };
  if (callee.get() == &root || std::any_of(root.callees.begin(), root.callees.end(), same)) return;
  root.callees.push_back(callee);
}

// Returns whether there is nothing to compile in it.
bool is_idle(const CompiledProto& compiled) {
  return std::all_of(compiled.points.begin(), compiled.points.end(), [](const auto& p) { return p.second.dead; });
}

// Patches the function at `index`. Returns false if it runs the same code as before.
bool patch(CaptureState& state, lua_State* L, CompiledProto& root, int index) {
  if (redirected(L, index)) {
    if (const auto known = compiled_proto(L, index)) note_callee(root, known);
    return false;
  }
  if (runs_otherwise(state, L, index)) return false;
  CaptureOptions options = root.options;
  options.dynamic_dims.clear();  // they are for the arguments of the function that the user compiled
  const std::shared_ptr<CompiledProto> callee = find_proto(state, L, index, options, root.key.serial);
  if (!callee || callee->failed || is_idle(*callee) || count_functions(L, *callee) >= kMaxFunctions) return false;
  if (!callee->patched && callee->log->empty()) callee->callee = true, callee->leaves_calls = root.leaves_calls;
  push_clone(state, L, callee, index, false);
  if (!redirect(L, index, lua_gettop(L)).empty()) return false;
  follow(L, *callee, index);
  remember_compiled(L, index, *callee);
  note_callee(root, callee);
  return true;
}

// Makes `maker` pass the closures that it makes of this constant to the portal.
void bear(CompiledProto& maker, CompiledProto& callee, lua_Integer constant) {
  if (!maker.own_children.insert(unsigned(constant)).second) return;
  callee.makers.emplace_back(maker.weak_from_this(), unsigned(constant));
  maker.changed = true;
}

// Returns the compiled prototype that new closures of the prototype of the function at `index` follow; null if they run
// the same code as before.
std::shared_ptr<CompiledProto> patch_newborn(CaptureState& state, lua_State* L, CompiledProto& root, int index) {
  const int top = lua_gettop(L);
  std::shared_ptr<CompiledProto> callee;
  if (push_example(L, index)) {
    if ((callee = compiled_proto(L, -1))) note_callee(root, callee);
  } else if (patch(state, L, root, index)) {
    run_newborn(L, index);
    lua_pushvalue(L, index);
    root.examples.push_back(luaL_ref(L, LUA_REGISTRYINDEX));
    callee = compiled_proto(L, index);
  }
  lua_settop(L, top);
  return callee;
}

// Makes the function at `index` pass its new closures of the constant to the portal. It, or another closure of its
// prototype, has made the callee's function.
void patch_maker(CaptureState& state, lua_State* L, CompiledProto& root, CompiledProto& callee, int index,
                 lua_Integer constant) {
  std::shared_ptr<CompiledProto> maker = patch_newborn(state, L, root, index);
  if (!maker && redirected(L, index)) maker = compiled_proto(L, index);
  if (!maker) return;
  bear(*maker, callee, constant);
  refresh(state, L, maker);
}

// Patches the function at `index`; above it is what leave_out noted about it.
void patch_left_out(CaptureState& state, lua_State* L, CompiledProto& caller, int index) {
  CompiledProto& root = caller.root ? *caller.root : caller;
  if (lua_isboolean(L, index + 1)) return void(patch(state, L, root, index));
  const std::shared_ptr<CompiledProto> callee = patch_newborn(state, L, root, index);
  if (!callee) return;
  if (lua_isnumber(L, index + 1)) return bear(caller, *callee, lua_tointeger(L, index + 1));
  lua_rawgeti(L, index + 1, 1);
  lua_rawgeti(L, index + 1, 2);
  patch_maker(state, L, root, *callee, index + 2, lua_tointeger(L, index + 3));
}

}  // namespace

void compile_callees(CaptureState& state, lua_State* L, CompiledProto& caller, int left_out) {
  if (!mirror::available(L) || caller.automatic) return;  // lt.auto finds what is hot by itself
  const int top = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, left_out); lua_settop(L, top + 1)) {
    try {
      patch_left_out(state, L, caller, top + 1);
    } catch (const std::exception&) {
      // What cannot be patched runs as it is.
    }
  }
}

std::vector<std::shared_ptr<CompiledProto>> with_callees(const std::shared_ptr<CompiledProto>& compiled) {
  std::vector<std::shared_ptr<CompiledProto>> all{compiled};
  for (size_t i = 0; i < all.size(); i++) {
    for (const std::weak_ptr<CompiledProto>& c : all[i]->callees) {
      const std::shared_ptr<CompiledProto> callee = c.lock();
      if (callee && std::find(all.begin(), all.end(), callee) == all.end()) all.push_back(callee);
    }
  }
  return all;
}

void follow_newest(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled, int index) {
  if (!compiled->callee || !mirror::available(L)) return;
  const int top = lua_gettop(L);
  push_function_of_frame(L, index);
  if (!redirected(L, top + 1) && count_functions(L, *compiled) < kMaxFunctions) {
    push_clone(state, L, compiled, top + 1, false);
    if (redirect(L, top + 1, top + 2).empty()) follow(L, *compiled, top + 1), remember_compiled(L, top + 1, *compiled);
  }
  lua_settop(L, top);
}

void retire_callee(CaptureState& state, lua_State* L, CompiledProto& compiled) {
  if (compiled.makers.empty() || !is_idle(compiled)) return;
  const int top = lua_gettop(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, compiled.functions);
  for (lua_pushnil(L); lua_next(L, top + 1); lua_pop(L, 1)) forget_newborn(L, top + 2);
  lua_settop(L, top);
  compiled.retired_makers = std::exchange(compiled.makers, {});
  for (const auto& [made_by, constant] : compiled.retired_makers) {
    const std::shared_ptr<CompiledProto> maker = made_by.lock();
    if (!maker || !maker->own_children.erase(constant)) continue;
    maker->changed = true;
    refresh(state, L, maker);
  }
}

namespace {

// Makes its makers pass its closures to the portal again.
void bear_again(CaptureState& state, lua_State* L, const CompiledProto& root, CompiledProto& callee) {
  const int top = lua_gettop(L);
  for (const int example : root.examples) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, example);
    const bool is = compiled_proto(L, top + 1).get() == &callee;
    if (is) run_newborn(L, top + 1);
    lua_settop(L, top);
    if (!is) continue;
    for (const auto& [made_by, constant] : std::exchange(callee.retired_makers, {})) {
      const std::shared_ptr<CompiledProto> maker = made_by.lock();
      if (!maker) continue;
      bear(*maker, callee, constant);
      refresh(state, L, maker);
    }
  }
}

bool revive_points(lua_State* L, CompiledProto& compiled) {
  bool any = false;
  for (auto& [pc, point] : compiled.points) {
    if (!std::exchange(point.given_up, false)) continue;
    if (!std::exchange(point.enters_callees, true)) forget_entries(L, point);
    point.dead = false, point.idle_calls = point.idle_captures = 0;
    any = compiled.changed = true;
  }
  return any;
}

}  // namespace

bool revive(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled) {
  const std::map<std::pair<bc::Pc, std::string>, std::shared_ptr<CompiledProto>> resumes = compiled->resumes;
  for (const auto& [where, resume] : resumes) {
    if (revive_points(L, *resume)) refresh(state, L, resume);
  }
  if (!revive_points(L, *compiled)) return false;
  refresh(state, L, compiled);
  return true;
}

void revive_callees(CaptureState& state, lua_State* L, CompiledProto& root) {
  constexpr int64_t kEach = 4;
  if (root.hits < root.revives_at || in_finalizer(L)) return;
  root.revives_at *= kEach;
  const std::vector<std::weak_ptr<CompiledProto>> callees = root.callees;
  for (const auto& c : callees) {
    const std::shared_ptr<CompiledProto> callee = c.lock();
    if (!callee || callee->failed || !callee->patched) continue;
    if (revive(state, L, callee)) bear_again(state, L, root, *callee);
  }
}

void release_examples(lua_State* L, CompiledProto& compiled) {
  for (const int example : compiled.examples) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, example);
    forget_newborn(L, lua_gettop(L));
    lua_pop(L, 1);
    luaL_unref(L, LUA_REGISTRYINDEX, example);
  }
  compiled.examples.clear();
}

void restore_callees(lua_State* L, const std::shared_ptr<CompiledProto>& compiled) {
  const int top = lua_gettop(L);
  for (const auto& callee : with_callees(compiled)) {
    if (callee->key.serial == compiled->key.serial) release_examples(L, *callee);
    if (callee == compiled || callee->key.serial != compiled->key.serial) continue;
    callee->failed = true;  // for closures that were patched when they were made
    lua_rawgeti(L, LUA_REGISTRYINDEX, callee->functions);
    for (lua_pushnil(L); lua_next(L, top + 1);) {
      lua_pop(L, 1);
      restore(L, top + 2);
      forget_compiled(L, top + 2);
    }
    lua_settop(L, top);
  }
}

}  // namespace lutra
