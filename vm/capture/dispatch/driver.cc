// Portal calls: run the entry whose guards hold; a miss captures again.
#include "vm/capture/dispatch/driver.h"
#include "ops/defs/modes.h"

#include <algorithm>
#include <lua.hpp>

#include "jit/autograd/compiled_autograd.h"
#include "jit/graph/unbacked.h"
#include "jit/repro/repro.h"
#include "ops/core/late_error.h"
#include "vm/capture/dispatch/auto_budget.h"
#include "vm/capture/dispatch/callees.h"
#include "vm/capture/dispatch/callers.h"
#include "vm/capture/dispatch/capture_point.h"
#include "vm/capture/dispatch/compiled.h"
#include "vm/capture/dispatch/enter.h"
#include "vm/capture/dispatch/entries.h"
#include "vm/capture/dispatch/policy.h"
#include "vm/capture/dispatch/profit.h"
#include "vm/capture/dispatch/state.h"
#include "vm/capture/segment/run.h"
#include "vm/guard/rows.h"
#include "vm/host/runtime.h"
#include "vm/mirror/mirror.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

void push_self(const CaptureState& state, lua_State* L) {
  const mirror::TValue* frame = mirror::base(L) - 1;
  if (state.mirror && (frame->u64 & 3) == 0) {  // called by Lua code
    return mirror::push_object(L, mirror::kFunc, mirror::gc_pointer(mirror::previous_frame(frame)[-1]));
  }
  lua_Debug caller;
  if (!lua_getstack(L, 1, &caller)) fail_internal("portal: not called from a function");
  lua_getinfo(L, "f", &caller);
}

