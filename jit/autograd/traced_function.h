// A function that was recorded under the tape, for control flow that gradients go through. In: its graph, whose
// FakeTensors carry history. Out: its forward and, by request, its backward, without history.
//
// Invariants:
// 1. Its parameters are what a loop carries, then slices, then what is read. Its first results are carried on.
// 2. The forward gives the results, then what backwards read of a run: values, and copies of what was carried in. None
//    is given twice: what is carried on and stacked, too, is there for the step after it.
// 3. A backward's arguments are gradients of what is carried on and sums so far of what is read, where they change;
// then
//    what a loop slices; then what is read. Its results are gradients of what is carried in, of what is read, of
//    slices.
// 4. A parameter's gradient goes on from the sum so far, use by use, and every value lies in memory as eager's does: on
//    that the order of reductions depends. So the bits are those of eager's tape.
// 5. Without history, graphs still say which values require grad: of what is differentiated again, the others are none.
#pragma once
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "jit/autograd/trace_backward.h"
#include "jit/graph/function.h"

namespace lutra {

// The nodes of a graph that writes nothing, called on other arguments; those whose results require grad under the tape.
// recorder: is told where they come from.
std::vector<Tensor> replay(const Graph& graph, const std::vector<Tensor>& arguments, GraphRecorder* recorder = nullptr);
// Whether there is control flow in it whose results require grad: replayed, that has no history.
bool has_control(const Graph& graph);

// By memory of values of a graph: the op whose backward is the first to read it.
using FirstReaders = std::unordered_map<const Storage*, const char*>;

class TracedFunction {
 public:
  using Strides = std::optional<std::vector<int64_t>>;  // none: there is no such tensor
  struct Request {
    std::vector<Strides> gradients;  // by result of the forward
    std::vector<Strides> so_far;     // by parameter
    std::vector<bool> wanted;        // by parameter
    // Steps are all alike: what is carried in has a gradient, zeros where nothing comes, that lies as it did.
    bool filled = false;
    auto operator<=>(const Request&) const = default;
  };
  struct Argument {
    enum Kind : uint8_t { kGradient, kSoFar, kResult, kParameter, kBefore } kind;
    size_t index;  // result of the forward, or parameter; kBefore: a carried one, which the step before has stacked
  };
  // What reads an argument: a branch in a branch; none: the function itself.
  struct Taken {
    Argument flag;
    bool holds;
  };
  using Reader = std::vector<Taken>;
  static constexpr int kNone = -1, kUnchanged = -2;
  struct Backward {
    std::shared_ptr<const Graph> step;  // one run of it; null: it gives nothing
    FunctionRef loop;                   // the body of a scan; null where a step's results are no arguments of the next
    std::vector<Argument> arguments;
    std::vector<std::vector<Reader>> readers{};  // by argument
    size_t carried = 0, slices = 0;              // of the arguments
    std::vector<int> gives;  // by parameter: which result is its gradient, or kNone; kUnchanged: that of the result
  };

  TracedFunction(std::unique_ptr<Graph> traced, size_t carried, size_t slices);
  const FunctionRef& forward() const { return function_; }
  // By what is carried on: the result that stacks the same value, kNone: none.
  const std::vector<int>& stacked() const { return stacked_; }
  // Whether backwards read what was carried in and is not copied.
  bool reads_before() const { return !before_.empty(); }
  // Whether a backward reads anything of the run.
  bool saves() const;
  // Whether a backward is given the parameter itself.
  bool is_read(size_t parameter) const { return read_[parameter]; }
  // The forward without what backwards read.
  FunctionRef plain() const;
  size_t carried() const { return carried_; }
  size_t slices() const { return slices_; }
  size_t first_read() const { return carried_ + slices_; }
  size_t parameters() const { return forward_.graph->inputs.size(); }
  // Without what only backwards read.
  size_t results() const { return results_; }
  size_t all_results() const { return forward_.graph->outputs.size(); }
  bool takes_gradient(size_t parameter) const { return source_[parameter] >= 0; }
  bool gives_gradient(size_t result) const { return gradient_[result] >= 0; }
  // Parameters that gradients of these results give gradients to.
  std::vector<size_t> reach(const std::vector<size_t>& results);
  // The op whose backward is the first to read a parameter's memory, or that of what a result of the forward copies;
  // null: none does.
  const char* first_reader_of_parameter(size_t parameter) const;
  const char* first_reader_of_result(size_t result) const;
  // Raises what eager raises in its backward.
  const Backward& backward(const Request& request);

 private:
  struct Assembly;
  // A result of the forward that stacks a value: its dims in this order, so that it is contiguous.
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
  std::vector<int> source_;         // by parameter: its source, kNone: it takes no gradient
  std::vector<int> gradient_;       // by result of the forward: that of forward_, kNone: it gives no gradient
  std::vector<Stack> saved_;        // by saved value
  std::map<size_t, Stack> copied_;  // of what is carried in
  std::vector<size_t> before_;      // what is carried in and read, and is stacked
  std::vector<int> stacked_;
  std::vector<bool> read_;  // by parameter
  Graph layouts_;           // tensors that lie as gradients do
  std::map<Request, Backward> backwards_;
  mutable std::optional<FirstReaders> readers_;
};

}  // namespace lutra
