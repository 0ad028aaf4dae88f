// A captured forward graph whose results are differentiated outside: compiled forward and compiled backward as one node
// of the tape.
//
// In: a traced graph whose FakeTensors carry tape history (grad mode was on while tracing). Its backward is traced by
// the tape itself (trace_backward.h), so it is eager's, op for op. Invariants:
// 1. The forward has the traced outputs, then what it keeps (partition.h), from which a backward has the values that it
//    may read (saved), then the sizes that elements decided, which are ordinary numbers of its backwards. Views are
//    made again from their base, but for those that are results themselves.
// 2. A backward is compiled at first use for a request: which results have a gradient, these gradients' strides (on
// which
//    the order of reductions depends), which inputs want one, which results are looked at.
// 3. What may be done with a run is what eager may do with its nodes: versions are checked of what a backward reads,
// and
//    what a backward released is refused a second time.
// 4. Inputs that take gradients are different tensors.
// 5. A node holds no tensor that could have it as its history: no cycles. Of what no backward reads it holds sizes
// only.
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

// Of a run, before it begins: two of its inputs are one tensor, whose gradient eager code adds up in another order.
struct SharedSource : Error {
  SharedSource() : Error(ErrorKind::kData, "two inputs that take gradients are one tensor") {}
};

class CompiledAutograd final : public Segment, public std::enable_shared_from_this<CompiledAutograd> {
 public:
  // sources: by input of the graph, where its gradient goes to; no node for those that take none. Behind them, of
  // leaves that the graph makes, which are outputs.
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
  // Not compiled: to be interpreted.
  std::shared_ptr<const Backward> traced_backward(const BackwardRequest& request);
  // Its backward depends on tensors of fixed sizes only.
  bool is_plain();
  const ResultReach& reach(uint32_t result);
  std::unique_ptr<Graph> saving_graph() const;
  void cut(std::unique_ptr<Graph>& forward);
  void add_made_leaf(const Edge& edge);
  int made_source(const Tensor& fake) const;  // -1: it is no leaf that the graph makes
  void find_read();
  void find_written();
  void find_memory();
  void number_saved();
  void add_told(Graph& forward) const;
  EventuallyCompiled& repeated();
  const Graph* views();

  TracedForward traced_;
  CompileOptions options_;
  std::string text_;
  Compiled forward_;
  std::vector<size_t> sources_;  // by source: which of the run's inputs
  // Outputs that are leaves which take a gradient: the sources behind the inputs'.
  struct MadeLeaf {
    size_t output;
    bool requires_grad;  // behind the run
  };
  std::vector<MadeLeaf> made_;
  std::vector<size_t> results_;     // outputs that take a gradient
  std::vector<int> input_history_;  // by input of the run: its source, -1 where it takes no gradient
  std::vector<int> written_;        // by input of the run: the result that its memory is behind the run; -1: as it came
  size_t inputs_ = 0;               // of a run
  std::vector<bool> reads_;         // by input of a run: whether backwards may read its elements
  std::vector<size_t> read_;        // those inputs
  std::vector<int> version_at_;     // by input of a run: its number among those; -1: none
  std::vector<int> memory_of_;      // by saved value: the output that has its memory in eager code; -1: none
  std::vector<int32_t> told_;       // numbers of the graph that a run tells: sizes that elements decide
  // Outputs of whose versions errors tell, by what they lie in.
  std::vector<std::pair<const Storage*, size_t>> told_memory_;
  size_t spendable_ = 0;
  size_t guarded_ = 0;  // answers about sizes, which the segment's guards check
  std::optional<bool> plain_;
  std::unique_ptr<EventuallyCompiled> repeated_;  // makes the saved values that runs do not keep
  std::unique_ptr<Graph> views_;                  // makes the views that second gradients come by
  WriteCounts writes_;
  KnownLeafInputs leaves_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Backward>> backwards_;
  size_t with_gaps_ = 0;  // of them: those of gradients with gaps between their elements
  std::map<uint32_t, ResultReach> reaches_;
};

}  // namespace lutra
