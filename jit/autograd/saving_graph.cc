// Makes the graph that runs from a traced forward: it also returns what backwards read.
#include <algorithm>

#include "jit/autograd/compiled_autograd.h"
#include "jit/autograd/extract.h"
#include "jit/passes/passes.h"
#include "ops/defs/each_tensor.h"

namespace lutra {
namespace {

// Returns true if all values to copy are on the graph's device.
bool copies_here(const Graph& graph, const Partition& partition) {
  return std::all_of(partition.kept.begin(), partition.kept.end(), [&](const KeptValue& k) {
    return !k.copied || (graph.device && k.value->device() == *graph.device);
  });
}

// Makes a copy right after the value, before the value can be written.
Tensor copied_at_once(Graph& graph, const Tensor& value) {
  const auto maker =
      std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const auto& n) { return n.get() == value->node; });
  const auto at = maker == graph.nodes.end() ? 0 : maker - graph.nodes.begin() + 1;
  GraphRecorder recorder(graph);
  Args args = {value, std::string("preserve_format")};
  const Tensor copy = recorder.call(kCopyOp, args)[0];
  std::rotate(graph.nodes.begin() + at, graph.nodes.end() - 1, graph.nodes.end());
  return copy;
}

}  // namespace

// Returns the forward with the saved values as further outputs.
std::unique_ptr<Graph> CompiledAutograd::saving_graph() const {
  const Graph& g = *traced_.graph;
  auto forward = std::make_unique<Graph>();
  SymScope symbols(g.env.get());
  GradModeScope no_grad(false);
  Extractor make{*forward};
  make.inputs_of(g, g.inputs.size());
  for (const auto& n : g.nodes) make.node(*n);
  for (const Value& v : make.values(g.outputs)) forward->outputs.push_back(v);
  for (const Tensor& t : traced_.saved) forward->outputs.push_back(make.value(t));
  forward->rng_calls = g.rng_calls;
  return forward;
}

// Replaces the saved values among the forward's outputs by the values that the partition keeps. Changes nothing if
// these are the same.
void CompiledAutograd::cut(std::unique_ptr<Graph>& forward) {
  const size_t results = traced_.graph->outputs.size();
  std::unique_ptr<Graph> primitives = decompose(*functionalise(*forward));
  SymScope symbols(primitives->env.get());
  std::unordered_set<const Storage*> shared;
  for (const Value& v : traced_.graph->outputs) {
    each_tensor(v, [&](const Tensor& t) { shared.insert(t->storage.get()); });
  }
  std::vector<bool> pinned;
  for (const Tensor& t : traced_.saved) pinned.push_back(shared.count(t->storage.get()) > 0);
  const Partition made = partition(*primitives, results, pinned, {options_.memory_budget, options_.random_cut});
  traced_.partition = made;
  const bool same = std::none_of(made.place.begin(), made.place.end(), [](int at) { return at < 0; });
  if (same || options_.backend == "eager" || !copies_here(*primitives, made)) return;
  for (size_t i = 0; i < traced_.saved.size(); i++) {
    traced_.as_primitives.push_back(primitives->outputs[results + i].tensor());
  }
  primitives->outputs.resize(results);
  GradModeScope no_grad(false);
  for (const KeptValue& k : made.kept) {
    primitives->outputs.emplace_back(k.copied ? copied_at_once(*primitives, k.value) : k.value);
  }
  traced_.primitives = std::move(primitives);
  forward = copy_of(*traced_.primitives);
}

}  // namespace lutra
