// Who runs a flat plan on a kind of device. The run is the same everywhere: host expressions once, outputs and arena
// allocated, then each launch. What a kind of device does its own way is a virtual function here.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "jit/loop/abi.h"
#include "jit/runtime/arena.h"
#include "jit/runtime/config.h"
#include "jit/runtime/flat_plan.h"
#include "jit/runtime/library_call.h"
#include "jit/runtime/plain_run.h"
#include "jit/runtime/tuning.h"
#include "ops/core/error.h"

namespace lutra {

struct Generator;

// A storage that holds nothing that anybody will read: an output may be made in it.
struct Donor {
  int32_t output;
  Storage* storage;
};

// The working memory of a run; one is kept between runs, and runs that overlap make their own.
struct RunContext {
  virtual ~RunContext() = default;
  std::vector<HostValue> values;
  std::vector<InputView> inputs;     // of run
  const InputView* given = nullptr;  // while a run is under way
  std::vector<void*> outputs;        // of run_into
  std::vector<void*> buffers;
  std::vector<Ref<Storage>> storages;  // of output buffers, while a run is under way
  bool holds_storages = false;
  std::unique_ptr<uint64_t[]> memory;
  uint64_t* blocks = nullptr;  // into memory, 64-byte aligned
  Ref<Storage> arena;
  ArenaLayout layout;
  char* arena_base = nullptr;
  // Where launches tell sizes: the run's numbers, and memory whose size they told.
  std::vector<double> scalars;
  std::vector<Ref<Storage>> told;
  LibraryChoice library;   // of the last library's launch
  bool unsettled = false;  // some library's launch is being measured
};

// A kernel that is about to run.
struct FilledStep {
  const LaunchStep* step;
  BlockHead* head;
  int64_t extent, work;
};

// A device that decides by itself, while a run is recorded: what it is given to run it runs or not, as memory then
// says.
struct Decider {
  virtual ~Decider() = default;
  // body() where the element at flag is not 0, or is.
  virtual void when(const void* flag, DType dtype, bool holds, const std::function<void()>& body) = 0;
  // body() as long as the element is not 0; body sets it anew.
  virtual void repeat(const void* flag, DType dtype, const std::function<void()>& body) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
};

// Invariants: those of executable.h. A runner does not change while it runs, so runs on several threads share it.
class Runner : public Dense {
 public:
  explicit Runner(const FlatPlan& flat);
  virtual ~Runner();
  Runner(const Runner&) = delete;

  // As Executable has them.
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                         const std::vector<Donor>& donors, std::vector<InputView>* views);
  void run_into(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                const std::vector<Tensor>& outputs);
  void run_views(const InputView* inputs, const double* scalars, void* const* outputs);
  // As Executable has it.
  void prepare(const std::vector<Tensor>& like, const std::vector<double>& scalars);
  // As Executable has it; before the first run.
  void set_autotune() { autotune_ = true; }

 protected:
  virtual RunContext* make_context() const { return new RunContext; }
  // Of run, first of all: inputs may be looked for elsewhere, memory may be taken.
  virtual void begin(RunContext&, const std::vector<Tensor>& /*inputs*/) const {}
  // Of run, when sizes, inputs and the arena are known and outputs are not.
  virtual void choose(RunContext&, const std::vector<Tensor>& /*inputs*/, const std::vector<Donor>&) const {}
  // At least so many bytes for temporaries.
  virtual void* arena(RunContext& c, size_t bytes) const;
  // An output's memory.
  virtual Ref<Storage> output(RunContext& c, int32_t buffer, size_t bytes) const;
  // Of run: the launches, or what stands for them.
  virtual void launch(RunContext& c) const { launch_all(c); }
  // A kernel and those beside it. wrote: set once something that existed before the run has been given to be written
  // and the device may not be asked again.
  virtual void launch_kernels(RunContext& c, const LaunchStep& first, const Generator& generator,
                              bool& wrote) const = 0;
  virtual void launch_library(RunContext& c, const LaunchStep& step) const;
  void launch_control(RunContext& c, const ExternLaunch& launch) const;
  // An op that tells a size: what rests on it is reckoned and allocated then.
  void launch_unbacked(RunContext& c, const LaunchStep& step) const;
  // Null: the host waits for what decides.
  virtual Decider* decider(RunContext& /*c*/) const { return nullptr; }
  // After any run, however it ended.
  virtual void end(RunContext&) const {}
  // Whether what is launched now is only noted down.
  virtual bool is_recording() const { return false; }

