// A graph's signature as a function, and the check that it can be one.
#include "jit/graph/function.h"

#include "ops/core/tensor_type.h"

namespace lutra {
std::vector<TensorType> GraphFunction::parameters() const {
  std::vector<TensorType> types;
  for (const GraphInput& in : graph->inputs) types.push_back(type_of(in.value));
  return types;
}

std::vector<TensorType> GraphFunction::results() const {
  std::vector<TensorType> types;
  for (const Value& v : graph->outputs) types.push_back(type_of(v.tensor()));
  return types;
}

FunctionRef make_function(std::unique_ptr<const Graph> graph) {
  return std::make_shared<const GraphFunction>(std::move(graph));
}

std::string check_function(const Graph& g) {
  if (!g.scalars.empty()) return "a function takes no numbers";
  if (g.rng_calls > 0) return "a function draws no random numbers";
  for (const GraphInput& in : g.inputs) {
    if (in.constant) return "a function has no constants";
  }
  for (const auto& n : g.nodes) {
    if (n->inplace) return "a function writes nothing";
  }
  for (size_t i = 0; i < g.outputs.size(); i++) {
    if (!g.outputs[i].is<Tensor>() || !g.outputs[i].tensor()) return "a function gives tensors";
    const Storage* const memory = g.outputs[i].tensor()->storage.get();
    for (const GraphInput& in : g.inputs) {
      if (in.value->storage.get() == memory) return "a function's results have memory of their own";
    }
    for (size_t k = 0; k < i; k++) {
      if (g.outputs[k].tensor()->storage.get() == memory) return "a function's results have memory of their own";
    }
  }
  return "";
}

}  // namespace lutra
