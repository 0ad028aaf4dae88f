// A captured forward graph whose results are differentiated outside: compiled forward and compiled backward as one node
// of the tape.
//
// In: a traced graph whose FakeTensors carry tape history (grad mode was on while tracing). The backward is traced by
// the tape itself (grad() on the FakeTensors, below it a recorder), so it is eager's, op for op. Invariants:
// 1. The forward has the traced outputs, then the values the backward reads; views are recomputed from their base, not
//    saved.
// 2. A backward graph has the traced inputs, the saved values, then the gradients that came; it shares the SymEnv,
//    whose leaves name the traced inputs.
// 3. A backward is compiled at first use for the outputs that have a gradient and these gradients' strides, on which
//    the order of reductions depends.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "jit/compile.h"
#include "ops/grad/tape.h"

namespace lutra {

struct CompiledNode;

class CompiledAutograd : public std::enable_shared_from_this<CompiledAutograd> {
 public:
  static std::shared_ptr<CompiledAutograd> build(std::unique_ptr<Graph> traced, const CompileOptions& options);
  // As Executable::run; results that require grad carry a node of the tape when grad mode is on.
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars);
  const Compiled& forward() const { return forward_; }

 private:
  friend struct CompiledNode;
  struct Backward {
    std::unique_ptr<Graph> graph;
    std::vector<Tensor> saved;  // FakeTensors of the traced graph, in the order of the graph's inputs
  };
  std::vector<Tensor> read_of_forward(std::unordered_set<const TensorImpl*> known, size_t first,
                                      const std::vector<Tensor>& grads) const;
  Backward trace_backward(const std::vector<Tensor>& gradients);
  std::vector<Tensor> differentiable(const CompiledNode& node, std::vector<Tensor> gradients) const;
  std::string input_name(size_t i) const;  // of run's inputs
  void log_joint(Graph& graph) const;
  const Compiled& backward_for(std::vector<Tensor> gradients);

  std::unique_ptr<Graph> traced_;
  CompileOptions options_;
  Compiled forward_;
  std::vector<Tensor> saved_;    // FakeTensors that are extra outputs of the forward
  std::vector<size_t> sources_;  // inputs that get a gradient
  std::vector<size_t> results_;  // outputs that take one
  std::mutex mutex_;
  std::map<std::string, Compiled> backwards_;
};

}  // namespace lutra