  // Whether runs try which of a library's candidates are the fastest, and whether they have not found out yet.
  bool is_tuned() const { return autotune_ || runtime_config().tune; }
  bool is_unsettled() const { return is_tuned() && unsettled_.load(std::memory_order_relaxed); }
  // How often all library calls were known: what was recorded before that may have been made by others.
  uint32_t settled_times() const { return settled_times_.load(std::memory_order_relaxed); }

  void launch_all(RunContext& c) const;
  // Small runs are made so, where the device is the CPU.
  void run_plainly_where_small() { plain_ = PlainRun::of(flat_); }
  bool fill(const RunContext& c, const LaunchStep& step, const Generator& generator, FilledStep& out) const;
  ExternCall make_call(const RunContext& c, const ExternLaunch& launch, CallOperands& operands) const;
  [[noreturn]] void report(const FilledStep& filled, const LaunchFault& fault) const;

  const FlatPlan& flat_;
  const Plan& plan_;
  const HostProgram& program_;
  const std::vector<LaunchStep>& steps_;

 private:
  // Buffers by what they are: (buffer, position among run's inputs, or constant, or place in the arena).
  std::vector<std::pair<int32_t, int32_t>> given_, constants_, temporaries_;
  std::vector<int32_t> made_;  // for outputs
  class ContextScope;
  void set_views(RunContext& c, const std::vector<Tensor>& inputs, std::vector<InputView>* known) const;
  void set_buffers(RunContext& c, const InputView* inputs, const double* scalars, void* const* outputs) const;
  void set_arena(RunContext& c) const;
  void make_outputs(RunContext& c) const;
  void make_output_buffer(RunContext& c, int32_t buffer) const;
  Results make_unbacked(const RunContext& c, const ExternLaunch& launch) const;
  void make_told(RunContext& c, int32_t level) const;
  Tensor make_output(const RunContext& c, const BufferView& view, const std::vector<Tensor>& inputs) const;
  Tensor operand(const RunContext& c, const BufferView& view) const;
  std::vector<Value> make_results(const RunContext& c, const std::vector<Tensor>& inputs) const;
  // wrote: results are begun; in_place: an input's, which another run would write the same.
  void launch_steps(RunContext& c, bool& wrote, bool& in_place) const;
  void bump_versions(const std::vector<Tensor>& inputs) const;
  template <class F>
  void count_writes(const std::vector<Tensor>& inputs, const F& launch) const;

  Tuning tuning() const;
  void note_tuning(const RunContext& c) const;

  bool autotune_ = false;
  mutable std::atomic<bool> unsettled_{true};
  mutable std::atomic<uint32_t> settled_times_{0};
  std::unique_ptr<PlainRun> plain_;  // null: it is none
  std::atomic<RunContext*> spare_{nullptr};
};

// Of an input of a run. Throws for a freed or fake tensor.
inline InputView view_of(const TensorImpl& t) {
  const Storage& s = *t.storage;
  const bool plain = !s.freed && !s.fake && t.offset.hint == 0;
  return {plain ? s.data : t.data(), t.sizes.begin(), t.strides.begin()};
}
// The bytes of n elements; an absurd size is out of memory, not an overflow.
size_t storage_bytes(int64_t n, size_t size);

// What is known of any check of the launch.
Fault fault_of(const KernelLaunch& launch);
Error fault_error(const std::vector<Fault>& faults, const Fault& launch, const LaunchFault& fault, int64_t size);

}  // namespace lutra
