// An executable: a plan with its compiled kernels. It runs on tensors and scalars.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jit/artifact/artifact.h"
#include "jit/runtime/lines.h"
#include "jit/runtime/runner.h"

namespace lutra {

// An immutable program (FlatPlan), and the device's Runner for it.
//
// Invariants:
// 1. run allocates everything before its first launch.
// 2. After an Error nothing that existed before has changed, and the generator's call index is as before. The only
//    exception are buffers that the plan mutates after the place where the failing launch was scheduled; the scheduler
//    puts launches that can fail first. If a device refuses a launch later than that, the error is a LateError: the run
//    must not be repeated from its start.
// 3. Tensors that run returns never share memory with the arena.
// 4. An executable may run on several threads at once: each run has a context of its own.
class Executable : public Dense {
 public:
  // constants: the tensors for the plan's constants. listing: keep assembly text (listings()). at_once: kernels need
  // not be compiled before the first run.
  static std::shared_ptr<Executable> build(Plan plan, std::vector<Tensor> constants = {}, bool listing = false,
                                           bool at_once = false);
  // Makes an executable from an artifact for a machine like this one. Kernels without code are compiled. given: the
  // captured graph's constants.
  static std::shared_ptr<Executable> link(Artifact artifact, const std::vector<Tensor>& given);
  // Makes an executable for a function of a plan. The plan that owns the function must outlive it.
  static std::shared_ptr<Executable> of_function(const Plan& plan, const Codes& codes, const CodeOptions& options);
  Executable(const Executable&) = delete;

  // inputs: one real tensor for each graph input that is not a constant. scalars: one for each graph scalar. Returns
  // one Value for each output (Tensor, Scalar or None). donors: for devices that record runs; one with several holders,
  // or of another size than the output, is not used. views: one for each input, data is null if unknown; the run takes
  // the vector's contents.
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                         const std::vector<Donor>& donors = {}, std::vector<InputView>* views = nullptr) {
    note_lines(&runner_, 1);
    return runner_->run(inputs, scalars, donors, views);
  }
  // For the eager executor and in-place ops: writes into the given outputs.
  void run_into(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                const std::vector<Tensor>& outputs) {
    runner_->run_into(inputs, scalars, outputs);
  }
  // Like run_into, on bare memory: one view for each input, one pointer for each output.
  void run_views(const InputView* inputs, const double* scalars, void* const* outputs) {
    runner_->run_views(inputs, scalars, outputs);
  }

  // Allocates memory for temporaries before the first run, e.g. in the background. Then a run with inputs and scalars
  // like these (FakeTensors; hints are used) need not wait for the system to clear it.
  void prepare(const std::vector<Tensor>& like, const std::vector<double>& scalars) { runner_->prepare(like, scalars); }

  // Mode "max-autotune": runs measure which candidates are the fastest for its library calls, then use these. On a GPU
  // candidates differ in the last bits. Call it before the first run.
  void set_autotune() { runner_->set_autotune(); }

  // Returns a function from the sizes, strides and offsets of results to their values in a run on these arguments.
  auto numbers(const InputView* inputs, const double* scalars) const {
    std::vector<HostValue> values = flat_.program.start_values();
    flat_.program.run(values.data(), inputs, scalars);
    return [this, values = std::move(values)](ExprId e) { return flat_.program.int_value(values.data(), e); };
  }

  const Plan& plan() const { return flat_.plan; }
  const Runner& runner() const { return *runner_; }
  const std::vector<Tensor>& constants() const { return flat_.constants; }
  size_t kernel_count() const { return flat_.kernel_count; }
  std::string listings() const { return flat_.listings(); }
  // Returns its machine code, if the device can save it.
  Codes codes() const { return flat_.codes(); }

 private:
  Executable(Plan plan, const Codes& codes, std::vector<Tensor> constants, const CodeOptions& options);
  Executable(const Plan& function, const Codes& codes, const CodeOptions& options);

  const std::optional<Plan> own_;  // none for a function of another plan
  FlatPlan flat_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace lutra
