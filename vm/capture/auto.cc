// Hot frames: eager ops count, and every so many of them the frames found on the Lua stack are heated. Stress: a call
// hook sees every function.
#include "vm/capture/auto.h"

#include <lua.hpp>

#include "vm/bind/module.h"
#include "vm/capture/state.h"
#include "vm/host/runtime.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

constexpr int kOpsAWalk = 8, kLevels = 6;
const char kHeatKey = 0;  // registry: weak table from function to heat; -1 once it was patched

// Adds to the heat of the function at the top of the stack; true when it has reached the threshold just now.
bool heat(lua_State* L, int threshold) {
  const int f = lua_gettop(L);
  lua_pushlightuserdata(L, const_cast<char*>(&kHeatKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (lua_isnil(L, -1)) {
    push_weak_table(L, "k");
    lua_pushlightuserdata(L, const_cast<char*>(&kHeatKey));
    lua_pushvalue(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  lua_pushvalue(L, f);
  lua_rawget(L, -2);
  const lua_Number before = lua_tonumber(L, -1);
  const bool hot = before >= 0 && before + 1 >= threshold;
  lua_pushvalue(L, f);
  lua_pushnumber(L, before < 0 || hot ? -1 : before + 1);
  lua_rawset(L, -4);
  lua_settop(L, f);
  return hot;
}

void heat_stack(lua_State* L) {
  CaptureState& state = capture_state(L);
  if (state.auto_threshold <= 0 || ++state.eager_ops % kOpsAWalk != 0) return;
  lua_Debug frame;
  for (int level = 1; level <= kLevels && lua_getstack(L, level, &frame); level++) {
    lua_getinfo(L, "f", &frame);
    if (!lua_iscfunction(L, -1) && heat(L, state.auto_threshold)) patch_in_place(L, lua_gettop(L));
    lua_pop(L, 1);
  }
}

void on_call(lua_State* L, lua_Debug* frame) {
  lua_getinfo(L, "f", frame);
  if (!lua_iscfunction(L, -1) && heat(L, 1)) {
    try {
      patch_in_place(L, lua_gettop(L));
    } catch (const std::exception&) {  // a function that cannot be patched runs as it is
    }
  }
  lua_pop(L, 1);
}

}  // namespace

bool patch_in_place(lua_State* L, int index) {
  CaptureState& state = capture_state(L);
  const int top = lua_gettop(L);
  if (redirected(L, index)) return true;
  auto unit = find_unit(state, L, index, UnitOptions(), 0);
  if (!unit) return false;
  push_clone(state, L, unit, index, true);
  const bool done = redirect(L, index, lua_gettop(L)).empty();
  lua_settop(L, top);
  if (done) remember_compiled(L, index, *unit);
  return done;
}

void set_auto(lua_State* L, int threshold) {
  capture_state(L).auto_threshold = threshold;
  if (threshold > 0) on_eager_call = heat_stack;  // for all states: each asks its own threshold
}

void apply_stress(lua_State* L) {
  CaptureState& state = capture_state(L);
  const std::string& stress = runtime(L).config.stress;
  state.stress_breaks = stress == "break";
  const bool on = stress == "capture" || stress == "break";
  if (on == state.stress_hook) return;
  state.stress_hook = on;
  lua_sethook(L, on ? on_call : nullptr, on ? LUA_MASKCALL : 0, 0);
}

}  // namespace lutra
