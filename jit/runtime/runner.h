// Runs a flat plan on a kind of device. All kinds run it in the same way: evaluate the host expressions once, allocate
// outputs and arena, then do the launches. A virtual function does what depends on the device.
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

// A storage whose contents nobody will read: an output may be made in it.
struct Donor {
  int32_t output;
  Storage* storage;
};

// The working memory of a run. One is kept between runs; runs that overlap make their own.
struct RunContext {
  virtual ~RunContext() = default;
  std::vector<HostValue> values;
  std::vector<InputView> inputs;     // of run
  const InputView* given = nullptr;  // the inputs' views, during a run
  std::vector<void*> outputs;        // of run_into
  std::vector<void*> buffers;
  std::vector<Ref<Storage>> storages;  // of output buffers, during a run
  bool holds_storages = false;
  std::unique_ptr<uint64_t[]> memory;
  uint64_t* blocks = nullptr;  // points into memory, 64-byte aligned
  Ref<Storage> arena;
  ArenaLayout layout;
  char* arena_base = nullptr;
  // If launches determine sizes: the numbers of the run, and the memory allocated for these sizes.
  std::vector<double> scalars;
  std::vector<Ref<Storage>> unbacked_memory;
  LibraryChoice library;   // of the last library launch
  bool unsettled = false;  // some library launch is still being measured
};

// A kernel with its block filled in, ready to run.
struct FilledStep {
  const LaunchStep* step;
  BlockHead* head;
  int64_t extent, work;
};

// A device that decides by itself during a recorded run: it runs a body or not, depending on memory at that time.
struct Decider {
  virtual ~Decider() = default;
  // Runs body() if the element at flag is not 0 (holds) or is 0 (!holds).
  virtual void when(const void* flag, DType dtype, bool holds, const std::function<void()>& body) = 0;
  // Runs body() as long as the element is not 0. body updates the element.
  virtual void repeat(const void* flag, DType dtype, const std::function<void()>& body) = 0;
  // Copies bytes of the device, after all earlier launches and before all later ones.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
};

// Invariants: those of executable.h. A runner does not change while it runs, so runs on several threads share it.
class Runner : public Dense {
 public:
  explicit Runner(const FlatPlan& flat);
  virtual ~Runner();
  Runner(const Runner&) = delete;

