// The autograd facts of a segment's outputs.
#include "vm/capture/segment/outputs.h"

#include <algorithm>
#include <unordered_set>

#include "ops/grad/saved_tensor.h"
#include "ops/grad/tape.h"
#include "vm/capture/trace/function_node.h"
#include "vm/capture/trace/trace.h"

namespace lutra {
namespace {

bool is_symbolic(const Value& v) {
  if (v.is<Scalar>()) return v.as<Scalar>().expr != 0;
  if (!v.is<Sizes>()) return false;
  const Sizes& sizes = v.as<Sizes>();
  return std::any_of(sizes.begin(), sizes.end(), [](const SymInt& s) { return s.expr != 0; });
}

bool is_symbolic(const std::vector<ViewCall>& calls) {
  return std::any_of(calls.begin(), calls.end(), [](const ViewCall& c) {
    return std::any_of(c.args.begin(), c.args.end(), [](const Value& v) { return is_symbolic(v); });
  });
}

std::vector<ViewCall> calls_of(const Ref<ViewHistory>& history) {
  std::vector<ViewCall> calls;
  for (const auto* s = static_cast<const ViewStep*>(history.get()); s; s = step_before(*s)) {
    calls.push_back({s->op, s->args});
  }
  std::reverse(calls.begin(), calls.end());
  return calls;
}

// A run of the engine only for its errors. The destructor removes the nodes that it added to the graph.
struct Trial : TapeWatch {
  Graph& graph;
  const bool tolerant;
  size_t nodes = graph.nodes.size(), spends = 0;  // spends: tape nodes that raised no error and would be released
  TapeWatchScope watch{this};
  Trial(Graph& graph, bool tolerant) : graph(graph), tolerant(tolerant) {}
  ~Trial() override { graph.nodes.resize(nodes); }
  void spent(const GradNode* node) override { last = node, spends++; }
  void read(const Tensor&, const char*) override {}
  void arrived(const GradNode*) override {}
  void added(const GradNode*) override {}
  bool skip(const GradNode* node, const Error& e) override {
    spends -= node == last;
    return tolerant && is_users(e);
  }

