// A graph as a function: the branches and loop bodies that another graph calls. It has that graph's SymEnv: its sizes
// and numbers are constants or the caller's symbols, and the caller checks its guards.
#pragma once
#include "jit/graph/graph.h"

namespace lutra {

struct GraphFunction final : Function {
  explicit GraphFunction(std::unique_ptr<const Graph> g) : graph(std::move(g)) {}
  std::vector<TensorType> parameters() const override;
  std::vector<TensorType> results() const override;
  // The function must have no symbols (see translated). jit/interpret.cc defines it.
  std::vector<Tensor> run(const std::vector<Tensor>& arguments) const override;

  const std::unique_ptr<const Graph> graph;
};

// Returns an empty graph with this env, to become a function.
inline std::unique_ptr<Graph> function_graph(std::shared_ptr<SymEnv> env) {
  auto graph = std::make_unique<Graph>();
  graph->env = std::move(env);
  return graph;
}
FunctionRef make_function(std::unique_ptr<const Graph> graph);
inline const Graph& graph_of(const FunctionRef& f) { return *static_cast<const GraphFunction&>(*f).graph; }

// Returns why a graph cannot be a function, "" if it can. A function's inputs are its parameters. It has no numbers,
// constants, random numbers or writes. Its results are tensors, each with memory of its own.
std::string check_function(const Graph& graph);

// Replaces the function arguments of all control nodes: f maps the graph of a function to the new one.
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