  // See Executable.
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                         const std::vector<Donor>& donors, std::vector<InputView>* views);
  void run_into(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                const std::vector<Tensor>& outputs);
  void run_views(const InputView* inputs, const double* scalars, void* const* outputs);
  const PlainRun* plain() const { return plain_.get(); }  // what run() tries first; null if there is none
  // See Executable.
  void prepare(const std::vector<Tensor>& like, const std::vector<double>& scalars);
  // See Executable. Call it before the first run.
  void set_autotune() { autotune_ = true; }

 protected:
  virtual RunContext* make_context() const { return new RunContext; }
  // First step of run: may look for inputs elsewhere, and allocate memory.
  virtual void begin(RunContext&, const std::vector<Tensor>& /*inputs*/) const {}
  // Step of run when sizes, inputs and the arena are known, but not the outputs.
  virtual void choose(RunContext&, const std::vector<Tensor>& /*inputs*/, const std::vector<Donor>&) const {}
  // Returns at least so many bytes for temporaries.
  virtual void* arena(RunContext& c, size_t bytes) const;
  // Returns an output's memory.
  virtual Ref<Storage> output(RunContext& c, int32_t buffer, size_t bytes) const;
  // Step of run that does the launches, or replays a recording of them.
  virtual void launch(RunContext& c) const { launch_all(c); }
  // Launches a kernel and those in parallel with it. wrote: set once a write to memory that existed before the run has
  // been issued, and the device may not be asked again.
  virtual void launch_kernels(RunContext& c, const LaunchStep& first, const Generator& generator,
                              bool& wrote) const = 0;
  virtual void launch_library(RunContext& c, const LaunchStep& step) const;
  void launch_control(RunContext& c, const ExternLaunch& launch) const;
  // Launches an op that determines a size. Then computes and allocates what depends on the size.
  void launch_unbacked(RunContext& c, const LaunchStep& step) const;
  // Null: the host waits for the value that decides.
  virtual Decider* decider(RunContext& /*c*/) const { return nullptr; }
  // Called after every run, even if it failed.
  virtual void end(RunContext&) const {}
  // Returns true if launches are only recorded now.
  virtual bool is_recording() const { return false; }

  // is_tuned: runs measure which candidates of libraries are the fastest. is_unsettled: they have not finished yet.
  bool is_tuned() const { return autotune_ || runtime_config().tune; }
  bool is_unsettled() const { return is_tuned() && unsettled_.load(std::memory_order_relaxed); }
  // How often all library calls became settled. What was recorded before may have used other candidates.
  uint32_t settled_times() const { return settled_times_.load(std::memory_order_relaxed); }

  void launch_all(RunContext& c) const;
  // Uses PlainRun for small runs. Call it if the device is the CPU.
  void run_plainly_where_small() { plain_ = PlainRun::of(flat_); }
  bool fill(const RunContext& c, const LaunchStep& step, const Generator& generator, FilledStep& out) const;
  ExternCall make_call(const RunContext& c, const ExternLaunch& launch, CallOperands& operands) const;
  [[noreturn]] void report(const FilledStep& filled, const LaunchFault& fault) const;

  const FlatPlan& flat_;
  const Plan& plan_;
  const HostProgram& program_;
  const std::vector<LaunchStep>& steps_;

 private:
  // Buffers by kind: (buffer, position among the run's inputs, index of the constant, or slot of the arena).
  std::vector<std::pair<int32_t, int32_t>> given_, constants_, temporaries_;
  std::vector<int32_t> made_;  // buffers of outputs
  class ContextScope;
  void set_views(RunContext& c, const std::vector<Tensor>& inputs, std::vector<InputView>* known) const;
  void set_buffers(RunContext& c, const InputView* inputs, const double* scalars, void* const* outputs) const;
  void set_arena(RunContext& c) const;
  void make_outputs(RunContext& c) const;
  void make_output_buffer(RunContext& c, int32_t buffer) const;
  Results make_unbacked(const RunContext& c, const ExternLaunch& launch) const;
  void allocate_unbacked(RunContext& c, int32_t level) const;
  Tensor make_output(const RunContext& c, const BufferView& view, const std::vector<Tensor>& inputs) const;
  Tensor operand(const RunContext& c, const BufferView& view) const;
  std::vector<Value> make_results(const RunContext& c, const std::vector<Tensor>& inputs) const;
  // wrote: set when results have been written. in_place: set when an input has been written in place, which a repeated
  // run would write alike.
  void launch_steps(RunContext& c, bool& wrote, bool& in_place) const;
  void bump_versions(const std::vector<Tensor>& inputs) const;
  template <class F>
  void count_writes(const std::vector<Tensor>& inputs, const F& launch) const;

  Tuning tuning() const;
  void note_tuning(const RunContext& c) const;

  bool autotune_ = false;
  mutable std::atomic<bool> unsettled_{true};
  mutable std::atomic<uint32_t> settled_times_{0};
  std::unique_ptr<PlainRun> plain_;  // null: the plan is not small
  std::atomic<RunContext*> spare_{nullptr};
};

// Returns the view of a run's input. Throws for a freed or fake tensor.
inline InputView view_of(const TensorImpl& t) {
  const Storage& s = *t.storage;
  const bool plain = !s.freed && !s.fake && t.offset.hint == 0;
  return {plain ? s.data : t.data(), t.sizes.begin(), t.strides.begin()};
}
// Returns the bytes of n elements. An absurd size gives an out-of-memory error, not an overflow.
size_t storage_bytes(int64_t n, size_t size);

// Returns what is known about any check of the launch.
Fault fault_of(const KernelLaunch& launch);
Error fault_error(const std::vector<Fault>& faults, const Fault& launch, const LaunchFault& fault, int64_t size);

}  // namespace lutra
