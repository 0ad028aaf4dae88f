// Portal calls: the entry whose guards hold is run; a miss captures again.
#include "vm/capture/dispatch/driver.h"
#include "ops/defs/modes.h"

#include <algorithm>
#include <lua.hpp>

#include "jit/autograd/compiled_autograd.h"
#include "jit/graph/unbacked.h"
#include "jit/repro/repro.h"
#include "ops/core/late_error.h"
#include "vm/capture/dispatch/capture_point.h"
#include "vm/capture/dispatch/compiled.h"
#include "vm/capture/dispatch/enter.h"
#include "vm/capture/dispatch/entries.h"
#include "vm/capture/dispatch/policy.h"
#include "vm/capture/dispatch/state.h"
#include "vm/capture/segment/run.h"
#include "vm/guard/rows.h"
#include "vm/host/runtime.h"
#include "vm/mirror/mirror.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

void push_self(lua_State* L) {
  lua_Debug frame;
  if (!lua_getstack(L, 1, &frame)) fail_internal("portal: not called from a function");
  lua_getinfo(L, "f", &frame);
}

// Goes over to the compiled prototype's newest bytecode: a tail call of its body at this pc with the frame's live
// slots, hidden ones of loops included, which are read where they lie.
int switch_over(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled,
                const PortalPlace& portal, int self) {
  const bc::Pc pc = portal.pc;
  const uint32_t* return_pc = mirror::return_pc(L);
  if (!return_pc || (mirror::base(L)[-1].u64 & 3) != 0) return 0;  // called from a trace: the next call will do
  std::shared_ptr<Patched> body = body_at(state, L, compiled, pc);
  if (!body) return 0;
  const std::vector<unsigned> live = resume_slots(compiled->code->proto(), pc, ResumeMode::kAt);
  luaL_checkstack(L, int(live.size()) + 8, "a loop");
  lua_pushinteger(L, lua_Integer(portal.exits) + 1);
  make_clone(L, self, *body);
  remember_compiled(L, -1, *compiled);
  for (unsigned slot : live) {
    lua_pushnil(L);
    const mirror::TValue* frame = mirror::base(L) - 2 - bc::op_a(return_pc[-1]);
    mirror::top(L)[-1] = frame[slot];
  }
  return int(live.size()) + 2;
}

// The frame of an earlier version of the compiled prototype's bytecode goes on in the newest, behind the same point.
// For results: where that takes them in the same form. False where the frame stays.
bool follow_frame(CaptureState& state, lua_State* L, const CompiledProto& compiled, const PortalPlace& portal, int self,
                  bool for_results) {
  if (!mirror::available(L)) return false;
  const int top = lua_gettop(L);
  push_self(L);  // a copy, where the function was redirected since the call
  push_function_of_frame(L, self);
  const mirror::Proto* from = mirror::proto_of(lua_function(L, top + 1));
  const mirror::Proto* to = mirror::proto_of(lua_function(L, top + 2));
  const bool alike = version_of(L, from) != 0 && iterates_alike(L, compiled, portal.pc, from, to);
  lua_settop(L, top);
  if (!alike) return false;
  for (auto id = compiled.ids.rbegin(); id != compiled.ids.rend(); ++id) {
    const auto it = state.portals.find(*id);
    if (it == state.portals.end() || it->second.version != compiled.version || it->second.pc != portal.pc) continue;
    if (for_results && it->second.packs != portal.packs) continue;  // of a body, say
    if (move_frame(L, self, *id)) return true;
  }
  return false;
}

