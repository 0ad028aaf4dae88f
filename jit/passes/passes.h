// Graph passes: pure functions from graph to graph, one file and one golden-text test each; jit/compile.cc runs them.
#pragma once
#include <functional>
#include <unordered_map>

#include "jit/graph/graph.h"

namespace lutra {

using GraphPtr = std::unique_ptr<Graph>;

#define PASS(name, ...) GraphPtr name(const Graph& g);
#include "jit/passes/passes.def"

struct PassRow {
  const char* name;
  GraphPtr (*run)(const Graph&);
};
extern const PassRow kPasses[];  // in the order they run
extern const size_t kPassCount;

// Returns whether the node computes new values element by element.
inline bool is_pointwise(const Node& n) {
  return info(n.op).has(kPointwise) && !info(n.op).has(kMutates) && !n.inplace;
}

// A graph while a pass rebuilds it. The new graph shares the old one's SymEnv and has the same inputs, in order.
class Rebuilder {
 public:
  explicit Rebuilder(const Graph& g);
  const Graph& from;
  GraphPtr graph;
  GraphRecorder recorder;

  Tensor map(const Tensor& t) const;        // maps an old value to its new value
  Tensor map_input(const Tensor& t) const;  // the new input, even if t maps to another value now
  Value map(const Value& v) const;
  Args map(const Args& args) const;
  void set(const Tensor& old, const Tensor& now) { values_[old.get()] = now; }
  void set(const Node& n, const Results& results);
  void at(const Node& n);                  // gives the following nodes n's source line
  Results copy(const Node& n, Args args);  // copies n with new args; keeps its call index
  GraphPtr finish();                       // maps the outputs

 private:
  SymScope symbols_;
  GradModeScope no_grad_;
  std::unordered_map<const TensorImpl*, Tensor> values_;
};

// Walks g in order. rewrite gets mapped args. It fills results and returns true, or returns false to copy the node as
// it is.
using Rewrite = std::function<bool(Rebuilder& b, const Node& node, Args& args, Results& results)>;
GraphPtr rebuild(const Graph& g, const Rewrite& rewrite);
GraphPtr copy_of(const Graph& g);

}  // namespace lutra
