// A function that was recorded under the tape, for control flow that gradients go through. In: its graph, whose
// FakeTensors carry history. Out: its forward and, for each request, its backward, as functions without history.
//
// Invariants:
// 1. The parameters are what a loop carries, then slices, then what is read. The first results are the next carried
//    values.
// 2. The forward returns the results, then what backwards read: values, and copies of carried parameters. It returns no
//    value twice: a value that is both carried on and stacked is available to the next step from the stack.
// 3. A backward's arguments are the gradients of the carried results and the sums so far for what is read, if these
//    change; then the slices of a loop; then what is read. Its results are the gradients of the carried parameters, of
//    what is read, and of the slices.
// 4. A parameter's gradient is added to the sum so far, use by use. Every value has eager's layout, because the order
//    of reductions depends on it. So the bits are those of eager's tape.
// 5. Graphs without history still mark which values require grad, for a second differentiation: only these have a
//    gradient.
#pragma once
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "jit/autograd/trace_backward.h"
#include "jit/graph/function.h"

namespace lutra {

// Calls the nodes of a graph that writes nothing on other arguments. Nodes whose results require grad run under the
// tape. recorder: gets the source location of each node.
std::vector<Tensor> replay(const Graph& graph, const std::vector<Tensor>& arguments, GraphRecorder* recorder = nullptr);
// Returns true if the graph contains control flow whose results require grad. replay gives it no history.
bool has_control(const Graph& graph);

// Maps the memory of a graph's values to the op whose backward is the first to read it.
using FirstReaders = std::unordered_map<const Storage*, const char*>;

class TracedFunction {
 public:
  // A stride as a key: unlike SymInts, these compare without a question.
  struct Stride {
    int64_t hint;
    int32_t expr;
    auto operator<=>(const Stride&) const = default;
  };
  using Strides = std::optional<std::vector<Stride>>;  // none: there is no such tensor
  struct Request {
    std::vector<Strides> gradients;  // by result of the forward
    std::vector<Strides> so_far;     // by parameter
    std::vector<bool> wanted;        // by parameter
    // All steps are alike: each carried parameter has a gradient, with the parameter's strides; it is zeros if none
    // comes.
    bool filled = false;
    auto operator<=>(const Request&) const = default;
  };
  struct Argument {
    enum Kind : uint8_t { kGradient, kSoFar, kResult, kParameter, kBefore } kind;
    size_t index;  // a result of the forward or a parameter; kBefore: a carried parameter, read from the previous
                   // step's stack
  };
  // The branches that must be taken for an argument to be read, from the outermost. Empty: the function itself reads
  // it.
  struct Taken {
    Argument flag;
    bool holds;
  };
  using Reader = std::vector<Taken>;
  static constexpr int kNone = -1, kUnchanged = -2;
  struct Backward {
    std::shared_ptr<const Graph> step;  // one step; null: it returns nothing
    FunctionRef loop;                   // the body of a scan; null if a step's results cannot be the arguments of the
                                        // next step
    std::vector<Argument> arguments;
    std::vector<std::vector<Reader>> readers{};  // by argument
    size_t carried = 0, slices = 0;              // among the arguments
    std::vector<int> gives;  // by parameter: the result that is its gradient, or kNone; kUnchanged: the gradient or sum
                             // that came for it
  };

  TracedFunction(std::unique_ptr<Graph> traced, size_t carried, size_t slices);
  const FunctionRef& forward() const { return function_; }
  const std::shared_ptr<SymEnv>& env() const { return forward_.graph->env; }
  // By carried result: the result that stacks the same value; kNone: none.
  const std::vector<int>& stacked() const { return stacked_; }
  // Returns true if backwards read a carried parameter from the previous step's stack.
  bool reads_before() const { return !before_.empty(); }
  // Returns true if a backward reads anything of the run.
  bool saves() const;
  // Returns true if a backward takes the parameter itself as an argument.
  bool is_read(size_t parameter) const { return read_[parameter]; }
  // The forward without the results that only backwards read.
  FunctionRef plain() const;
  size_t carried() const { return carried_; }
  size_t slices() const { return slices_; }
  size_t first_read() const { return carried_ + slices_; }
  size_t parameters() const { return forward_.graph->inputs.size(); }
  // The number of results without those that only backwards read.
  size_t results() const { return results_; }
  size_t all_results() const { return forward_.graph->outputs.size(); }
  bool takes_gradient(size_t parameter) const { return source_[parameter] >= 0; }
  bool gives_gradient(size_t result) const { return gradient_[result] >= 0; }
  // Returns the parameters that get gradients if these results have gradients.
  std::vector<size_t> reach(const std::vector<size_t>& results);
  // The op whose backward is the first to read the memory of a parameter, or of the value that a result of the forward
  // copies. Null if no op does.
  const char* first_reader_of_parameter(size_t parameter) const;
  const char* first_reader_of_result(size_t result) const;
  // Throws what eager throws in its backward.
  const Backward& backward(const Request& request);

 private:
  struct Assembly;
  // A result of the forward that stacks a value. Its dims are permuted to this order, so that it is contiguous.
  struct Stack {
    size_t result = 0;
    Sizes order;
  };

  void find_read();
  const char* first_reader(const Tensor& value) const;
  void find_stacked();
  Stack stack(const Tensor& value);
  void add_results();
  BackwardRequest request_of(const Request& request);
  Request all_of(const std::vector<size_t>& results) const;

  TracedForward forward_;
  FunctionRef function_;
  size_t carried_, slices_, results_;
  std::vector<int> source_;         // by parameter: its source; kNone: it takes no gradient
  std::vector<int> gradient_;       // by result of the forward: its index in forward_.results; kNone: it gives no
                                    // gradient
  std::vector<Stack> saved_;        // by saved value
  std::map<size_t, Stack> copied_;  // by carried parameter: its copy
  std::vector<size_t> before_;      // the carried parameters that are read from the previous step's stack
  std::vector<int> stacked_;
  std::vector<bool> read_;  // by parameter
  Graph layouts_;           // tensors with the layouts of gradients
  std::map<Request, Backward> backwards_;
  mutable std::optional<FirstReaders> readers_;
};

// Returns the strides of t, or of its slices along a dim.
TracedFunction::Strides strides_of(const Tensor& t, std::optional<size_t> sliced = {});

}  // namespace lutra
