// Compares what lt.auto has spent with what its code has saved and with the time that has passed.
#include "vm/capture/dispatch/auto_budget.h"

#include <algorithm>

#include "vm/capture/dispatch/profit.h"
#include "vm/capture/dispatch/state.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

// The fraction of the time passed that captures may take before they have saved anything.
constexpr double kPartOfTime = 0.02;

// Returns the time since lt.auto was switched on, plus what loops have left as far as that is known. The CPU clock asks
// the kernel. So the wall clock comes first: in one thread it is never behind. If it shows less than `least`, it is
// enough.
double known_ms(const AutomaticCode& code, double least) {
  const double wall = wall_ms() - code.since_ms + code.left_ms;
  return wall < least ? wall : std::min(wall, process_cpu_ms() - code.cpu_since_ms + code.left_ms);
}

bool pays(const AutomaticCode& code, double ms) {
  const double owed = code.owed_ms() + ms;
  return owed <= 0 || owed <= kPartOfTime * known_ms(code, owed / kPartOfTime);
}

bool is_pending(AutomaticCode& code) {
  constexpr int kPatience = 4096;
  const std::shared_ptr<Entry> entry = code.pending.lock();
  if (entry && entry->compiling && !entry->compiling->work->done() && ++code.refused < kPatience) return true;
  code.pending.reset();
  return false;
}

}  // namespace

// A capture must be paid for before it is made, because nobody knows how long the program will run.
bool is_affordable(lua_State* L, CaptureState& state, double needs_ms, double patch_ms) {
  if (runtime(L).config.profit != "auto") return true;
  AutomaticCode& code = state.automatic;
  return pays(code, std::max(code.next_ms, needs_ms) + patch_ms) && !is_pending(code);
}

namespace {

// Returns whether the code would save at least twice its compile time while the present loops run.
bool repays_soon(const AutomaticCode& code, const Entry& entry, double ms) {
  constexpr int64_t kMinCalls = 4;
  constexpr double kTimes = 2;
  const Compiling& made = *entry.compiling;
  if (code.left_ms <= 0 || made.eager_calls < kMinCalls) return false;
  const double each_ms = (process_cpu_ms() - made.cpu_start_ms) / double(made.eager_calls);
  return saved_ms(entry.ops) * code.left_ms / each_ms >= kTimes * ms;
}

}  // namespace

bool begins_compiling(lua_State* L, CaptureState& state, Entry& entry) {
  Compiling& made = *entry.compiling;
  if (made.work->has_begun()) return true;
  AutomaticCode& code = state.automatic;
  const double ms = code.op_ms * double(entry.ops);
  if (runtime(L).config.profit == "auto" && !pays(code, ms) && !repays_soon(code, entry, ms)) return false;
  code.spent_ms += made.expected_ms = ms;
  made.work->begin();
  return true;
}

bool may_revive(lua_State* L, CaptureState& state, const CompiledProto& compiled) {
  double needs_ms = 0;
  bool any = false;
  for (const auto& [pc, point] : compiled.points) {
    if (point.given_up) any = true, needs_ms = std::max(needs_ms, point.needs_ms);
  }
  // The bytecode is made and follows its functions, and is removed again if the capture has to wait after all.
  constexpr double kPatches = 4;
  return !any || is_affordable(L, state, needs_ms, kPatches * compiled.patch_ms);
}

double most_capture_ms(const CaptureState& state, const ProtoPoint& point) {
  constexpr double kMinMs = 6;
  const AutomaticCode& code = state.automatic;
  return std::max({kMinMs, point.needs_ms, kPartOfTime * known_ms(code, 0) - code.owed_ms()});
}

// A frame that was entered at its loop stays in its bytecode, and so keeps the portal.
bool waits_long(ProtoPoint& point, CompiledProto& compiled) {
  constexpr int kPatience = 32;
  if (point.entered_loop.any() || ++point.idle_calls < kPatience) return false;
  point.dead = point.given_up = compiled.changed = true;
  return true;
}

}  // namespace lutra
