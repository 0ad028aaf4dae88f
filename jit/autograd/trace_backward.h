// Traces the backward of a traced forward for one request. It runs the tape's own engine on the FakeTensors, so the
// backward equals eager's, op for op and in eager's order.
//
// Invariants:
// 1. A backward is cut at the results that have hooks or are asked for (points). A piece ends when the gradient of a
//    point is complete; the next piece begins with the gradient that the hooks returned.
// 2. A piece's graph takes the traced inputs, then other values. It shares the traced SymEnv, whose leaves refer to the
//    traced inputs. Values are numbered by places: the run's inputs, the kept values, the other saved values and the
//    views (if create_graph is set), the incoming gradients, the sums so far, then the values that pieces return.
// 3. reads and spends list the saved tensors that eager's nodes read and the nodes that it would release, in eager's
//    order. If eager raises midway, it has released the nodes before.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "jit/autograd/partition.h"
#include "jit/graph/graph.h"
#include "ops/grad/tape.h"

namespace lutra {

struct BackwardRequest {
  std::vector<Tensor> gradients;  // by result, null if none came; dtype and strides matter
  std::vector<bool> wanted;       // by source
  std::vector<Tensor> so_far;     // by source: the gradient that later nodes sent, to be added to; null: none
  std::vector<uint32_t> points;   // results whose gradient is passed to hooks or asked for, ascending
  std::vector<uint32_t> asked;    // the points that lt.grad asks for
  std::vector<Tensor> taken;      // by piece: the gradient that hooks returned, if its strides differ from the given
                                  // one's; null: same strides
  bool create_graph = false;
  bool exact = false;  // the strides of gradients are expressions of the graph's env, not those of one run
  std::string key() const;
};

// A traced forward: the results where gradients enter and the sources where they leave.
struct TracedForward {
  std::unique_ptr<Graph> graph;
  std::vector<Edge> sources;           // where gradients go: of inputs, then of leaves that the forward makes
  std::vector<Tensor> inputs;          // by source: the tensor that takes the gradient
  std::vector<Tensor> results;         // outputs with history, then the saved values, then the views
  std::vector<Tensor> saved;           // values that backwards read, except inputs and views
  std::vector<uint32_t> saved_result;  // by saved value: the result that takes its gradient
  std::vector<Tensor> views;           // of saved values and inputs; gradients of gradients pass through them
  std::vector<uint32_t> views_result;  // by view, as saved_result
  std::unordered_map<const GradNode*, uint32_t> spendable;  // nodes that a release frees, numbered
  std::vector<bool> accumulates;  // by source: several gradients are added there, or a sum so far is added to
  std::vector<bool> reads;        // by input of a run: a backward may read its elements, or checks whether they changed
  std::unordered_set<const Storage*> reported;  // storages whose versions appear in errors

  std::shared_ptr<Graph> primitives{};  // the graph that runs and that partition refers to; null: all values are saved
  std::vector<Tensor> as_primitives{};  // by saved value: its value in primitives
  Partition partition{};
  size_t kept() const { return primitives ? partition.kept.size() : saved.size(); }
  // Maps an input of the graph to its position among the inputs of a run.
  size_t run_input(size_t i) const {
    const auto& in = graph->inputs;
    return size_t(std::count_if(in.begin(), in.begin() + ptrdiff_t(i), [](const auto& x) { return !x.constant; }));
  }
  // Returns how many saved values a run does not keep.
  size_t repeated() const {
    return primitives ? size_t(std::count(partition.place.begin(), partition.place.end(), -1)) : 0;
  }
  // Returns the index of a saved value among those that a run keeps; -1 if it is recomputed.
  int kept_place(size_t i) const { return primitives ? partition.place[i] : int(i); }
};

// Returns a graph that takes the traced inputs and the kept values, and returns the saved values that are not kept.
std::unique_ptr<Graph> repeated_values(const TracedForward& forward);
// Returns a graph that takes the traced inputs and the saved values, and returns the views.
std::unique_ptr<Graph> view_values(const TracedForward& forward);

// The sources and results that the gradient of a result flows to.
struct ResultReach {
  std::vector<size_t> sources;
  std::vector<uint32_t> results;  // other results, on the way
};
ResultReach reach_of(const TracedForward& forward, uint32_t result);

// A branch that a run takes or not.
struct TakenBranch {
  Tensor flag;                    // FakeTensor: the element that decides; in a loop, one element for each step
  bool holds;                     // true: taken if an element is not 0; false: taken if one is 0
  Tensor steps;                   // the number of steps of a loop whose count varies; null otherwise
  int place = -1, repeated = -1;  // of flag; `repeated` is its index among the saved values that a run does not keep
  int steps_place = -1;
};

// A saved value of the forward whose elements a node of the tape reads.
struct BackwardRead {
  Tensor value;  // FakeTensor
  const char* op;
  size_t spent = 0;  // how many of the piece's spends precede the read, the reading node included
  int place = -1;
  std::vector<TakenBranch> branches{};  // the value is read only if all of them are taken
  uint32_t writes = 0;                  // writes by the forward itself since the value was saved: eager refuses to read
                                        // it
};
struct WrittenRead {
  Tensor value;  // FakeTensor
  const char* op = nullptr;
  uint32_t writes = 0;
};

// Exists while the backward of a branch is recorded. Reads in its scope happen in eager only if the branch was taken.
struct BranchReads {
  BranchReads(const Tensor& flag, bool holds, const Tensor& steps = {});
  ~BranchReads();
  BranchReads(const BranchReads&) = delete;
  const Tensor flag, steps;
  const bool holds;
  BranchReads* const above;
};
// Notes that a branch reads a value that was written since it was saved. Returns false if no branch is being recorded:
// then this is an error at once.
bool read_by_branch(const WrittenRead& written);

// Identifies a value that a piece returns, in all traces of one forward: a view of a value of the forward, or the
// result of a node, numbered from the end of the forward.
struct GivenValue {
  const TensorImpl* of_forward;
  size_t node;
  int result;
  bool operator==(const GivenValue&) const = default;
};

struct BackwardPiece {
  std::unique_ptr<Graph> graph;   // null if the piece returns nothing
  std::vector<int> takes, gives;  // places
  std::vector<GivenValue> given_values;
  std::vector<bool> uses;  // by input of a run: true if its elements are read
  std::vector<BackwardRead> reads;
  std::vector<uint32_t> spends;
  bool draws = false;          // true if it repeats random nodes of the forward
  int point = -1;              // the result whose gradient is passed to hooks after the piece
  int given = -1, taken = -1;  // places of that gradient before and after the hooks
};

struct TracedBackward {
  std::vector<BackwardPiece> pieces;
  std::vector<int> gradients;  // by source: places, -1 if there is none
  std::vector<size_t> order;   // sources in the order in which eager reaches them
  int places = 0;
  int first = 0;            // the first place that is empty when a run begins
  std::string error;        // raised at the end of the last piece
  WrittenRead written;      // the value that the error is about; a null value: another kind of error
  bool unfinished = false;  // the node that was spent last raised the error
};

TracedBackward trace_backward(TracedForward& forward, const BackwardRequest& request);
// Finds what any backward may read (saved) and spend. It leaves out what eager would refuse to differentiate: that is
// refused when a backward asks for it.
void find_saved(TracedForward& forward);

}  // namespace lutra
