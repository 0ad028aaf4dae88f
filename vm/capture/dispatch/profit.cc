// Gives up points and entries whose code does not save the time that it costs, or moves them.
#include "vm/capture/dispatch/profit.h"

#include <algorithm>
#include <cmath>
#include <lua.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "ops/meta/unbacked.h"
#include "vm/capture/dispatch/capture_point.h"
#include "vm/capture/dispatch/costs.h"
#include "vm/capture/dispatch/entries.h"
#include "vm/capture/dispatch/policy.h"
#include "vm/host/runtime.h"

namespace lutra {

double saved_ms(size_t ops) { return double(ops) * kSavedMs - kPortalMs; }

bool has_to_pay(lua_State* L, const CompiledProto& compiled) {
  return compiled.automatic && runtime(L).config.profit == "auto";
}

namespace {

constexpr int kOften = 256, kTrial = 32;

// Returns the innermost loop around pc; nothing if there is none.
std::optional<std::pair<bc::Pc, bc::Pc>> loop_around(const CompiledProto& compiled, bc::Pc pc) {
  std::optional<std::pair<bc::Pc, bc::Pc>> found;
  for (const bc::Loop& l : compiled.code->loops()) {
    const bc::Pc first = l.first(compiled.code->proto());
    if (pc < first || pc > l.end) continue;
    if (!found || l.end - first < found->second - found->first) found = {first, l.end};
  }
  return found;
}

void add_next(CompiledProto& compiled, const ProtoPoint& point, bc::Pc pc) {
  add_point(compiled, pc, point.decisions.kept_loops, point.entered_loop);
  const auto next = compiled.points.find(pc);
  if (next == compiled.points.end() || !next->second.entries.empty()) return;
  next->second.dynamic_dims.insert(point.dynamic_dims.begin(), point.dynamic_dims.end());
  next->second.changing_values.insert(point.changing_values.begin(), point.changing_values.end());
  next->second.small_sizes = point.small_sizes;
}

// Moves the point to where its entries have their first ops. Returns false if it is in no loop, if the ops are at the
// point itself, or if no portal can stand before them.
bool goes_on(CompiledProto& compiled, ProtoPoint& point) {
  const bc::Proto& proto = compiled.code->proto();
  const auto can = [&](bc::Pc pc) { return pc != 0 && pc != point.pc && bc::insertable(proto, pc); };
  if (!point.firsts.empty() || !loop_around(compiled, point.pc)) return false;
  if (point.ops_at.empty() || !std::all_of(point.ops_at.begin(), point.ops_at.end(), can)) return false;
  for (const bc::Pc pc : point.ops_at) add_next(compiled, point, pc);
  point.dead = compiled.changed = true;
  compiled.gone_on.insert(point.pc);
  compiled.hits_since = 0;
  return true;
}

}  // namespace

void leave_loop(CompiledProto& compiled, const ProtoPoint& point) {
  const auto loop = point.firsts.empty() ? loop_around(compiled, point.pc) : std::nullopt;
  if (!loop) return;
  const auto [first, last] = *loop;
  for (bc::Pc at = first; at <= last; at++) {
    for (const bc::Pc next : bc::successors(compiled.code->proto(), at)) {
      if (next > last) add_next(compiled, point, next);
    }
  }
  compiled.gone_on.insert(point.pc);
}

bool comes_back(CompiledProto& compiled) {
  constexpr int64_t kEach = 4;
  if (compiled.gone_on.empty() || ++compiled.hits_since < compiled.brings_back_at) return false;
  compiled.brings_back_at *= kEach;
  for (const bc::Pc pc : std::exchange(compiled.gone_on, {})) {
    ProtoPoint& point = compiled.points.at(pc);
    point.dead = point.given_up = false, point.idle_calls = point.idle_captures = 0,
    point.idle_rounds = kOften - kTrial;
  }
  return compiled.changed = true;
}

// A portal that runs nothing costs 0.1 us, and LuaJIT does not compile the loop around it: a part of a loop without ops
// takes 100 times as long. If the user asked for compilation, a point that once ran a graph may do so again.
bool gives_up(lua_State* L, ProtoPoint& point, CompiledProto& compiled) {
  constexpr int kPatience = 32, kPatienceWhereAsked = 10000;
  const bool pays = compiled.callee || has_to_pay(L, compiled);
  if (++point.idle_rounds % kOften == 0 && goes_on(compiled, point)) return true;
  if (++point.idle_calls < (pays ? kPatience : kPatienceWhereAsked)) return false;
  const auto& entries = point.entries;
  if (!pays && !std::all_of(entries.begin(), entries.end(), [](auto& e) { return e->decline; })) return false;
  if (goes_on(compiled, point)) return true;
  leave_loop(compiled, point);
  point.dead = compiled.changed = true;
  point.given_up = compiled.callee;
  return true;
}

namespace {

using Seen = std::unordered_set<const CompiledProto*>;

// Returns whether frames that the entry rebuilds run compiled code, or rebuild frames that do.
bool resumes_code(const Entry& entry, Seen& seen) {
  bool runs = false;
  const auto look = [&](const ProtoPoint& point) {
    for (const auto& e : point.entries) {
      runs = runs || (!e->decline && e->segment) || resumes_code(*e, seen);
    }
  };
  for (const ResumeFrame& r : entry.resumes) {
    const auto resumed = static_cast<const ProtoBody&>(*r.body).compiled.lock();
    if (resumed && seen.insert(resumed.get()).second) each_point(std::as_const(*resumed), look);
  }
  return runs;
}

// Returns whether an entry for the new size may replace one that was made for another. Sizes 0 and 1 get no such entry.
bool learns_size(ProtoPoint& point, const Entry& entry, const LostSize& lost) {
  constexpr int kLessons = 3, kLeast = 2;
  if (!std::isfinite(lost.value) || (!tells_number(lost.op) && lost.value < kLeast)) return false;
  const auto& sources = entry.guards.scalar_sources;
  if (point.decisions.sizes_learnt >= kLessons || size_t(lost.number) >= sources.size()) return false;
  const auto place = size_t(std::count(sources.begin(), sources.begin() + lost.number, nullptr));
  const auto [at, added] = point.decisions.likely_sizes.emplace(place, lost.value);
  if (!added && at->second == lost.value) return false;
  at->second = lost.value;
  point.decisions.sizes_learnt++, point.decisions.size_tries = 0;
  return true;
}

}  // namespace

void note_lost_size(lua_State* L, CompiledProto& compiled, ProtoPoint& point, const Entry& entry,
                    const LostSize& lost) {
  constexpr int kPatience = 4, kSeldom = 16;
  runtime(L).counters.lost_sizes++;
  const bool seldom = int64_t(kSeldom) * ++point.size_misses < entry.hits;
  if (seldom) return;
  if (!learns_size(point, entry, lost)) {
    // Under fullgraph a graph break is an error.
    if (compiled.options.fullgraph || point.size_misses < kPatience) return;
    point.decisions.sizes_outside = true;
  }
  forget_entry(L, point, entry);
}

void note_shared_source(lua_State* L, ProtoPoint& point) {
  if (std::exchange(point.decisions.sources_apart, true)) return;
  forget_entries(L, point);
}

bool leads_nowhere(ProtoPoint& point, CompiledProto& compiled, Entry& entry) {
  constexpr int64_t kPatience = 32;  // in a recursion, calls come by before the code behind them has run
  if (entry.segment || entry.compiling || entry.hits < kPatience) return false;
  Seen seen;
  if (resumes_code(entry, seen)) return false;
  point.enters_callees = false;
  entry.decline = true;
  point.dead = std::all_of(point.entries.begin(), point.entries.end(), [](auto& e) { return e->decline; });
  point.given_up = point.dead && compiled.callee;
  compiled.changed = compiled.changed || point.dead;
  return true;
}

namespace {

double rebuilding_ms(const Entry& entry) {
  double ms = kPortalMs + (entry.segment ? kRunMs : 0) + kFrameAboveMs * entry.level;
  for (const ResumeFrame& r : entry.resumes) {
    ms += r.function.kind == Recipe::kClosure ? 2 * kClosureMs : kResumeMs;
  }
  return ms;
}

bool rebuilds(const ProtoPoint& point) {
  return std::any_of(point.entries.begin(), point.entries.end(), [](auto& e) { return !e->resumes.empty(); });
}

}  // namespace

void note_rebuilt(lua_State* L, CompiledProto& compiled, const Entry& entry, const GuardTensors& inputs) {
  constexpr double kMaxMs = 0.1;
  if (!compiled.root && (entry.leaves == Entry::Leaves::kResults || entry.resumes.empty())) return;
  CompiledProto& root = compiled.root ? *compiled.root : compiled;
  const double saved_ms = double(entry.ops) * kSavedMs + passed_on_ms(entry, inputs);
  root.rebuilt_ms = std::min(root.rebuilt_ms + saved_ms - rebuilding_ms(entry), kMaxMs);
  if (root.rebuilt_ms > -kMaxMs || root.leaves_calls) return;
  root.leaves_calls = true;
  const auto forget = [L](ProtoPoint& point) {
    if (rebuilds(point)) forget_entries(L, point);
  };
  each_point(root, forget);
  for (const auto& [where, resume] : root.resumes) each_point(*resume, forget);
}

bool worth_capture(lua_State* L, ProtoPoint& point, CompiledProto& compiled) {
  constexpr int kFree = 3;
  const auto& entries = point.entries;
  double last_ms = 0, ops = 0;  // of the most expensive capture
  size_t made = 0;
  for (const auto& e : entries) {
    if (e->decline) continue;
    made++;
    if (e->capture_ms > last_ms) last_ms = e->capture_ms, ops = double(e->ops);
  }
  constexpr double kCallsToRepay = 1000;
  if (made < kFree && last_ms <= kCallsToRepay * ops * kSavedMs) return true;
  if (point.spent_ms <= point.saved_ms) return true;
  gives_up(L, point, compiled);
  return false;
}

}  // namespace lutra
