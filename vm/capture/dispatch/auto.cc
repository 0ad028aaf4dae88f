// Hot frames: every few eager ops, lt.auto counts the frames on the Lua stack for their prototypes. Stress: a call hook
// sees every function, except those that a long loop calls while the hook is paused.
#include "vm/capture/dispatch/auto.h"

#include <algorithm>
#include <iterator>
#include <lua.hpp>
#include <utility>

#include "vm/bind/module.h"
#include "vm/capture/dispatch/auto_budget.h"
#include "vm/capture/dispatch/callees.h"
#include "vm/capture/dispatch/compiled.h"
#include "vm/capture/dispatch/rounds.h"
#include "vm/capture/dispatch/state.h"
#include "vm/host/modes.h"
#include "vm/host/runtime.h"
#include "vm/mirror/mirror.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

// Eager ops between two walks of the stack, in turn. Their sum is a prime, so that the walks during a loop meet each of
// its ops.
constexpr int kOpsAWalk[] = {5, 7, 8, 9, 12};
constexpr int kOpsOfPause = 97;  // the same while lt.auto has to wait
constexpr size_t kFrames = 6, kFramesOfLoops = 12, kMaxHeats = 4096;
const char kSeenKey = 0;  // registry: weak table of the functions that the stress hook has met

// Patches the function at the top of the stack; one that cannot be patched runs as it is.
void try_patch(lua_State* L, bool automatic) {
  try {
    patch_in_place(L, lua_gettop(L), automatic);
  } catch (const std::exception&) {
  }
}

// Returns whether the user has unpatched or disabled the function at `index`.
bool is_left_alone(const CaptureState& state, lua_State* L, int index) {
  return was_unpatched(L, index) || disabled_because(state.trace, lua_topointer(L, index));
}

// Handles a hot frame. Its function is patched once, for later calls; the copies that its running frames use are not
// patched again. A frame that stays in a loop is entered. That of a main chunk is entered at once, since nobody calls
// it again. Returns whether this frame runs compiled code from now on.
bool note_hot(CaptureState& state, lua_State* L, const mirror::LuaFrame& frame, const Heat& heat) {
  const double start = thread_cpu_ms();
  const int top = lua_gettop(L);
  luaL_checkstack(L, 20, "lt.auto");
  bool entered = false;
  mirror::push_object(L, mirror::kFunc, frame.function);
  push_function_of_frame(L, top + 1);
  if (is_left_alone(state, L, top + 2)) return lua_settop(L, top), false;
  const bool main = mirror::proto_of(frame.function)->firstline == 0, patched = was_patched(L, top + 1);
  try {
    if (patched) {
      const std::shared_ptr<CompiledProto> own = compiled_proto(L, top + 2);
      const bool asks = own && own->automatic;
      if (asks && !may_revive(L, state, *own)) return lua_settop(L, top), false;
      if (asks) revive(state, L, own);
    }
    // The frame's loops run on for long, so its next call may come too late or never.
    constexpr double kLong = 50;
    const bool stays = heat.rounds.left_ms > kLong * state.automatic.next_ms;
    if (main || patched || stays) entered = enter_loop(state, L, frame, heat.places);
    if (!main && !patched && !entered) patch_in_place(L, top + 1, true);
  } catch (const std::exception&) {
    // What cannot be patched runs as it is.
  }
  lua_settop(L, top);
  state.automatic.spent_ms += thread_cpu_ms() - start;
  return entered;
}

// Estimates the time that the loops of frames have left. Returns true if their next rounds will tell.
bool note_time_left(lua_State* L, CaptureState& state) {
  mirror::LuaFrame frames[kFramesOfLoops];
  const size_t n = mirror::lua_frames(L, frames, kFramesOfLoops);
  const double now = process_cpu_ms();
  state.automatic.left_ms = 0;
  bool soon = false;
  for (size_t i = 0; i < n; i++) {
    FrameRounds& rounds = state.heat[mirror::proto_of(frames[i].function)].rounds;
    note_rounds(L, frames[i], now, rounds);
    state.automatic.left_ms = std::max(state.automatic.left_ms, rounds.left_ms);
    soon = soon || rounds.soon_known;
  }
  return soon;
}

// Outermost frame first: if a frame's loop is entered, its callees become part of it.
void heat_stack(lua_State* L) {
  CaptureState& state = capture_state(L);
  if (state.heat.size() > kMaxHeats) state.heat.clear();
  constexpr unsigned kEach = 4;
  constexpr double kServed = 16;
  const bool may_wait = runtime(L).config.profit == "auto";
  if (may_wait && state.walks % kEach == 0) state.loops_tell = note_time_left(L, state);
  // If compiled code runs nearly all ops, more of it saves little.
  const bool served = std::exchange(state.automatic.run_ops, 0) > kServed * state.ops_to_walk;
  const bool waits = may_wait && (served || state.loops_tell || !is_affordable(L, state));
  state.ops_to_walk = waits ? kOpsOfPause : kOpsAWalk[state.walks % std::size(kOpsAWalk)];
  state.walks++;
  modes().calls_to_hook = state.ops_to_walk;
  if (waits) return;
  mirror::LuaFrame frames[kFrames];
  for (size_t i = mirror::lua_frames(L, frames, kFrames); i-- > 0;) {
    const mirror::Proto* proto = mirror::proto_of(frames[i].function);
    Heat& heat = state.heat[proto];
    if (frames[i].called) {
      heat.places[size_t(heat.count) % heat.places.size()] = bc::Pc(frames[i].called - proto->bytecode());
    }
    if (++heat.count < heat.next + state.auto_threshold || !is_affordable(L, state)) continue;
    // Each time the prototype was hot, its next function has to wait longer.
    heat.next = heat.count + int64_t(state.auto_threshold) * heat.times++;
    const bool entered = note_hot(state, L, frames[i], heat);
    if (entered) return;
  }
}

