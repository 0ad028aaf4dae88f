// A function that was recorded under the tape, for control flow that gradients go through. In: its graph, whose
// FakeTensors carry history. Out: its forward and, by request, its backward, as functions without history.
//
// Invariants:
// 1. Its parameters are what a loop carries, then slices, then what is read. Its first results are carried on.
// 2. The forward gives the results, then what backwards read of a run: values, and copies of what was carried in. None
//    is given twice: what is carried on and stacked, too, is there for the step after it.
// 3. A backward's arguments are gradients of what is carried on and sums so far of what is read; then what a loop
//    slices; then what is read. Its results are gradients of what is carried in, of what is read, of slices. All of
//    them are contiguous and have memory of their own. So one run's results are the next one's first arguments.
// 4. A parameter's gradient goes on from the sum so far, use by use: the bits are those of eager's tape.
#pragma once
#include <map>
#include <vector>

#include "jit/autograd/trace_backward.h"
#include "jit/graph/function.h"

namespace lutra {

// The nodes of a graph that writes nothing, called on other arguments. recorder: is told where they come from.
std::vector<Tensor> replay(const Graph& graph, const std::vector<Tensor>& arguments, GraphRecorder* recorder = nullptr);

class TracedFunction {
 public:
  struct Request {
    std::vector<bool> gradients;       // by result of the forward: whether one comes
    std::vector<bool> wanted, so_far;  // by parameter
    auto operator<=>(const Request&) const = default;
  };
  struct Argument {
    enum Kind : uint8_t { kGradient, kSoFar, kResult, kParameter, kBefore } kind;
    size_t index;  // result of the forward, or parameter; kBefore: a carried one, which the step before has stacked
  };
  struct Backward {
    FunctionRef function;  // null: it gives nothing
    std::vector<Argument> arguments;
    size_t carried = 0, slices = 0;  // of the arguments
    std::vector<int> gives;          // by parameter: which result is its gradient, -1: none
  };

  TracedFunction(std::unique_ptr<Graph> traced, size_t carried, size_t slices);
  const FunctionRef& forward() const { return function_; }
  // The forward without what backwards read.
  FunctionRef plain() const;
  size_t carried() const { return carried_; }
  size_t slices() const { return slices_; }
  size_t parameters() const { return forward_.graph->inputs.size(); }
  // By what is carried on: the result that stacks the same value, -1: none.
  const std::vector<int>& stacked() const { return stacked_; }
  // Whether backwards read what was carried in and is not copied.
  bool reads_before() const { return !before_.empty(); }
  // Whether a backward is given the parameter itself.
  bool is_read(size_t parameter) const { return read_[parameter]; }
  // Without what only backwards read.
  size_t results() const { return results_; }
  size_t all_results() const { return forward_.graph->outputs.size(); }
  bool takes_gradient(size_t parameter) const { return source_[parameter] >= 0; }
  bool gives_gradient(size_t result) const { return gradient_[result] >= 0; }
  // Parameters that a result's gradient goes on to.
  std::vector<size_t> reach(size_t result) const;
  // Raises what eager raises in its backward.
  const Backward& backward(const Request& request);

 private:
  struct Assembly;
  void find_read();
  void find_stacked();
  void add_results();
  BackwardRequest request_of(const Request& request) const;

  TracedForward forward_;
  FunctionRef function_;
  size_t carried_, slices_, results_;
  std::vector<int> source_;           // by parameter: its source, -1: it takes no gradient
  std::vector<int> gradient_;         // by result of the forward: that of forward_, -1: it gives no gradient
  std::vector<size_t> saved_at_;      // by saved value: the forward's result
  std::map<size_t, size_t> copy_at_;  // of what is carried in: the forward's result
  std::vector<size_t> before_;        // what is carried in and read, and is stacked
  std::vector<int> stacked_;
  std::vector<bool> read_;  // by parameter
  Graph layouts_;           // contiguous tensors like the results and the sources
  std::vector<Tensor> like_result_, like_source_;
  std::map<Request, Backward> backwards_;
};

}  // namespace lutra