// Guards are watched as code is: one of n calls asks the witness, too. False where an entry was entered wrongly. It
// then declines for good, so that the original code runs.
bool is_entered_rightly(lua_State* L, CompiledProto& compiled, Entry& e, int nslots, int nargs, int self) {
  const int every = runtime(L).config.verify;
  if (every == 0 || !e.native || (e.hits - 1) % every != 0) return true;
  const int top = lua_gettop(L);
  GuardValues values;
  lua_rawgeti(L, LUA_REGISTRYINDEX, e.constants);
  lua_rawgeti(L, LUA_REGISTRYINDEX, e.weak);
  const int failed = run_guards(L, e.guards, nslots, nargs, self, top + 1, top + 2, &values);
  if (failed >= 0) {
    int relation = -1;
    const std::string found = describe_found(L, e.guards, failed, nslots, nargs, self, top + 1, top + 2, &relation);
    const GuardRow row = relation >= 0 ? row_of_relation(e.guards, size_t(relation)) : row_of(e.guards, size_t(failed));
    report_guard(compiled.name,
                 str(row.source, row.source.empty() ? "" : " ", "was ", row.expected, ", is ", found, " (read at ",
                     row.place.file ? row.place.file : "?", ":", row.place.line, ")"),
                 *e.guard_text, e.graph_text);
    e.decline = true;
  }
  lua_settop(L, top);
  return failed < 0;
}

enum class Lost { kNothing, kSize, kSource };

// Pushes the exit's code and results; 0 where the original code must run. lost: for what the entry was not made.
int run_entry(lua_State* L, CompiledProto& compiled, Entry& entry, GuardValues& values, Lost& lost) {
  try {
    return run_segment(L, entry, values);
  } catch (const Error& e) {
    if (e.kind == ErrorKind::kInterrupt) throw;
    // What an earlier launch on a GPU met; or the run's own writes have begun.
    if (dynamic_cast<const LateError*>(&e)) throw;
    if (dynamic_cast<const SharedSource*>(&e)) return lost = Lost::kSource, 0;
    if (entry.callable) throw;  // a user's backend must not be replaced in silence
    if (dynamic_cast<const UnbackedMiss*>(&e)) lost = Lost::kSize;
    // A user's error (an index out of range): the original code raises it, with everything before it done.
    if (e.kind == ErrorKind::kInternal) report_internal(compiled, e.what(), entry.graph_text);
  } catch (const std::bad_alloc&) {
    return 0;
  } catch (const std::exception& e) {
    report_internal(compiled, e.what(), entry.graph_text);
  }
  return 0;
}

int run_point(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled, ProtoPoint& point,
              const PortalPlace& portal) {
  if (compiled->failed) return 0;
  const bool asks = !point.dead && !rests(point);
  if (!asks && portal.version >= compiled->version) return 0;
  const int nargs = lua_gettop(L), nslots = int(point.args.size());
  push_self(L);
  const int self = nargs + 1;
  const auto decline = [&] {
    lua_settop(L, self);
    if (portal.version >= compiled->version) return 0;
    const int n = portal.can_switch ? switch_over(state, L, compiled, portal, self) : 0;
    if (n == 0) follow_frame(state, L, *compiled, portal, self, false);
    return n;
  };
  // What was captured just now ends elsewhere than what this frame's bytecode knows.
  const auto goes_on_newest = [&] {
    const bool can = portal.version < compiled->version && !portal.can_switch;
    return can && follow_frame(state, L, *compiled, portal, self, true);
  };
  if (!asks) return decline();
  Counters& counters = runtime(L).counters;
  if (!finish_entries(L, *compiled, point)) return decline();
  for (int round = 0; round < 2; round++) {
    std::shared_ptr<Entry> missed;
    int failed = 0;
    Lookup a = find_entry(L, state.spare, point, {nslots, nargs, self}, &missed, &failed);
    if (a.entry && a.entry->compiling) {
      compiled->fresh_capture = false;
      counters.eager_calls++, a.entry->compiling->eager_calls++;
      return decline();
    }
    if (a.entry) {
      counters.cache_hits += round == 0 && !compiled->fresh_capture;
      compiled->fresh_capture = false;
      if (!a.entry->decline) point.idle_calls = 0;
      note_hit(point, *a.entry, a.values.tensors);
      point.saved_ops += int64_t(a.entry->ops);
      if (compiled->automatic) state.automatic.saved_ops += int64_t(a.entry->ops);
      if (!a.entry->decline && leads_nowhere(point, *compiled, *a.entry)) refresh(state, L, compiled);
      if (a.entry->decline && gives_up(L, point, *compiled)) refresh(state, L, compiled);
      if (a.entry->decline) return decline();
      if (size_t(a.entry->exit) >= portal.exits && !goes_on_newest()) return decline();
      const bool watched = bool(a.entry->guard_text);
      if (watched && !is_entered_rightly(L, *compiled, *a.entry, nslots, nargs, self)) return decline();
      Lost lost = Lost::kNothing;
      const int n = run_entry(L, *compiled, *a.entry, a.values, lost);
      if (watched) a.entry->decline = a.entry->segment->forward().is_refused();
      if (lost == Lost::kSize) note_lost_size(L, *compiled, point, a.entry);
      if (lost == Lost::kSource) note_shared_source(L, point);
      return n;
    }
    if (round == 1 || a.no_room) return decline();
    counters.cache_misses++;
    const bool pays = has_to_pay(L, *compiled);
    if (pays && !is_affordable(L, state)) return decline();
    const AutomaticTime time(state, pays);
    if (missed && pays && !worth_capture(L, point, *compiled)) {
      if (point.dead) refresh(state, L, compiled);
      return decline();
    }
    if (missed) {
      lua_rawgeti(L, LUA_REGISTRYINDEX, missed->constants);
      lua_rawgeti(L, LUA_REGISTRYINDEX, missed->weak);
      const int top = lua_gettop(L);
      const bool more = note_miss(state, L, *compiled, point, *missed, failed, nslots, nargs, self, top - 1, top);
      lua_settop(L, top - 2);
      if (point.dead) refresh(state, L, compiled);
      if (!more) return decline();
    }
    const int top = lua_gettop(L);
    const bool made = capture_point(state, L, compiled, point, nslots, nargs, self) != nullptr;
    lua_settop(L, top);
    refresh(state, L, compiled);
    if (!made) return decline();
  }
  return 0;
}