// Returns whether the stress hook meets the function at the top of the stack for the first time.
bool first_time(lua_State* L) {
  const int f = lua_gettop(L);
  lua_pushlightuserdata(L, const_cast<char*>(&kSeenKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    push_weak_table(L, "k");
    lua_pushlightuserdata(L, const_cast<char*>(&kSeenKey));
    lua_pushvalue(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  lua_pushvalue(L, f);
  lua_rawget(L, f + 1);
  const bool seen = !lua_isnil(L, -1);
  lua_pushvalue(L, f);
  lua_pushboolean(L, 1);
  lua_rawset(L, f + 1);
  lua_settop(L, f);
  return !seen;
}

// Patches the function at the top of the stack if it is new, and pops it. Returns whether it was new.
bool meet(lua_State* L, CaptureState& state) {
  const int f = lua_gettop(L);
  const bool wanted = !lua_iscfunction(L, f) && !was_patched(L, f) && !is_left_alone(state, L, f);
  const bool is_new = wanted && first_time(L);
  if (is_new) try_patch(L, false);
  lua_settop(L, f - 1);
  return is_new;
}

// LuaJIT records no trace through a call that is hooked. So the hook pauses after many calls that met no new function.
// A pause is a number of VM instructions, twice as long each time in a row. Functions that run eager ops meanwhile,
// also in traces, are met by the walk at those ops.
constexpr int kQuietCalls = 4096, kFirstPause = 1000000, kLongestPause = 16000000;

void on_call(lua_State* L, lua_Debug* frame);

void on_pause_end(lua_State* L, lua_Debug*) {
  capture_state(L).stress.paused = false;
  lua_sethook(L, on_call, LUA_MASKCALL, 0);
}

void pause(lua_State* L, StressHook& hook) {
  hook.length = hook.length == 0 ? kFirstPause : std::min(hook.length * 2, kLongestPause);
  hook.quiet_calls = 0;
  hook.paused = true;
  int64_t& ops = modes_of(L)->calls_to_hook;
  ops = std::min<int64_t>(ops, kOpsOfPause);
  lua_sethook(L, on_pause_end, LUA_MASKCOUNT, hook.length);
}

void on_call(lua_State* L, lua_Debug* frame) {
  lua_getinfo(L, "f", frame);
  CaptureState& state = capture_state(L);
  if (meet(L, state)) {
    state.stress = {.on = true};
  } else if (++state.stress.quiet_calls >= kQuietCalls && lua_gethook(L) == on_call) {
    pause(L, state.stress);
  }
}

void meet_stack(lua_State* L, CaptureState& state) {
  lua_Debug frame;
  luaL_checkstack(L, 20, "stress");
  for (int level = 0; level < int(kFrames) && lua_getstack(L, level, &frame); level++) {
    lua_getinfo(L, "f", &frame);
    meet(L, state);
  }
}

void on_eager_ops(lua_State* L) {
  CaptureState& state = capture_state(L);
  modes().calls_to_hook = Modes::kNever;
  if (state.auto_threshold > 0) heat_stack(L);
  if (!state.stress.paused) return;
  modes().calls_to_hook = std::min<int64_t>(modes().calls_to_hook, kOpsOfPause);
  meet_stack(L, state);
}

}  // namespace

bool patch_in_place(lua_State* L, int index, bool automatic) {
  CaptureState& state = capture_state(L);
  const int top = lua_gettop(L);
  if (redirected(L, index)) return true;
  auto compiled = find_proto(state, L, index, CaptureOptions(), 0);
  if (!compiled) return false;
  if (automatic && !compiled->patched && compiled->log->empty()) compiled->automatic = true;
  push_clone(state, L, compiled, index, true);
  const bool done = redirect(L, index, lua_gettop(L)).empty();
  lua_settop(L, top);
  if (done) remember_compiled(L, index, *compiled);
  return done;
}

void set_auto(lua_State* L, int threshold) {
  if (threshold > 0 && !mirror::available(L)) {
    fail("auto: cannot patch in place: this LuaJIT's structs are not those Lutra knows (use lt.compile)");
  }
  CaptureState& state = capture_state(L);
  state.auto_threshold = threshold;
  state.heat.clear();
  state.automatic = {.since_ms = wall_ms(), .cpu_since_ms = process_cpu_ms()};
  on_eager_call = on_eager_ops;
  modes_of(L)->calls_to_hook = threshold > 0 ? kOpsAWalk[0] : Modes::kNever;
}

void apply_stress(lua_State* L) {
  CaptureState& state = capture_state(L);
  const std::string& stress = runtime(L).config.stress;
  state.trace.stress_breaks = stress == "break";
  const bool on = stress == "capture" || stress == "break";
  if (on == state.stress.on) return;
  state.stress = {.on = on};
  on_eager_call = on_eager_ops;
  lua_sethook(L, on ? on_call : nullptr, on ? LUA_MASKCALL : 0, 0);
}

}  // namespace lutra
