// An executable: a plan with its kernels compiled; runs on tensors and scalars.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jit/artifact/artifact.h"
#include "jit/runtime/lines.h"
#include "jit/runtime/runner.h"

namespace lutra {

// A program that does not change (FlatPlan), and who runs it on its device (Runner).
// Invariants:
// 1. run allocates everything before its first launch.
// 2. On an Error nothing that existed before has changed except buffers the plan mutates after the failing launch was
//    scheduled - the scheduler puts what can fail first - and the generator's call index is as before.
//    A device that refuses a launch after that is a LateError: the run must not be made again from its start.
// 3. Tensors that run returns never share memory with the arena.
// 4. An executable may run on several threads at once: each run has a context of its own.
class Executable : public Dense {
 public:
  // constants: of the plan's places for them. listing: keep assembly text (listings()). at_once: kernels need not be
  // compiled when it first runs.
  static std::shared_ptr<Executable> build(Plan plan, std::vector<Tensor> constants = {}, bool listing = false,
                                           bool at_once = false);
  // Of code that was kept, for a machine like this one; the rest is compiled. given: the captured graph's constants.
  static std::shared_ptr<Executable> link(Artifact artifact, const std::vector<Tensor>& given);
  // Of a function of a plan; the plan that has it outlives it.
  static std::shared_ptr<Executable> of_function(const Plan& plan, const Codes& codes, const CodeOptions& options);
  Executable(const Executable&) = delete;

  // inputs: one real tensor for each graph input that is not a constant; scalars: one double each. outputs: one Value
  // each (Tensor, Scalar or None). Donors are for devices that record runs; those that have other holders than one, or
  // another size than the output, are let be. views: one an input, without data where it is not known; the run takes
  // them.
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                         const std::vector<Donor>& donors = {}, std::vector<InputView>* views = nullptr) {
    note_lines(&runner_, 1);
    return runner_->run(inputs, scalars, donors, views);
  }
  // For the eager executor and in-place ops: the buffers of the outputs are given.
  void run_into(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                const std::vector<Tensor>& outputs) {
    runner_->run_into(inputs, scalars, outputs);
  }
  // The same on bare memory: one view an input, one pointer an output.
  void run_views(const InputView* inputs, const double* scalars, void* const* outputs) {
    runner_->run_views(inputs, scalars, outputs);
  }

  // Before the first run, where nobody waits: memory for temporaries, so that a run whose inputs and scalars are like
  // these ones (FakeTensors, by their hints) need not wait for the system to clear it.
  void prepare(const std::vector<Tensor>& like, const std::vector<double>& scalars) { runner_->prepare(like, scalars); }

  // Mode "max-autotune": runs find out which candidates make its library calls fastest, and go on with those. On a GPU
  // candidates differ in the last bits. Before the first run.
  void set_autotune() { runner_->set_autotune(); }

  const Plan& plan() const { return flat_.plan; }
  const Runner& runner() const { return *runner_; }
  const std::vector<Tensor>& constants() const { return flat_.constants; }
  size_t kernel_count() const { return flat_.kernel_count; }
  std::string listings() const { return flat_.listings(); }
  // Its machine code, as far as the device gives it out.
  Codes codes() const { return flat_.codes(); }

 private:
  Executable(Plan plan, const Codes& codes, std::vector<Tensor> constants, const CodeOptions& options);
  Executable(const Plan& function, const Codes& codes, const CodeOptions& options);

  const std::optional<Plan> own_;  // none of a function of another's plan
  FlatPlan flat_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace lutra
