// Extracts nodes of a traced graph into a graph of their own.
#pragma once
#include <string>
#include <unordered_map>

#include "jit/graph/graph.h"

namespace lutra {

// Drops what tracing a backward added to the traced graph.
struct Rollback {
  Graph& graph;
  size_t nodes = graph.nodes.size(), inputs = graph.inputs.size();
  ~Rollback();
};

// Copies values and nodes into `out`. It makes values that are not mapped again on demand: views, and values that a
// partition does not keep.
struct Extractor {
  Graph& out;
  bool keep_grad = false;  // results keep requires_grad, because the graph is interpreted under the tape
  std::unordered_map<const TensorImpl*, Tensor> again{};  // traced values, mapped to values of the graph of primitives
  GraphRecorder recorder{out};
  std::unordered_map<const TensorImpl*, Tensor> map{};

  static bool is_view(const Tensor& t) { return info(t->node->op).has(kView) && !t->node->inplace; }
  Tensor input(const std::string& name, const Tensor& like);
  // Adds the first `count` inputs of the traced graph.
  void inputs_of(const Graph& traced, size_t count);
  Tensor value(const Tensor& t);
  Args values(Args args);
  // Recomputes a value of the graph of primitives from its nodes.
  Tensor repeated(const Tensor& t);
  void node(const Node& n);
  bool draws = false;  // true if random nodes are repeated
};

// Returns a tensor like a traced value, but with the sizes of a run, for messages. inputs, scalars: those of the run.
Tensor sized_by_run(const Graph& traced, const Tensor& t, const std::vector<Tensor>& inputs,
                    const std::vector<double>& scalars);

}  // namespace lutra