// The first call of a function whose bytecode is still a stub: captures, then hands over to the patched bytecode.
int run_stub(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled) {
  if (compiled->failed) return 0;
  const bc::Proto& proto = compiled->code->proto();
  const int given = lua_gettop(L);
  ProtoPoint& point = compiled->points.begin()->second;
  if (point.pc == 1 && point.entries.empty() && !point.dead) {
    // The portal at pc 1 takes the live parameters only, which stand in order, then the varargs.
    const int params = proto.num_params, live = int(point.args.size());
    lua_settop(L, std::max(given, params));
    for (int i = 0; i < live; i++) {
      lua_pushvalue(L, int(point.args[size_t(i)]) + 1);
      lua_replace(L, i + 1);
    }
    if (!proto.vararg()) lua_settop(L, params);
    for (int i = live; i < params; i++) lua_remove(L, live + 1);
    const int n = lua_gettop(L);
    push_self(L);
    runtime(L).counters.cache_misses++;
    capture_point(state, L, compiled, point, int(point.args.size()), n, n + 1);
    lua_settop(L, n + 1);
    compiled->fresh_capture = true;
  }
  refresh(state, L, compiled);
  push_self(L);
  const int function = lua_gettop(L);
  follow(L, *compiled, function);
  push_clone(state, L, compiled, function, false);
  if (redirect(L, function, function + 1).empty())
    lua_pop(L, 1);
  else
    remember_compiled(L, function + 1, *compiled);
  return 1;
}

}  // namespace

int run_portal(lua_State* L, int id) {
  constexpr int kMostArguments = 7600;  // of the 8,000 slots of a C function: it needs some for itself
  if (lua_gettop(L) > kMostArguments || !lua_checkstack(L, 300)) return 0;
  if (modes().watch) {  // a call that lt.checkpoint repeats is eager both times
    runtime(L).counters.checkpointed++;
    return 0;
  }
  CaptureState& state = capture_state(L);
  auto it = state.portals.find(id);
  if (it == state.portals.end()) return 0;
  std::shared_ptr<CompiledProto> compiled = it->second.compiled.lock();
  if (!compiled) return 0;
  const PortalPlace portal = it->second;  // the run may change what there is
  if (portal.stub) return run_stub(state, L, compiled);
  auto point = compiled->points.find(portal.pc);
  if (point == compiled->points.end()) return 0;
  return run_point(state, L, compiled, point->second, portal);
}

}  // namespace lutra
