// An executable: a plan with its kernels compiled; runs on tensors and scalars.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/codegen/kernel.h"
#include "jit/schedule/plan.h"

namespace lutra {

// Invariants (DESIGN 13): run allocates everything before its first launch; on an Error nothing that existed before has
// changed except buffers the plan mutates after the failing launch was scheduled - the scheduler puts what can fail
// first - and the generator's call index is as before.
class Executable {
 public:
  static std::shared_ptr<Executable> build(Plan plan);
  // inputs: one real tensor for each graph input that is not a constant; scalars: one double each. outputs: one Value
  // each (Tensor, Scalar or None).
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars);
  // For the eager executor and in-place ops: the buffer of output 0 is given.
  void run_into(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                const std::vector<Tensor>& outputs);
  const Plan& plan() const { return plan_; }
  size_t kernel_count() const;

 private:
  Plan plan_;
  std::vector<std::shared_ptr<Code>> codes_;
};

// Process-wide settings of the runtime (lt.config).
struct RuntimeConfig {
  int num_threads = 0;  // 0: as many as the machine has
  std::string isa;      // empty: best_isa()
};
RuntimeConfig& runtime_config();

// Runs body(begin, end) over [0, n) on the thread pool in chunks of at least grain; inline when n <= grain.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace lutra
