// A graph as a function: what branches and loops of another graph run. It has an env of its own, without symbols.
#pragma once
#include "jit/graph/graph.h"

namespace lutra {

struct GraphFunction final : Function {
  explicit GraphFunction(std::unique_ptr<const Graph> g) : graph(std::move(g)) {}
  std::vector<TensorType> parameters() const override;
  std::vector<TensorType> results() const override;
  std::vector<Tensor> run(const std::vector<Tensor>& arguments) const override;  // jit/interpret.cc

  const std::unique_ptr<const Graph> graph;
};

FunctionRef make_function(std::unique_ptr<const Graph> graph);
inline const Graph& graph_of(const FunctionRef& f) { return *static_cast<const GraphFunction&>(*f).graph; }

// What keeps a graph from being a function, "" where nothing does. A function's inputs are its parameters; it has no
// numbers, constants, symbols or random numbers, and its results are tensors.
std::string check_function(const Graph& graph);

// f(graph of a function) gives another graph for it, in each node that runs functions.
template <class F>
void map_functions(Graph& graph, const F& f) {
  for (const auto& n : graph.nodes) {
    if (!info(n->op).has(kControl)) continue;
    for (Value& v : n->args) {
      if (v.is<FunctionRef>()) v = make_function(f(graph_of(v.as<FunctionRef>())));
    }
  }
}

}  // namespace lutra
