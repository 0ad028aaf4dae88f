// An executable: a plan with its kernels compiled; runs on tensors and scalars.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "jit/codegen/kernel.h"
#include "jit/runtime/host_program.h"
#include "jit/schedule/plan.h"
#include "ops/extern/extern.h"

namespace lutra {

struct CachedKernel;
namespace cuda {
struct Context;
}

// A storage that holds nothing that anybody will read: an output may be made in it.
struct Donor {
  int32_t output;
  Storage* storage;
};

// Invariants:
// 1. run allocates everything before its first launch.
// 2. On an Error nothing that existed before has changed except buffers the plan mutates after the failing launch was
//    scheduled - the scheduler puts what can fail first - and the generator's call index is as before.
//    A GPU that refuses a launch after that is a LateError: the run must not be made again from its start.
// 3. Tensors that run returns never share memory with the arena.
// 4. An executable may run on several threads at once: each run has a context of its own.
class Executable {
 public:
  // listing: keep assembly text (listings()). at_once: a GPU's kernels need not be compiled when it first runs.
  static std::shared_ptr<Executable> build(Plan plan, bool listing = false, bool at_once = false);
  ~Executable();
  Executable(const Executable&) = delete;

  // inputs: one real tensor for each graph input that is not a constant; scalars: one double each. outputs: one Value
  // each (Tensor, Scalar or None). Donors are for GPUs; those that have other holders than one, or another size than
  // the output, are let be.
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                         const std::vector<Donor>& donors = {});
  // For the eager executor and in-place ops: the buffers of the outputs are given.
  void run_into(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                const std::vector<Tensor>& outputs);
  // The same on bare memory: one view an input, one pointer an output.
  void run_views(const InputView* inputs, const double* scalars, void* const* outputs);

  const Plan& plan() const { return plan_; }
  size_t kernel_count() const { return kernel_count_; }
  std::string listings() const;

 private:
  struct Context;
  struct CallOperands;
  struct Recording;
  struct Recordings;
  struct RecordingsDeleter {
    void operator()(Recordings*) const;
  };
  // A launch, flattened. Kernel: operands_[first ...] are `ptrs` buffers, `ints` slots, `nums` slots.
  struct Step {
    CachedKernel* counters = nullptr;
    CachedKernel* kernel = nullptr;  // null: plan_.launches[launch] is an extern
    int32_t launch = 0, first = 0, ptrs = 0, ints = 0, nums = 0;
    int32_t block = 0;  // word of the context's blocks
    int32_t words = 0;
    int32_t extent = -1, work = -1;  // slots, -1: no parallel loop
    bool random = false;
    bool writes = false;                 // on a GPU: what existed before the run, itself or one beside it
    int32_t beside = 0;                  // how many of the next steps run side by side with it
    int64_t site = 0;                    // on a GPU: where its faults are told
    int32_t gpu_first = 0, gpu_end = 0;  // and its launches with those beside it, among gpu_groups_
  };
  class ContextScope;
  explicit Executable(Plan plan) : plan_(std::move(plan)) {}
  void prepare(bool listing, bool at_once);
  void compile_kernels(bool listing, bool at_once);
  void compile_launch(size_t i, bool listing, bool at_once);
  void prepare_extern(const ExternLaunch& launch) const;
  void prepare_kernel(const KernelLaunch& launch);
  void prepare_view(const BufferView& view);
  void set_buffers(Context& c, const InputView* inputs, const double* scalars, void* const* outputs) const;
  void make_outputs(Context& c, const Recording* recording) const;
  void set_arena(Context& c) const;  // arena.cc
  void fill_block(const Context& c, const Step& step, BlockHead* head) const;
  void launch_all(Context& c) const;
  void launch_steps(Context& c, bool& wrote) const;
  void note_launch(const HostValue* values, const Step* step, uint64_t nanoseconds) const;  // profile.cc
  void name_runs();
  struct Part;
  bool make_part(const Context& c, const Step& step, const struct Generator& generator, Part& part) const;
  void launch_kernel(const Context& c, const Step& step, const struct Generator& generator) const;
  void launch_beside(const Context& c, const Step* first, const struct Generator& generator) const;
  static void run_part(const Part& part, int chunk, LaunchFault* fault);
  void launch_chunks(const Part& part) const;
  ExternCall make_call(const Context& c, const ExternLaunch& launch, CallOperands& operands) const;
  void launch_extern(Context& c, const Step& step) const;
  [[noreturn]] void report(const Step& step, const BlockHead* head, const LaunchFault& fault) const;
  void set_views(Context& c, const std::vector<Tensor>& inputs) const;
  // gpu.cc
  struct GpuLaunch;
  void prepare_gpu();
  void add_gpu_groups(size_t first);
  bool writes_inputs(int32_t launch) const;
  void aim(BlockHead* head, int32_t step, cuda::Context& gpu) const;
  bool make_gpu_launch(const Context& c, const std::vector<int32_t>& group, GpuLaunch& out) const;
  void launch_on_gpu(const Context& c, const std::vector<int32_t>& group) const;
  void interpret_on_gpu(const Context& c, const std::vector<int32_t>& group) const;
  bool kernels_ready() const;
  bool reads_input(int32_t position) const;
  void set_moved(Context& c, const std::vector<Tensor>& inputs) const;
  // record.cc
  void prepare_recordings();
  Recording* pick_recording(Context& c, const std::vector<Tensor>& inputs, std::unique_lock<std::mutex>& lock) const;
  void set_donors(Context& c, const std::vector<Donor>& donors) const;
  bool can_record(const Context& c) const;
  void give_up(const std::string& why) const;
  std::pair<const char*, int> first_place() const;
  std::string place_of_run() const;
  void bring_moving(Context& c, const std::vector<Tensor>& inputs) const;
  bool find_moving(Recordings& r) const;
  void make_key(const Context& c, struct LibraryKey& key) const;
  void launch_recorded(Context& c, Recording& r) const;
  bool record(Context& c, Recording& r) const;
  bool find_nodes(const Context& c, Recording& r) const;
  void update_kernels(const Context& c, Recording& r) const;
  void bump_versions(const std::vector<Tensor>& inputs) const;
  Tensor make_output(const Context& c, const BufferView& view, const std::vector<Tensor>& inputs) const;

  Plan plan_;
  HostProgram program_;
  std::vector<std::shared_ptr<CachedKernel>> counters_;  // one a step; a kernel's has its code
  std::vector<std::shared_ptr<CachedKernel>> run_counters_;
  size_t kernel_count_ = 0;
  std::vector<Step> steps_;
  std::vector<std::vector<int32_t>> gpu_groups_;  // steps by launch
  std::vector<int32_t> operands_;                 // of the steps: buffers, integer slots, number slots, in a row
  std::vector<int32_t> input_of_;                 // buffer -> position among run's inputs, -1
  int32_t input_count_ = 0;
  size_t block_words_ = 0;  // of all steps
  std::atomic<Context*> spare_{nullptr};
  std::unique_ptr<Recordings, RecordingsDeleter> recordings_;  // on a GPU, where there is something to gain
};

}  // namespace lutra
