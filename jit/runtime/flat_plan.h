// A plan, flattened for running: its host expressions as slots, its launches as steps with compiled kernels.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jit/artifact/artifact.h"
#include "jit/loop/abi.h"
#include "jit/runtime/host_program.h"

namespace lutra {

struct CachedKernel;
class Backend;
class Executable;

constexpr int kMaxBeside = 64;  // kernels in one fork and join
constexpr size_t kHeadWords = sizeof(BlockHead) / 8;

// A launch. If it is a kernel, operands[first ...] are `ptrs` buffers, then `ints` slots, then `nums` slots.
struct LaunchStep {
  CachedKernel* counters = nullptr;
  CachedKernel* kernel = nullptr;  // null: plan.launches[launch] is a library's
  const char* op = "";             // the launch's; it lives as long as the process
  const char* file = nullptr;      // null: unknown
  int line = 0;
  int32_t launch = 0, first = 0, ptrs = 0, ints = 0, nums = 0;
  int32_t block = 0;  // index of its first word in the context's blocks
  int32_t words = 0;
  int32_t extent = -1, work = -1;  // slots; extent -1: no parallel loop
  bool random = false;
  bool writes = false;    // it, or a kernel in parallel with it, writes memory that existed before the run
  bool in_place = false;  // it writes inputs in place only (jit/schedule/in_place.cc), so the run may be repeated
  int32_t unbacked = -1;  // index in FlatPlan::unbacked, if it determines a size
  int32_t beside = 0;     // how many of the next steps run in parallel with it
};

// A size that a library's launch determines: a number of the plan, and the value that stands for it until then.
struct UnbackedSize {
  int32_t number;
  double hint;
};

struct CodeOptions {
  bool listing = false;  // keep assembly text
  bool at_once = false;  // kernels need not be compiled before their first run, if the device allows that
};

// Invariant: it does not change after construction, so runs on several threads share it.
struct FlatPlan {
  // codes: of the kernels that have code already; the others are compiled. The plan must outlive this object.
  FlatPlan(const Plan& plan, const Codes& codes, std::vector<Tensor> constants, const CodeOptions& options);
  FlatPlan(const FlatPlan&) = delete;

  const LaunchStep* end() const { return steps.data() + steps.size(); }
  // Returns the step after the group of parallel steps that begins with `step`.
  static const LaunchStep* after(const LaunchStep* step) { return step + step->beside + 1; }
  // Returns the source location of the first launch that has one.
  std::pair<const char*, int> first_place() const;
  std::string place() const;
  std::string listings() const;
  Codes codes() const;

  const Plan& plan;
  std::vector<Tensor> constants;
  HostProgram program;
  std::vector<std::shared_ptr<Executable>> functions;
  const Backend& backend;
  const std::string isa;  // that its kernels are made for
  std::vector<LaunchStep> steps;
  std::vector<int32_t> operands;  // of all steps: buffers, integer slots, number slots
  std::vector<int32_t> input_of;  // buffer -> position among run's inputs, -1
  int32_t input_count = 0;
  size_t block_words = 0;  // of all steps
  size_t kernel_count = 0;
  // In the order of their launches. An expression's level is the number of these sizes that must be known to compute
  // it.
  std::vector<UnbackedSize> unbacked;
  int32_t level(ExprId id) const { return levels_.empty() ? 0 : levels_[size_t(id)]; }

 private:
  void find_unbacked();
  std::vector<int32_t> levels_;
  void compile(const Codes& codes, const CodeOptions& options);
  void compile_launch(size_t i, const Codes& codes, const CodeOptions& options, bool waits);
  void prepare_library(const ExternLaunch& launch) const;
  void add_kernel(const KernelLaunch& launch);
  void add_library(const ExternLaunch& launch);
  void add_view(const BufferView& view);
  void add_outputs();
  void name_runs();
  bool writes_inputs(int32_t launch) const;
  bool repeats(int32_t launch) const;

  std::vector<std::shared_ptr<CachedKernel>> counters_;  // one for each step; a kernel's has its code
  std::vector<std::shared_ptr<CachedKernel>> run_counters_;
};

}  // namespace lutra
