// What capture keeps for a Runtime: what the tracer knows, compiled functions with their points and entries, portals.
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

// How often lt.auto has found frames of a prototype, where they were lately, and when it looks at one closer.
struct Heat {
  int64_t count = 0, next = 0;
  int times = 0;
  Places places{};
  FrameRounds rounds{};
};

// What lt.auto has spent since it was switched on, on captures and patches; what its code has saved, less what calls of
// its portals took, those that ran nothing among them; what the next capture may take. In time of CPU: that of other
// programs is not its own.
struct AutomaticCode {
  double since_ms = 0, cpu_since_ms = 0;  // on the clocks of the process: the wall's, and the CPU's
  double spent_ms = 0, saved_ms = 0;
  // Likewise spent: on backwards that are compiled when they first run, by the background, too.
  std::shared_ptr<std::atomic<double>> late_ms = std::make_shared<std::atomic<double>>(0);
  double left_ms = 0;  // of loops that count, as a walk saw it lately
  double run_ops = 0;  // by compiled code since the latest walk
  double next_ms = 6;
  // An op's part of what compiling takes, as entries have told.
  double op_ms = 0.08, compiled_ops = 300;
  // What was captured last: while its code is not there, nothing else is captured, which may be part of it. Unless
  // nobody calls it any more: how often captures had to wait for it since.
  std::weak_ptr<Entry> pending{};
  int refused = 0;

  double owed_ms() const { return spent_ms + *late_ms - saved_ms; }
  // What took longer than most has to wait by itself: see ProtoPoint::needs_ms.
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

// lt.set_stance: what compiled functions do. The names are those that users give.
enum class Stance : uint8_t { kDefault, kForceEager, kEagerOnRecompile, kFailOnRecompile };
inline constexpr const char* kStances[] = {"default", "force_eager", "eager_on_recompile", "fail_on_recompile"};

// Portal calls that are under way, one within the other. They count no references to what they run: what is dropped
// meanwhile lives until the outermost ends.
class RunningCalls {
 public:
  void keep(std::shared_ptr<void> dropped) {
    if (depth_) dropped_.push_back(std::move(dropped));
  }

 private:
  friend class RunningCall;
  size_t depth_ = 0;
  std::vector<std::shared_ptr<void>> dropped_;
  std::vector<std::unique_ptr<GuardValues>> spare_;  // by depth: memory for the values of a call
};

void keep_noted_hit();  // entries.cc

class RunningCall {
 public:
  explicit RunningCall(RunningCalls& calls) : calls_(calls) {
    if (calls.spare_.size() == calls.depth_) calls.spare_.push_back(std::make_unique<GuardValues>());
    values_ = calls.spare_[calls.depth_++].get();
  }
  ~RunningCall() {
    values_->tensors.forget();
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
  int quiet_calls = 0;  // since it last met a function for the first time, or rested
  bool rests = false;
  int length = 0;  // of its last rest, in instructions
};

struct CaptureState {
  Runtime* runtime = nullptr;
  bool mirror = false;  // LuaJIT's structs are what vm/mirror says
  RunningCalls running;
  TraceState trace;
  Stance stance = Stance::kDefault;
  std::map<ProtoKey, std::shared_ptr<CompiledProto>> protos;
  Portals portals;
  std::unordered_map<uint64_t, std::weak_ptr<CompiledProto>> by_serial, by_version;
  std::vector<std::shared_ptr<CompiledProto>> resume_protos;
  std::unordered_map<const void*, int> backends;  // registry references of users' backends, by address
  uint64_t next_proto = 1, next_version = 1;
  size_t collect_at = 64;  // compiled prototypes
  int auto_threshold = 0;
  unsigned walks = 0;       // of lt.auto
  int ops_to_walk = 0;      // that lie between the latest and the next
  bool loops_tell = false;  // soon, how long they will run: nothing is captured before that
  AutomaticCode automatic{};
  std::unordered_map<const void*, Heat> heat;  // by address of the prototype that a frame runs
  StressHook stress;
  std::shared_ptr<CompiledBackward> backward;
};

CaptureState& capture_state(lua_State* L);

// Its life is a capture of lt.auto's, where `counts`.
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