 private:
  const GradNode* last = nullptr;
};

std::vector<Tensor> with_history(const Graph& graph) {
  std::vector<Tensor> all;
  for (const Value& v : graph.outputs) {
    if (!v.is<Tensor>() || !v.tensor()) continue;
    if (v.tensor()->requires_grad && !is_leaf(v.tensor())) all.push_back(v.tensor());
  }
  return all;
}

// Returns whether the history of y contains other outputs. Their hooks may run, or their gradients be requested, before
// a backward of y raises its error.
bool leads_to_output(const Graph& graph, const Tensor& y) {
  const Edge own = gradient_edge(y);
  const std::unordered_set<const GradNode*> history = nodes_behind(y);
  for (const Tensor& z : with_history(graph)) {
    const Edge edge = gradient_edge(z);
    if (!(edge.node == own.node && edge.result == own.result) && history.count(edge.node.get())) return true;
  }
  return false;
}

// Returns the inputs, and the leaves made here that are outputs, to which the history of y leads.
std::vector<Recipe> reached_by(const Trace& t, const Tensor& y, const std::vector<Edge>& sources) {
  const std::unordered_set<const GradNode*> history = nodes_behind(y);
  std::vector<Recipe> reached;
  for (size_t i = 0; i < sources.size(); i++) {
    if (sources[i].node && history.count(sources[i].node.get())) reached.push_back({Recipe::kTensorIn, int(i)});
  }
  for (size_t i = 0; i < t.graph->outputs.size(); i++) {
    const Tensor z = t.graph->outputs[i].tensor();
    const bool made = is_leaf(z) && z->autograd && !t.input_of_fake.count(z.get());
    if (made && history.count(z->autograd->accumulator)) reached.push_back({Recipe::kTensorOut, int(i)});
  }
  return reached;
}

struct Refusal {
  std::string why;  // empty if there is no refusal
  Tensor read{};    // null, or a tensor that was written after it was saved
  std::string op{};
  int writes = 0;
};

std::vector<Edge> with_made_leaves(const Trace& t, std::vector<Edge> sources) {
  for (const auto& n : t.graph->nodes) {
    for (const Tensor& r : n->results) {
      if (r && t.is_new_leaf(r)) sources.push_back(gradient_edge(r));
    }
  }
  return sources;
}

// Returns why y cannot be differentiated (sources: with_made_leaves). Empty if it can, or if the attempt would release
// something before the error.
Refusal refusal(Trace& t, const Tensor& y, const std::vector<Edge>& sources) {
  const Trial trial(*t.graph, false);
  try {
    grad_at({y}, sources, {y}, std::vector<Tensor>(sources.size()), false);
  } catch (const Error& e) {
    if (!is_users(e)) throw;
    if (trial.spends) return {};
    const auto* modified = dynamic_cast<const ModifiedError*>(&e);
    if (!modified || !modified->value->is_fake()) return {e.what()};
    return {e.what(), modified->value, modified->op, int(modified->writes)};
  }
  return {};
}

// Returns the recipe of a tensor that is visible outside: an input (whose last value may be an output, too) or an
// output.
Recipe seen(const Trace& t, const Tensor& fake) {
  const auto in = t.input_of_fake.find(fake.get());
  if (in != t.input_of_fake.end()) return {Recipe::kTensorIn, in->second};
  const std::vector<Value>& outputs = t.graph->outputs;
  for (size_t k = 0; k < outputs.size(); k++) {
    if (outputs[k].tensor().same(fake)) return {Recipe::kTensorOut, int(k)};
  }
  return {};
}

// Makes the description of a refused output. A tensor that was written becomes an output, since its memory and sizes
// are those of the run.
RefusedOutput refused(Trace& t, size_t output, const std::vector<Edge>& sources) {
  const Tensor y = t.graph->outputs[output].tensor();
  const Refusal r = refusal(t, y, with_made_leaves(t, sources));
  RefusedOutput made{int(output), r.why, reached_by(t, y, sources)};
  if (!r.read) return made;
  made.read = seen(t, r.read), made.op = r.op, made.writes = r.writes;
  if (made.read.kind != Recipe::kNil) return made;
  made.read = {Recipe::kTensorOut, int(t.graph->outputs.size())};
  t.graph->outputs.emplace_back(r.read);
  return made;
}

// Returns the edge of a leaf that requires grad, or required it when it was used.
Edge leaf_edge(const Tensor& t) {
  if (t->requires_grad) return gradient_edge(t);
  return {Ref<GradNode>(t->autograd ? t->autograd->accumulator : nullptr), 0};
}

}  // namespace

std::vector<Edge> input_edges(const Trace& t) {
  std::vector<Edge> edges;
  for (const auto& in : t.inputs) {
    Edge edge = in.edge;
    if (!edge.node && in.source && is_leaf(in.fake)) edge = leaf_edge(in.fake);
    edges.push_back(edge);
  }
  return edges;
}

bool is_differentiable(Trace& t, const std::vector<Edge>& sources) {
  const std::vector<Tensor> outputs = with_history(*t.graph);
  if (outputs.empty() || !t.backward_called) return !outputs.empty();
  const std::vector<Edge> all = with_made_leaves(t, sources);
  {
    const Trial trial(*t.graph, true);
    for (const Tensor& g : grad_at(outputs, all, outputs, std::vector<Tensor>(all.size()), false)) {
      if (g) return true;
    }
  }
  for (const Tensor& y : outputs) {
    if (refusal(t, y, all).why.empty() || leads_to_output(*t.graph, y)) return true;
  }
  return false;
}

bool sort_outputs(Trace& t, Entry& e, const std::vector<Edge>& sources) {
  const bool differentiable = is_differentiable(t, sources);
  for (size_t i = 0; i < t.graph->outputs.size(); i++) {  // refused() may add outputs
    const Tensor y = t.graph->outputs[i].tensor();
    if (!y->requires_grad) continue;
    if (is_leaf(y)) {
      e.effects.leaf_outputs.push_back(int(i));
    } else if (!differentiable) {
      e.effects.refused_outputs.push_back(refused(t, i, sources));
    }
  }
  // A run makes their nodes in this order. Backward reaches the newest node first, and runs its hooks before it raises
  // the error.
  const auto made = [&](const RefusedOutput& r) {
    return gradient_edge(t.graph->outputs[size_t(r.output)].tensor()).node->seq;
  };
  std::stable_sort(e.effects.refused_outputs.begin(), e.effects.refused_outputs.end(),
                   [&](const RefusedOutput& a, const RefusedOutput& b) { return made(a) < made(b); });
  return differentiable;
}

std::vector<Edge> keep_leaves(Trace& t, Entry& e) {
  std::unordered_set<const TensorImpl*> known, outputs;
  std::vector<Edge> edges;
  for (const Value& v : t.graph->outputs) outputs.insert(v.tensor().get());
  for (const Tensor& y : with_history(*t.graph)) {
    for (const GradNode* node : nodes_behind(y)) {
      const Tensor leaf = leaf_of(node);
      const bool made = leaf && leaf->is_fake() && !t.input_of_fake.count(leaf.get());
      if (!made || !known.insert(leaf.get()).second) continue;
      edges.push_back({Ref<GradNode>(leaf->autograd->accumulator), 0});
      if (!outputs.insert(leaf.get()).second) continue;
      if (leaf->requires_grad) e.effects.leaf_outputs.push_back(int(t.graph->outputs.size()));
      t.graph->outputs.emplace_back(leaf);
    }
  }
  return edges;
}

// Finds outputs that are views. Bases come before their views, since a complex view is the base of its own views.
void find_view_outputs(Trace& t, Entry& e) {
  const std::vector<Value>& outputs = t.graph->outputs;
  for (size_t i = 0; i < outputs.size(); i++) {
    const Tensor y = outputs[i].tensor();
    if (!y->base || t.input_of_fake.count(y.get())) continue;
    ViewOutput v{int(i), seen(t, y->base), bool(y->view), false, false, calls_of(y->view)};
    v.symbolic = is_symbolic(v.calls);
    if (v.symbolic) v.calls.clear();
    v.complex = v.base.kind == Recipe::kNil && y->base->base;
    if (v.complex) v.base = seen(t, y->base->base);
    if (v.base.kind != Recipe::kNil || !v.recorded || v.complex) {
      e.effects.view_outputs.push_back(v);
    } else {
      e.effects.hidden_bases.push_back(int(i));
    }
  }
  std::stable_partition(e.effects.view_outputs.begin(), e.effects.view_outputs.end(),
                        [&](const ViewOutput& v) { return !outputs[size_t(v.output)].tensor()->base->base; });
}

void output_bases(Trace& t) {
  std::unordered_set<const TensorImpl*> known, bases;
  std::vector<Value>& outputs = t.graph->outputs;
  for (const Value& v : outputs) known.insert(v.tensor().get());
  for (size_t i = 0, n = outputs.size(); i < n; i++) {
    for (Tensor base = outputs[i].tensor()->base; base; base = base->base) {
      if (known.count(base.get()) || t.input_of_fake.count(base.get())) break;
      if (bases.insert(base.get()).second) continue;
      known.insert(base.get());
      outputs.push_back(base);
    }
  }
}

void find_requires_grad_writes(const Trace& t, Effects& left) {
  std::unordered_set<const GradNode*> history;
  for (const Value& v : t.graph->outputs) {
    if (v.tensor()->requires_grad && !is_leaf(v.tensor())) history.merge(nodes_behind(v.tensor()));
  }
  for (size_t i = 0; i < t.inputs.size(); i++) {
    const auto& in = t.inputs[i];
    if (!in.source || !is_leaf(in.fake)) continue;
    const bool now = in.fake->requires_grad;
    const bool recorded = now || (in.fake->autograd && history.count(in.fake->autograd->accumulator));
    if (now != in.requires_grad || recorded != in.requires_grad) {
      left.requires_grad_writes.push_back({int(i), recorded, now});
    }
  }
}

bool parts_functions(const Trace& t) {
  const std::vector<Tensor> outputs = with_history(*t.graph);
  return std::any_of(outputs.begin(), outputs.end(), has_function_behind);
}

bool parts_leaves(Trace& t, const std::vector<Edge>& sources, bool backend) {
  const auto parts = [&](const Value& v) { return t.is_new_leaf(v.tensor()) && (backend || v.tensor()->base); };
  const std::vector<Value>& outputs = t.graph->outputs;
  return std::any_of(outputs.begin(), outputs.end(), parts) && is_differentiable(t, sources);
}

}  // namespace lutra
