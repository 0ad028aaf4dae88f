// A captured forward graph whose results are differentiated outside. The compiled forward and the compiled backward are
// one node of the tape.
//
// In: a traced graph whose FakeTensors carry tape history (grad mode was on while tracing). The tape's engine traces
// the backward (trace_backward.h), so it equals eager's, op for op.
//
// Invariants:
// 1. The forward returns the traced outputs, then the values that it keeps (partition.h), then the unbacked sizes. A
//    backward gets the saved values (those that it may read) from the kept ones. It takes the unbacked sizes as
//    ordinary numbers. It rebuilds views from their base, except views that are results themselves.
// 2. A backward is compiled at first use for one request: which results have a gradient, the strides of these gradients
//    (the order of reductions depends on them), which inputs want one, which results have hooks or are asked for.
// 3. A run allows what eager allows on its nodes: the versions of tensors that a backward reads are checked, and a
//    second backward through released nodes is refused.
// 4. Inputs that take gradients are different tensors.
// 5. A node holds no tensor that could have the node as its history, so there are no cycles. Of a tensor that no
//    backward reads it holds the sizes only.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "jit/autograd/eventual.h"
#include "jit/autograd/leaf_inputs.h"
#include "jit/autograd/segment.h"
#include "jit/autograd/trace_backward.h"
#include "jit/autograd/write_counts.h"

namespace lutra {

struct CompiledNode;

// Thrown before a run: two of its inputs are one tensor. Eager code adds up the gradient of that tensor in another
// order.
struct SharedSource : Error {
  SharedSource() : Error(ErrorKind::kData, "two inputs that take gradients are one tensor") {}
};

class CompiledAutograd final : public Segment, public std::enable_shared_from_this<CompiledAutograd> {
 public:
  // sources: for each input of the graph, the edge that its gradient goes to; without a node if the input takes no
  // gradient. Then the same for the leaves that the graph makes and returns.
  static std::shared_ptr<CompiledAutograd> build(std::unique_ptr<Graph> traced, const std::vector<Edge>& sources,
                                                 const CompileOptions& options);
  void ready() override;
  const std::string& text() const override { return text_; }
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                         const std::vector<Donor>& donors, std::vector<InputView>* views) override;
  const Compiled& forward() const override { return forward_; }
  KeptBytes kept_bytes() const override;
  bool wait(std::chrono::milliseconds most) override;

 private:
  friend struct CompiledNode;
  struct Backward {
    TracedBackward traced;
    std::vector<std::unique_ptr<EventuallyCompiled>> pieces;  // null: nothing to run, or interpreted under the tape
  };
  void log_joint(Graph& graph) const;
  std::shared_ptr<const Backward> backward_for(const BackwardRequest& request);
  // Returns the traced backward without compiling it; it is interpreted.
  std::shared_ptr<const Backward> traced_backward(const BackwardRequest& request);
  // Returns true if the backward depends on tensors of fixed sizes only.
  bool is_plain();
  const ResultReach& reach(uint32_t result);
  std::unique_ptr<Graph> saving_graph() const;
  void cut(std::unique_ptr<Graph>& forward);
  void add_made_leaf(const Edge& edge);
  int made_source(const Tensor& fake) const;  // -1: the graph does not make it as a leaf
  void find_read();
  void find_written();
  void find_memory();
  void number_saved();
  void add_unbacked(Graph& forward) const;
  EventuallyCompiled& repeated();
  const Graph* views();

  TracedForward traced_;
  CompileOptions options_;
  std::string text_;
  Compiled forward_;
  std::vector<size_t> sources_;  // by source: the index of the run's input
  // Outputs that are leaves and take a gradient. Their sources follow the inputs' sources.
  struct MadeLeaf {
    size_t output;
    bool requires_grad;  // its requires_grad after the run
  };
  std::vector<MadeLeaf> made_;
  std::vector<size_t> results_;     // outputs that take a gradient
  std::vector<int> input_history_;  // by input of the run: its source, -1 if it takes no gradient
  std::vector<int> written_;        // by input of the run: the result that its memory holds after the run; -1: not
                                    // written
  size_t inputs_ = 0;               // number of a run's inputs
  std::vector<bool> reads_;         // by input of the run: true if a backward may read its elements
  std::vector<size_t> read_;        // the inputs with reads_[i]
  std::vector<int> version_at_;     // by input of the run: its position in read_; -1: none
  std::vector<int> memory_of_;      // by saved value: the output that shares its memory in eager code; -1: none
  std::vector<int32_t> unbacked_;   // scalars of the graph that a run determines: unbacked sizes
  // Outputs whose versions appear in errors, each with the traced storage that it uses.
  std::vector<std::pair<const Storage*, size_t>> reported_memory_;
  size_t spendable_ = 0;
  size_t guarded_ = 0;  // the number of size guards that the segment itself checks before a run
  std::optional<bool> plain_;
  std::unique_ptr<EventuallyCompiled> repeated_;  // recomputes the saved values that runs do not keep
  std::unique_ptr<Graph> views_;                  // makes the views that gradients of gradients pass through
  WriteCounts writes_;
  KnownLeafInputs leaves_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Backward>> backwards_;
  size_t with_gaps_ = 0;  // how many of backwards_ are for gradients with gaps between their elements
  std::map<uint32_t, ResultReach> reaches_;
};

}  // namespace lutra
