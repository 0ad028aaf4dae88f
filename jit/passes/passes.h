// Graph passes: pure functions from graph to graph, one file and one golden-text test each; jit/compile.cc runs them.
#pragma once
#include <functional>
#include <unordered_map>

#include "jit/graph/graph.h"

namespace lutra {

using GraphPtr = std::unique_ptr<Graph>;

GraphPtr functionalise(const Graph& g);  // in-place ops and writes through views become values; copy_ into inputs last
GraphPtr decompose(const Graph& g);      // composites become primitives
GraphPtr cse(const Graph& g);            // one node for equal pure nodes
GraphPtr dce(const Graph& g);            // drops what no output, write or check needs
GraphPtr sink_views(const Graph& g);     // ops between a view and the view back are computed in the shape before
GraphPtr recompute(const Graph& g);      // cheap values used again behind a library's kernel are computed again there
GraphPtr channels_last(const Graph& g);  // images between convolutions, pools and pointwise ops: channels innermost
GraphPtr pad_rows(const Graph& g);       // operands and results of a GPU's large products: rows of whole 16 bytes

struct PassRow {
  const char* name;
  GraphPtr (*run)(const Graph&);
};
extern const PassRow kPasses[];  // in the order they run
extern const size_t kPassCount;

// A graph being rebuilt: the new graph shares the SymEnv of the old one and has the same inputs, in order.
class Rebuilder {
 public:
  explicit Rebuilder(const Graph& g);
  const Graph& from;
  GraphPtr graph;
  GraphRecorder recorder;

  Tensor map(const Tensor& t) const;        // old value to new value
  Tensor map_input(const Tensor& t) const;  // the new input, whatever t maps to now
  Value map(const Value& v) const;
  Args map(const Args& args) const;
  void set(const Tensor& old, const Tensor& now) { values_[old.get()] = now; }
  void set(const Node& n, const Results& results);
  void at(const Node& n);                  // following nodes carry n's source line
  Results copy(const Node& n, Args args);  // n itself, with its call index, on new args
  GraphPtr finish();                       // maps the outputs

 private:
  SymScope symbols_;
  GradModeScope no_grad_;
  std::unordered_map<const TensorImpl*, Tensor> values_;
};

// Walks g in order; rewrite fills results and returns true, or returns false to copy the node as it is. args are
// mapped.
using Rewrite = std::function<bool(Rebuilder& b, const Node& node, Args& args, Results& results)>;
GraphPtr rebuild(const Graph& g, const Rewrite& rewrite);

}  // namespace lutra
