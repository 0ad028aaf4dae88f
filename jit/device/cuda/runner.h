// Runs plans on a GPU: puts each launch on the device's stream with its block by value, or launches all of them as one
// CUDA graph.
#pragma once
#include <mutex>
#include <optional>
#include <string>

#include "jit/codegen/cuda/code.h"
#include "jit/device/cuda/order.h"
#include "jit/device/cuda/working_memory.h"
#include "jit/runtime/runner.h"
#include "ops/cuda/driver.h"
#include "ops/extern/cuda/recording.h"

namespace lutra {

namespace cuda {
struct Context;
}

class CudaRunner final : public Runner {
 public:
  explicit CudaRunner(const FlatPlan& flat);
  ~CudaRunner() override;

 private:
  struct Recording;
  class Recorder;
  struct GpuRun final : RunContext {
    WorkingMemory working;           // during a run that needs any
    std::vector<Storage*> donors;    // of the run, by buffer; empty: there are none
    std::vector<Tensor> moved;       // copies on the GPU of CPU inputs without dimensions
    Recording* recording = nullptr;  // serves the run, or will be filled by it
    std::unique_lock<std::mutex> lock;
    std::optional<cuda::ScratchScope> scratch;
    Storage* donor(int32_t buffer) const { return donors.empty() ? nullptr : donors[size_t(buffer)]; }
  };
  // A GPU's data for a step.
  struct GpuStep {
    int64_t site = 0;            // where its faults are described
    int32_t first = 0, end = 0;  // its launches and those in parallel with it, in groups_
  };
  // A launch. For several steps, their blocks are copied to `several` (KernelSource::several_entry).
  struct GroupLaunch {
    cuda::FunctionHandle function = nullptr;
    cuda::Grid grid;
    uint64_t* param = nullptr;
    size_t words = 0;  // used words of param
    uint64_t several[cuda::kParameterWords];
  };
  static GpuRun& of(RunContext& c) { return static_cast<GpuRun&>(c); }

  RunContext* make_context() const override { return new GpuRun; }
  void begin(RunContext& c, const std::vector<Tensor>& inputs) const override;
  void choose(RunContext& c, const std::vector<Tensor>& inputs, const std::vector<Donor>& donors) const override;
  void* arena(RunContext& c, size_t bytes) const override;
  Ref<Storage> output(RunContext& c, int32_t buffer, size_t bytes) const override;
  void launch(RunContext& c) const override;
  void launch_kernels(RunContext& c, const LaunchStep& first, const Generator& generator, bool& wrote) const override;
  void launch_library(RunContext& c, const LaunchStep& step) const override;
  void end(RunContext& c) const override;
  Decider* decider(RunContext& c) const override;
  bool is_recording() const override;

  void add_sites();
  void add_groups(size_t first);
  MemoryRange range_of(const LaunchOrder& order, const GpuRun& c, int32_t buffer) const;
  void put_in_order(LaunchOrder& order, const GpuRun& c, std::span<const int32_t> launches) const;
  void fill_head(const GpuRun& c, BlockHead* head, int32_t step, cuda::Context& gpu) const;
  bool make_launch(const GpuRun& c, const std::vector<int32_t>& group, GroupLaunch& out) const;
  void launch_group(const GpuRun& c, const std::vector<int32_t>& group) const;
  void interpret(const GpuRun& c, const std::vector<int32_t>& group) const;
  bool kernels_ready() const;
  bool reads_input(int32_t position) const;
  void set_moved(GpuRun& c, const std::vector<Tensor>& inputs) const;
  void set_donors(GpuRun& c, const std::vector<Donor>& donors) const;
  void check_recordable(const GpuRun& c, const ExternLaunch& launch) const;

  const std::unique_ptr<Decider> decider_;
  std::vector<GpuStep> gpu_steps_;
  std::vector<std::vector<int32_t>> groups_;  // steps by launch
  std::unique_ptr<Recorder> recorder_;        // null if recording gains nothing
};

const cuda::LaunchCode& code_of(const CachedKernel& kernel);

}  // namespace lutra
