// The backward of a traced forward for one request: the tape's own engine runs on the FakeTensors, so that it is
// eager's, op for op and in eager's order.
//
// Invariants:
// 1. A backward is cut at the results that are looked at (points). A piece ends where the gradient of such a result is
//    complete; the next piece begins with what came back in its place.
// 2. A piece's graph has the traced inputs, then the values it takes; it shares the traced SymEnv, whose leaves name
// the
//    traced inputs. Values lie in places: the run's inputs, what it keeps, where the gradient is to be differentiated
//    again the other saved values, the gradients that came, what was there so far, then what pieces give.
// 3. Reads and spends are what eager's nodes read and would release, in eager's order. Where eager raises, it has
//    released the nodes before.
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
  std::vector<Tensor> gradients;  // by result, null where none came; dtype and strides matter
  std::vector<bool> wanted;       // by source
  std::vector<Tensor> so_far;     // by source: what later nodes gave, which is added to; null: nothing
  std::vector<uint32_t> points;   // results whose gradient is looked at, ascending
  std::vector<uint32_t> asked;    // those of them that are asked for
  std::vector<Tensor> taken;      // by piece: what came back and lies otherwise than what was given; null: lies alike
  bool create_graph = false;
  std::string key() const;
};

// A traced forward: what gradients go in at and what they come out at.
struct TracedForward {
  std::unique_ptr<Graph> graph;
  std::vector<Edge> sources;           // where gradients go to: of inputs, then of leaves that the forward makes
  std::vector<Tensor> inputs;          // those, by source
  std::vector<Tensor> results;         // outputs with history, the saved values, the views
  std::vector<Tensor> saved;           // values that backwards read; not inputs, not views
  std::vector<uint32_t> saved_result;  // by saved value: the result that takes its gradient
  std::vector<Tensor> views;           // of saved values and inputs: a gradient of the gradient comes by them
  std::vector<uint32_t> views_result;  // by view, as saved_result
  std::unordered_map<const GradNode*, uint32_t> spendable;  // nodes that a release spends, numbered
  std::vector<bool> met;                                    // by source: gradients meet there, or a sum goes on
  std::vector<bool> reads;  // by input of a run: a backward may read its elements, or asks whether they changed
  std::unordered_set<const Storage*> told;  // of whose versions errors tell

  std::shared_ptr<Graph> primitives{};  // the forward that runs, of whose values partition tells; null: all are saved
  std::vector<Tensor> as_primitives{};  // by saved value
  Partition partition{};
  size_t kept() const { return primitives ? partition.kept.size() : saved.size(); }
  // Of an input of the graph, among those of a run.
  size_t run_input(size_t i) const {
    const auto& in = graph->inputs;
    return size_t(std::count_if(in.begin(), in.begin() + ptrdiff_t(i), [](const auto& x) { return !x.constant; }));
  }
  // How many saved values a run does not keep.
  size_t repeated() const {
    return primitives ? size_t(std::count(partition.place.begin(), partition.place.end(), -1)) : 0;
  }
  // Of a saved value, among those that a run keeps; -1: it is computed again.
  int kept_place(size_t i) const { return primitives ? partition.place[i] : int(i); }
};

// The traced inputs and what a run keeps in, the saved values that it does not keep out.
std::unique_ptr<Graph> repeated_values(const TracedForward& forward);
// The traced inputs and the saved values in, the views out.
std::unique_ptr<Graph> view_values(const TracedForward& forward);

// What the gradient of a result goes on to.
struct ResultReach {
  std::vector<size_t> sources;
  std::vector<uint32_t> results;  // others
};
ResultReach reach_of(const TracedForward& forward, uint32_t result);

// A branch that a run takes or not.
struct TakenBranch {
  Tensor flag;                    // FakeTensor: the element that decides, or that of each step of a loop
  bool holds;                     // it is taken where one is not 0
  Tensor steps;                   // of a loop that may make fewer or more; null: of none
  int place = -1, repeated = -1;  // of flag; the latter among the saved values that a run does not keep
  int steps_place = -1;
};

// Elements of a value of the forward that a node of the tape reads.
struct BackwardRead {
  Tensor value;  // FakeTensor
  const char* op;
  size_t spent = 0;  // of the piece's spends: those up to the node that reads
  int place = -1;
  std::vector<TakenBranch> branches{};  // it is read where all of them are taken
  uint32_t writes = 0;                  // of the forward itself since it was saved: eager refuses to read it
};
struct WrittenRead {
  Tensor value;  // FakeTensor
  const char* op = nullptr;
  uint32_t writes = 0;
};

// While a branch's backward is recorded: eager reads of it what the branch that was taken reads.
struct BranchReads {
  BranchReads(const Tensor& flag, bool holds, const Tensor& steps = {});
  ~BranchReads();
  BranchReads(const BranchReads&) = delete;
  const Tensor flag, steps;
  const bool holds;
  BranchReads* const above;
};
// A branch reads what was written since. False where none is recorded: it is an error at once.
bool read_by_branch(const WrittenRead& written);

// What a piece gives, in all traces of one forward: a view of a value of the forward, or the result of a node, by its
// number behind the forward.
struct GivenValue {
  const TensorImpl* of_forward;
  size_t node;
  int result;
  bool operator==(const GivenValue&) const = default;
};

struct BackwardPiece {
  std::unique_ptr<Graph> graph;   // null where it gives nothing
  std::vector<int> takes, gives;  // places
  std::vector<GivenValue> given_values;
  std::vector<bool> uses;  // by input of a run: whether its elements are read
  std::vector<BackwardRead> reads;
  std::vector<uint32_t> spends;
  bool draws = false;          // it repeats random nodes of the forward
  int point = -1;              // the result that is looked at after it
  int given = -1, taken = -1;  // places of its gradient before and after
};

struct TracedBackward {
  std::vector<BackwardPiece> pieces;
  std::vector<int> gradients;  // by source: places, -1 where there is none
  std::vector<size_t> order;   // sources as eager reaches them
  int places = 0;
  int first = 0;            // place that no run begins with
  std::string error;        // raised after the last piece
  WrittenRead written;      // what it is about; no value: something else
  bool unfinished = false;  // by the node that it spends last
};

TracedBackward trace_backward(TracedForward& forward, const BackwardRequest& request);
// Finds what any backward may read (saved) and spend. What eager would refuse to differentiate is left out: it is
// refused when a backward asks for it.
void find_saved(TracedForward& forward);

}  // namespace lutra
