// The capture state of a Runtime: the tracer's state, the compiled functions with their points and entries, the
// portals.
#pragma once
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "jit/runtime/lines.h"
#include "ops/core/clock.h"
#include "vm/capture/dispatch/compiled_proto.h"
#include "vm/capture/dispatch/enter.h"
#include "vm/capture/dispatch/rounds.h"
#include "vm/capture/trace/state.h"

struct lua_State;

namespace lutra {

struct Runtime;

// Frames of one prototype, as lt.auto's walks of the stack found them: their number (`count`), the count from which the
// threshold is counted (`next`), how often the prototype became hot (`times`), the calls that the latest frames were
// in, and the rounds of their loops.
struct Heat {
  int64_t count = 0, next = 0;
  int times = 0;
  Places places{};
  FrameRounds rounds{};
};

// lt.auto's budget since it was switched on: the time that captures and patches have taken, the time that compiled code
// has saved (less the cost of all calls of its portals, also of those that ran nothing), and the time that the next
// capture is expected to take. All are CPU time, so that other programs do not count.
struct AutomaticCode {
  double since_ms = 0, cpu_since_ms = 0;  // wall clock, and CPU clock of the process
  double spent_ms = 0, saved_ms = 0;
  // Also spent: the compilation of backwards when they first run. The background adds to it, too.
  std::shared_ptr<std::atomic<double>> late_ms = std::make_shared<std::atomic<double>>(0);
  double left_ms = 0;  // what numeric for loops have left, as the latest walk estimated
  double run_ops = 0;  // ops that compiled code has run since the latest walk
  double next_ms = 6;
  // The mean time of compiling one op, and the number of ops that it is the mean of.
  double op_ms = 0.08, compiled_ops = 300;
  // The entry that was captured last. Nothing else is captured until its code is there, since that may already be part
  // of the entry. `refused` counts the captures that had to wait since the entry was last called; after many, captures
  // no longer wait.
  std::weak_ptr<Entry> pending{};
  int refused = 0;

  double owed_ms() const { return spent_ms + *late_ms - saved_ms; }
  // The maximum keeps one expensive capture from delaying all others: a point whose capture was too expensive waits by
  // itself (ProtoPoint::needs_ms).
  void captured(double ms) {
    constexpr double kFades = 0.9, kMost = 10;
    spent_ms += ms;
    next_ms = std::min(std::max(ms, next_ms * kFades), kMost);
  }
  void compiled(size_t ops, double ms, double expected_ms) {
    spent_ms += ms - expected_ms;
    op_ms = (op_ms * compiled_ops + ms) / (compiled_ops + double(ops));
    compiled_ops += double(ops);
  }
};

class CompiledBackward;

// What compiled functions do (lt.set_stance). The names are those that users pass.
enum class Stance : uint8_t { kDefault, kForceEager, kEagerOnRecompile, kFailOnRecompile };
inline constexpr const char* kStances[] = {"default", "force_eager", "eager_on_recompile", "fail_on_recompile"};

// The nested portal calls that are under way. They hold no references to what they run. So an object that is dropped
// meanwhile is kept here until the outermost call ends.
class RunningCalls {
 public:
  void keep(std::shared_ptr<void> dropped) {
    if (depth_) dropped_.push_back(std::move(dropped));
  }

 private:
  friend class RunningCall;
  size_t depth_ = 0;
  std::vector<std::shared_ptr<void>> dropped_;
  std::vector<std::unique_ptr<GuardValues>> spare_;  // by depth: memory for the guard values of a call, reused
};

void keep_noted_hit();  // entries.cc

class RunningCall {
 public:
  explicit RunningCall(RunningCalls& calls) : calls_(calls) {
    if (calls.spare_.size() == calls.depth_) calls.spare_.push_back(std::make_unique<GuardValues>());
    values_ = calls.spare_[calls.depth_++].get();
  }
  ~RunningCall() {
    values_->tensors.forget(), values_->outputs.clear();
    if (noted_lines) [[unlikely]]
      keep_noted_hit();
    if (--calls_.depth_ == 0 && !calls_.dropped_.empty()) std::exchange(calls_.dropped_, {}).clear();
  }
  RunningCall(const RunningCall&) = delete;
  GuardValues& values() { return *values_; }

 private:
  RunningCalls& calls_;
  GuardValues* values_;
};

// The call hook of the stress modes.
struct StressHook {
  bool on = false;
  int quiet_calls = 0;  // since it last met a new function, or last paused
  bool paused = false;
  int length = 0;  // of its last pause, in VM instructions
};

struct CaptureState {
  Runtime* runtime = nullptr;
  bool mirror = false;  // LuaJIT's structs have the layout that vm/mirror knows
  RunningCalls running;
  TraceState trace;
  Stance stance = Stance::kDefault;
  std::map<ProtoKey, std::shared_ptr<CompiledProto>> protos;
  Portals portals;
  std::unordered_map<uint64_t, std::weak_ptr<CompiledProto>> by_serial, by_version;
  std::vector<std::shared_ptr<CompiledProto>> resume_protos;
  std::unordered_map<const void*, int> backends;  // registry references of users' backends, by the function's address
  uint64_t next_proto = 1, next_version = 1;
  size_t collect_at = 64;  // compiled prototypes
  int auto_threshold = 0;
  unsigned walks = 0;       // of the stack, by lt.auto
  int ops_to_walk = 0;      // eager ops between the latest walk and the next
  bool loops_tell = false;  // it will soon be known how long loops will run; nothing is captured before
  AutomaticCode automatic{};
  std::unordered_map<const void*, Heat> heat;  // by address of the prototype that a frame runs
  StressHook stress;
  std::shared_ptr<CompiledBackward> backward;
};

CaptureState& capture_state(lua_State* L);

// Charges the CPU time of its lifetime to lt.auto's budget as a capture, if `counts`.
class AutomaticTime {
 public:
  AutomaticTime(CaptureState& state, bool counts) : state_(state), counts_(counts) {}
  ~AutomaticTime() {
    if (counts_) state_.automatic.captured(thread_cpu_ms() - start_);
  }

 private:
  CaptureState& state_;
  const bool counts_;
  const double start_ = counts_ ? thread_cpu_ms() : 0;
};

}  // namespace lutra
