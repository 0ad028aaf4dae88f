// Graphs of their own made of nodes of a traced graph.
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

// Values that are not mapped are made again on demand: views, and what a partition left out.
struct Extractor {
  Graph& out;
  bool keep_grad = false;  // results know which of them had requires_grad: the graph is interpreted under the tape
  std::unordered_map<const TensorImpl*, Tensor> again{};  // traced values as those of the graph of primitives
  GraphRecorder recorder{out};
  std::unordered_map<const TensorImpl*, Tensor> map{};

  static bool is_view(const Tensor& t) { return info(t->node->op).has(kView) && !t->node->inplace; }
  Tensor input(const std::string& name, const Tensor& like);
  // The first `count` inputs of the traced graph.
  void inputs_of(const Graph& traced, size_t count);
  Tensor value(const Tensor& t);
  Args values(Args args);
  // A value of the graph of primitives, by its nodes.
  Tensor repeated(const Tensor& t);
  void node(const Node& n);
  bool draws = false;  // random nodes are among those that are repeated
};

// A traced value with the sizes of a run, whose inputs and numbers are these; for messages.
Tensor sized_by_run(const Graph& traced, const Tensor& t, const std::vector<Tensor>& inputs,
                    const std::vector<double>& scalars);

}  // namespace lutra