// Switches to the compiled prototype's newest bytecode: prepares a tail call of its body at this pc with the frame's
// live slots. These include the hidden slots of loops and are read directly from the stack.
int switch_over(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled,
                const PortalPlace& portal, int self) {
  const bc::Pc pc = portal.pc;
  const uint32_t* return_pc = mirror::return_pc(L);
  if (!return_pc || (mirror::base(L)[-1].u64 & 3) != 0) return 0;  // called from a trace: a later call switches
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

// Moves a frame of an earlier version of the compiled prototype's bytecode to the newest, behind the same point. If
// `for_results`, only to a portal that takes results in the same form. Returns false if the frame is not moved.
bool follow_frame(CaptureState& state, lua_State* L, const CompiledProto& compiled, const PortalPlace& portal, int self,
                  bool for_results) {
  if (!mirror::available(L)) return false;
  const int top = lua_gettop(L);
  push_self(state, L);  // a copy if the function was redirected since the call
  push_function_of_frame(L, self);
  const mirror::Proto* from = mirror::proto_of(lua_function(L, top + 1));
  const mirror::Proto* to = mirror::proto_of(lua_function(L, top + 2));
  const bool alike = version_of(L, from) != 0 && iterates_alike(L, compiled, portal.pc, from, to);
  lua_settop(L, top);
  if (!alike) return false;
  for (auto id = compiled.ids.rbegin(); id != compiled.ids.rend(); ++id) {
    const Portal* other = state.portals.find(*id);
    if (!other || other->version != compiled.version || other->pc != portal.pc) continue;
    if (for_results && other->packs != portal.packs) continue;  // for example, the portal of a body
    if (move_frame(L, self, *id)) return true;
  }
  return false;
}

// Returns a text such as "x size 0 was 3, is 4 (read at f.lua:2)" for the guard `failed` of an entry. `tables`:
// as for run_guards.
std::string describe_failure(lua_State* L, const Entry& e, int failed, const CallValues& call, int tables) {
  int relation = -1;
  const std::string found = describe_found(L, e.guards, failed, call, tables, &relation);
  const GuardRow row = relation >= 0 ? row_of_relation(e.guards, size_t(relation)) : row_of(e.guards, size_t(failed));
  return str(row.source, row.source.empty() ? "" : " ", "was ", row.expected, ", is ", found, " (read at ",
             row.place.file ? row.place.file : "?", ":", row.place.line, ")");
}

// Returns whether the stance allows a compilation, the first or another one. Under kFailOnRecompile it throws, but not
// for a compiled prototype that no user asked for.
template <class Reason>
bool may_compile(const CaptureState& state, const CompiledProto& compiled, Reason&& reason) {
  if (state.stance == Stance::kDefault) return true;
  if (state.stance == Stance::kFailOnRecompile && compiled.is_asked_for()) {
    const std::string why = reason();
    fail("set_stance: 'fail_on_recompile': ", compiled.name, " has no code for this call", why.empty() ? "" : ": ",
         why);
  }
  return false;
}

// Verifies native guards as code is verified: for one of `lt.config.verify` calls the guard interpreter runs, too.
// Returns false if the entry was entered wrongly. It then declines for good, so that the original code runs.
bool is_entered_rightly(lua_State* L, CompiledProto& compiled, Entry& e, const CallValues& call) {
  const int every = runtime(L).config.verify;
  if (every == 0 || !e.native || (e.hits - 1) % every != 0) return true;
  const int top = lua_gettop(L);
  GuardValues values;
  lua_rawgeti(L, LUA_REGISTRYINDEX, e.constants);
  lua_rawgeti(L, LUA_REGISTRYINDEX, e.weak);
  const int failed = run_guards(L, e.guards, call, top + 1, &values);
  if (failed >= 0) {
    report_guard(compiled.name, describe_failure(L, e, failed, call, top + 1), *e.guard_text, e.graph_text);
    e.decline = true;
  }
  lua_settop(L, top);
  return failed < 0;
}

struct Lost {
  enum Kind { kNothing, kSize, kSource } kind = kNothing;
  LostSize size{};
};

// Pushes the exit's code and results. Returns 0 if the original code must run. `lost`: the case that the entry was not
// made for.
int run_entry(lua_State* L, CompiledProto& compiled, Entry& entry, GuardValues& values, Lost& lost) {
  try {
    return run_segment(L, entry, values);
  } catch (const Error& e) {
    if (e.kind == ErrorKind::kInterrupt) throw;
    // An earlier launch on a GPU has failed, or the run's own writes have begun.
    if (dynamic_cast<const LateError*>(&e)) throw;
    if (dynamic_cast<const SharedSource*>(&e)) return lost.kind = Lost::kSource, 0;
    if (entry.callable) throw;  // a user's backend must not be replaced silently
    if (const auto* miss = dynamic_cast<const UnbackedMiss*>(&e))
      lost = {Lost::kSize, {miss->op, miss->number, miss->value}};
    // For a user's error (an index out of range), the original code raises it after everything before it is done.
    if (e.kind == ErrorKind::kInternal) report_internal(L, compiled, e.what(), entry.graph_text);
  } catch (const std::bad_alloc&) {
    return 0;
  } catch (const std::exception& e) {
    report_internal(L, compiled, e.what(), entry.graph_text);
  }
  return 0;
}

// A portal call: the values on the stack, and the point whose entries are checked.
struct PortalRun {
  CaptureState& state;
  lua_State* L;
  CompiledProto& compiled;
  GuardValues& loaded;
  ProtoPoint& home;  // the portal's point; `point` is the one that stands for it under the callers
  const PortalPlace& portal;
  std::vector<Caller> callers{};
  std::shared_ptr<ProtoPoint> under{};
  CallValues values{};
  bool parted = false;      // this call has just parted the point from frames above
  int own = lua_gettop(L);  // number of passed values: slots, varargs

  ProtoPoint& point() { return under ? *under : home; }

  // The slots of frames above follow the frame's own.
  void take_values() {
    if (may_cross(L, compiled, home, portal)) callers = find_callers(state, L, compiled, home);
    if (!callers.empty() && push_callers(L, callers)) under = point_under(home, callers);
    if (!under) callers.clear(), lua_settop(L, own);
    const int nargs = lua_gettop(L), nslots = under ? nargs : int(home.args.size());
    push_self(state, L);
    values = {nslots, nargs, nargs + 1};
  }

  // Credits the call with the compiled ops that it has run. Called once for each call.
  void credit(size_t ops) {
    point().saved_ms += saved_ms(ops);
    state.automatic.run_ops += double(ops);
    if (compiled.automatic) state.automatic.saved_ms += saved_ms(ops);
  }

  int decline() {
    credit(0);
    lua_settop(L, values.self);
    if (portal.version >= compiled.version) return 0;
    const int n = portal.can_switch ? switch_over(state, L, compiled.shared_from_this(), portal, values.self) : 0;
    if (n == 0 && !follow_frame(state, L, compiled, portal, values.self, false))
      follow_newest(state, L, compiled.shared_from_this(), values.self);
    return n;
  }

  // Moves the frame to the newest bytecode, because the new capture has an exit that this frame's bytecode does not
  // know.
  bool goes_on_newest() {
    const bool can = portal.version < compiled.version && !portal.can_switch;
    return can && follow_frame(state, L, compiled, portal, values.self, true);
  }

  void refresh_code() {
    refresh(state, L, compiled.shared_from_this());
    retire_callee(state, L, compiled);
  }

  // Makes bytecode without the portal of the point, which is dead.
  void go() {
    refresh_code();
    state.automatic.spent_ms += compiled.patch_ms;
  }

  int run_hit(Entry& e) {
    CompiledProto& root = compiled.root ? *compiled.root : compiled;
    if (!root.callees.empty() && ++root.hits >= root.revives_at) revive_callees(state, L, root);
    if (!e.decline && comes_back(compiled)) refresh_code();
    if (!e.decline) point().idle_calls = 0, point().idle_rounds = std::max(point().idle_rounds - 1, 0);
    note_hit(point(), e, loaded.tensors);
    const Caller* caller = e.level ? &callers[size_t(e.level) - 1] : nullptr;
    if (!e.decline && leads_nowhere(point(), compiled, e)) refresh_code();
    if (e.decline && gives_up(L, point(), compiled)) refresh_code();
    if (e.decline) return decline();
    Landing landing;
    if (caller && !find_landing(state, L, *caller, e, &landing)) return decline();
    if (!caller && size_t(e.exit) >= portal.exits && !goes_on_newest()) return decline();
    const bool watched = bool(e.guard_text);
    if (watched && !is_entered_rightly(L, compiled, e, values)) return decline();
    Lost lost;
    const int n = run_entry(L, compiled, e, loaded, lost);
    credit(n > 0 ? e.ops : 0);
    if (watched) e.decline = e.segment->forward().is_refused();
    if (lost.kind == Lost::kSize) note_lost_size(L, compiled, point(), e, lost.size);
    if (lost.kind == Lost::kSource) note_shared_source(L, point());
    if (n > 0 && !state.trace.stress_breaks && lost.kind == Lost::kNothing)
      note_rebuilt(L, compiled, e, loaded.tensors);
    if (caller && n > 0) land(L, *caller, landing, n);
    return n;
  }

  // Learns from the miss and captures. Returns false if the original code runs.
  bool capture(Entry* missed, int failed) {
    if (in_finalizer(L) || waits() ||
        !may_compile(state, compiled, [&] { return missed ? reason_of(*missed, failed) : ""; }))
      return false;
    counters_of(L, compiled).cache_misses++;
    const bool pays = has_to_pay(L, compiled);
    if (pays && !is_affordable(L, state, point().needs_ms)) {
      if (!under && waits_long(home, compiled)) go();
      return false;
    }
    const AutomaticTime time(state, pays);
    if (missed && pays && !worth_capture(L, point(), compiled)) {
      if (point().dead) refresh_code();
      return false;
    }
    if (missed) {
      lua_rawgeti(L, LUA_REGISTRYINDEX, missed->constants);
      lua_rawgeti(L, LUA_REGISTRYINDEX, missed->weak);
      const int tables = lua_gettop(L) - 1;
      const bool more = note_miss(state, L, compiled, point(), {*missed, failed, tables}, values);
      lua_settop(L, tables - 1);
      if (point().dead) refresh_code();
      if (std::exchange(point().has_parted, false)) forget_entries(L, point());
      if (under && is_steered()) return true;
      if (!more) return false;
    }
    const int top = lua_gettop(L);
    const std::shared_ptr<Entry> made = capture_point(state, L, compiled.shared_from_this(), point(), values, callers);
    lua_settop(L, top);
    if (made && !made->decline) settle(made);
    refresh_code();
    return made != nullptr;
  }

  std::string reason_of(const Entry& missed, int failed) {
    const int top = lua_gettop(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, missed.constants);
    lua_rawgeti(L, LUA_REGISTRYINDEX, missed.weak);
    const std::string reason = describe_failure(L, missed, failed, values, top + 1);
    lua_settop(L, top);
    return reason;
  }

  // Returns whether the point was just parted from frames above. That is so if the next step of a frame above changes
  // again and again. Then that step becomes a graph of its own. Otherwise the paths of that frame would multiply those
  // of the frames below. It is also so if the entries have reached their limit.
  bool is_steered() {
    constexpr int kMaxSteered = 2;
    int level = std::exchange(under->missed_level, 0);
    if (under->limit_reached) level = 1, home.steered[level] = kMaxSteered;
    if (level == 0 || ++home.steered[level] < kMaxSteered) return false;
    home.steered.clear();
    home.most_callers = size_t(level) - 1;
    home.stays = level == 1;
    for (auto& [path, point] : home.with_callers) forget_entries(L, *point);
    home.with_callers.clear();
    callers.clear(), under.reset();
    lua_settop(L, own);
    take_values();
    return parted = true;
  }

  // Lets the points in frames above that the entry also runs wait for it, so that they do not compile the same code
  // again.
  void let_callers_wait(const Entry& entry) {
    const auto& all = this->point().entries;
    const auto at = std::find_if(all.begin(), all.end(), [&](const auto& e) { return e.get() == &entry; });
    for (size_t i = 0; at != all.end() && i < size_t(entry.level); i++) {
      const auto point = callers[i].compiled->points.find(callers[i].point);
      if (point != callers[i].compiled->points.end()) point->second.awaits = *at;
    }
  }

  bool waits() const {
    const std::shared_ptr<Entry> entry = home.awaits.lock();
    return entry && entry->compiling && !entry->compiling->work->done();
  }

  // The first segment of a point decides whether later ones continue in frames above.
  void settle(const std::shared_ptr<Entry>& made) {
    if (made->level > 0) home.crosses = true;
    if (home.crosses || home.stays) return;
    if (!under) {
      home.stays = home.exits[size_t(made->exit)].resume.kind != Resume::Kind::kReturn;
      return;
    }
    if (home.varargs) return;  // the entry was made for their number, and does not check it
    home.stays = true;
    home.decisions = under->decisions;
    home.entries.insert(home.entries.begin(), made);
    home.compiling += made->compiling != nullptr;
    for (auto& e : under->entries) state.running.keep(std::move(e));
    under->entries.clear();
    forget_tree(*under);
    callers.clear();
    under = nullptr;
    home.with_callers.clear();
    lua_remove(L, values.self);
    lua_settop(L, int(home.args.size()));
    push_self(state, L);
    values = {int(home.args.size()), int(home.args.size()), lua_gettop(L)};
  }

  int run() {
    if (point().dead || skips_entries(point())) return decline();
    if (!finish_entries(L, compiled, point())) return decline();
    for (int round = 0;; round++) {
      const Lookup a = find_entry(L, point(), values, loaded);
      const bool fresh = compiled.fresh_capture;
      if (a.entry) compiled.fresh_capture = false;
      if (a.entry && a.entry->compiling) {
        state.runtime->counters.eager_calls++, a.entry->compiling->eager_calls++;
        let_callers_wait(*a.entry);
        return decline();
      }
      if (a.entry) {
        counters_of(L, compiled).cache_hits += round == 0 && !fresh;
        return run_hit(*a.entry);
      }
      const bool again = round == 0 || std::exchange(parted, false);
      if (!again || a.no_room || !capture(a.missed, a.failed)) return decline();
    }
  }
};

// Returns whether it is too early to check guards: under lt.auto, while the captured entries have no code, or while
// there are none and the budget does not pay for a capture. Such a call takes a third of the usual time, and costs the
// budget nothing. Otherwise short rounds would never pay for a capture.
bool is_early(CaptureState& state, lua_State* L, const CompiledProto& compiled, const ProtoPoint& point,
              const PortalPlace& portal) {
  const bool asks = point.compiling < int(point.entries.size()) || !point.with_callers.empty();
  if (asks || point.dead || !has_to_pay(L, compiled)) return false;
  if (point.entries.empty()) {
    if (portal.version < compiled.version || is_affordable(L, state, point.needs_ms)) return false;
    return counters_of(L, compiled).cache_misses++, true;
  }
  for (const std::shared_ptr<Entry>& e : point.entries) {
    if (begins_compiling(L, state, *e) && e->compiling->work->done()) return false;
  }
  state.runtime->counters.eager_calls++, point.entries.front()->compiling->eager_calls++;
  state.automatic.refused = 0;
  return true;
}

int run_point(CaptureState& state, lua_State* L, CompiledProto& compiled, ProtoPoint& point,
              const PortalPlace& portal) {
  if (compiled.failed) return 0;
  if (point.dead && portal.version >= compiled.version) return 0;
  const bool early = is_early(state, L, compiled, point, portal);
  if (early && (!point.entries.empty() || !waits_long(point, compiled))) return 0;
  RunningCall running(state.running);
  PortalRun call{state, L, compiled, running.values(), point, portal};
  call.take_values();
  if (early) call.go();
  return call.run();
}

void capture_stub(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled,
                  ProtoPoint& point) {
  const bc::Proto& proto = compiled->code->proto();
  // The portal at pc 1 takes only the live parameters, in order, then the varargs.
  const int params = proto.num_params, live = int(point.args.size());
  lua_settop(L, std::max(lua_gettop(L), params));
  for (int i = 0; i < live; i++) {
    lua_pushvalue(L, int(point.args[size_t(i)]) + 1);
    lua_replace(L, i + 1);
  }
  if (!proto.vararg()) lua_settop(L, params);
  for (int i = live; i < params; i++) lua_remove(L, live + 1);
  const int n = lua_gettop(L);
  push_self(state, L);
  counters_of(L, *compiled).cache_misses++;
  const AutomaticTime time(state, has_to_pay(L, *compiled));
  capture_point(state, L, compiled, point, {int(point.args.size()), n, n + 1});
  lua_settop(L, n + 1);
  compiled->fresh_capture = true;
}

// Runs a call of a function whose bytecode is still a stub: captures, then calls the patched bytecode. A stub waits for
// less than a portal, because it ignores the point's needs_ms. After many waits it is replaced.
int run_stub(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled) {
  if (compiled->failed) return 0;
  ProtoPoint& point = compiled->points.begin()->second;
  const bool pays = has_to_pay(L, *compiled);
  if (point.pc == 1 && point.entries.empty() && !point.dead) {
    if (in_finalizer(L) || !may_compile(state, *compiled, [] { return ""; })) return 0;
    if (!pays || is_affordable(L, state))
      capture_stub(state, L, compiled, point);
    else if (!waits_long(point, *compiled))
      return 0;
  }
  const double start = thread_cpu_ms();
  refresh(state, L, compiled);
  if (pays) state.automatic.spent_ms += thread_cpu_ms() - start;
  push_self(state, L);
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
  constexpr int kMaxArguments = 7600;  // a C function has 8,000 slots, and this one needs some
  if (lua_gettop(L) > kMaxArguments || !lua_checkstack(L, 300)) return 0;
  if (modes().watch) {  // a call that lt.checkpoint repeats is eager both times
    runtime(L).counters.checkpointed++;
    return 0;
  }
  CaptureState& state = capture_state(L);
  Portal* const found = state.portals.find(id);
  if (!found || found->compiled.expired() || state.stance == Stance::kForceEager) return 0;
  if (found->stub) return run_stub(state, L, found->compiled.lock());
  CompiledProto& compiled = *found->address;
  if (!found->point) {
    const auto point = compiled.points.find(found->pc);
    if (point == compiled.points.end()) return 0;
    found->point = &point->second;
  }
  const PortalPlace portal = *found;  // the run may change the portal
  return run_point(state, L, compiled, *found->point, portal);
}

}  // namespace lutra
