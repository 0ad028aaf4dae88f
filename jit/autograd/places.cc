// Computes the places of a segment's inputs, outputs and saved values, before its first run. In: its graph and the
// values that backwards may read.
#include <algorithm>

#include "jit/autograd/compiled_autograd.h"
#include "ops/grad/saved_tensor.h"

namespace lutra {

// Adds a leaf that the graph makes. It is a source even if it no longer requires grad: its gradient reaches it all the
// same.
void CompiledAutograd::add_made_leaf(const Edge& edge) {
  const std::vector<Value>& outputs = traced_.graph->outputs;
  const Tensor leaf = leaf_of(edge.node.get());
  const auto at = std::find_if(outputs.begin(), outputs.end(),
                               [&](const Value& v) { return v.is<Tensor>() && v.tensor().same(leaf); });
  if (!leaf || at == outputs.end()) fail_internal("a leaf that the graph makes is no output");
  made_.push_back({size_t(at - outputs.begin()), leaf->requires_grad});
  traced_.sources.push_back(edge);
  traced_.inputs.push_back(leaf);
}

int CompiledAutograd::made_source(const Tensor& fake) const {
  for (size_t k = sources_.size(); k < traced_.inputs.size(); k++) {
    if (traced_.inputs[k].same(fake)) return int(k);
  }
  return -1;
}

void CompiledAutograd::add_unbacked(Graph& forward) const {
  for (const int32_t number : unbacked_) {
    Scalar size(forward.scalars[size_t(number)].hint);
    size.expr = forward.env->leaf(SymOp::kScalarInput, number, 0, 0, size.to_double());
    forward.outputs.emplace_back(size);
  }
}

// For an input that the graph writes, a backward reads the value after the write, with the history that the write gave
// it.
void CompiledAutograd::find_written() {
  for (const GraphInput& in : traced_.graph->inputs) {
    if (in.constant) continue;
    const auto at =
        std::find_if(traced_.results.begin(), traced_.results.end(), [&](const Tensor& y) { return y.same(in.value); });
    written_.push_back(at == traced_.results.end() ? -1 : int(at - traced_.results.begin()));
  }
}

void CompiledAutograd::find_read() {
  reads_ = traced_.reads;
  for (size_t i : traced_.partition.inputs) reads_[traced_.run_input(i)] = true;
  for (bool reads : reads_) {
    version_at_.push_back(reads ? int(read_.size()) : -1);
    if (reads) read_.push_back(version_at_.size() - 1);
  }
  const std::vector<Value>& outputs = traced_.graph->outputs;
  for (size_t i = 0; i < outputs.size(); i++) {
    if (!outputs[i].is<Tensor>()) continue;
    const Storage* const memory = outputs[i].tensor()->storage.get();
    const auto is_input = [&](const GraphInput& in) { return in.value->storage.get() == memory; };
    const auto& inputs = traced_.graph->inputs;
    const bool own = std::none_of(inputs.begin(), inputs.end(), is_input);
    if (own && traced_.reported.erase(memory)) reported_memory_.emplace_back(memory, i);
  }
}

// Finds the output that shares each saved value's memory. The graph makes a written tensor as a value of its own; the
// result is then a view of its base's new value.
void CompiledAutograd::find_memory() {
  const std::vector<Value>& outputs = traced_.graph->outputs;
  memory_of_.assign(traced_.kept(), -1);
  for (size_t k = 0; k < traced_.saved.size(); k++) {
    const int place = traced_.kept_place(k);
    for (size_t i = 0; place >= 0 && i < outputs.size(); i++) {
      if (!outputs[i].is<Tensor>() || outputs[i].tensor()->storage.get() != traced_.saved[k]->storage.get()) continue;
      int& memory = memory_of_[size_t(place)];
      if (memory < 0 || !outputs[i].tensor()->view) memory = int(i);
    }
  }
}

// Numbers the saved values as results. One that is a result already keeps that number, so its gradients add up in the
// order in which they come.
void CompiledAutograd::number_saved() {
  find_memory();
  std::unordered_map<const TensorImpl*, uint32_t> known;
  for (uint32_t k = 0; k < results_.size(); k++) known[traced_.results[k].get()] = k;
  for (const Tensor& t : traced_.saved) {
    const auto at = known.find(t.get());
    traced_.saved_result.push_back(at == known.end() ? uint32_t(traced_.results.size()) : at->second);
    traced_.results.push_back(t);
  }
  for (const Tensor& t : traced_.views) {
    traced_.views_result.push_back(uint32_t(traced_.results.size()));
    traced_.results.push_back(t);
  }
}

}  // namespace lutra
