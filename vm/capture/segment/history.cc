// What autograd has to know of a segment's border: the history of inputs from before it, the history that inputs gain
// in it, and what becomes of its outputs.
#include "vm/capture/segment/history.h"

#include <algorithm>
#include <unordered_set>

#include "ops/grad/saved_tensor.h"
#include "ops/grad/tape.h"

namespace lutra {
namespace {

thread_local BorderScope* scope = nullptr;  // of the call of backward or grad that is traced

// The history of an input from before the segment.
struct BorderNode : GradNode {
  BorderNode() { link(*this, {}); }
  const char* name() const override { return "history"; }
  void release() override {}

  [[noreturn]] static void go_beyond() {
    scope->goes_beyond = true;
    fail("the gradient goes on to what was computed before the segment");
  }
  std::vector<Tensor> apply(const std::vector<Tensor>&, bool) override { go_beyond(); }

  // What lies beyond may lead to any other input that lt.grad asks for.
  void met(const std::vector<const GradNode*>& targets) override {
    for (const GradNode* target : targets) {
      if (!scope || target == this) continue;
      const Tensor leaf = leaf_of(target);
      if (leaf ? scope->trace.input_of_fake.count(leaf.get()) > 0
               : dynamic_cast<const BorderNode*>(target) != nullptr) {
        go_beyond();
      }
    }
  }
};

bool is_symbolic(const Value& v) {
  if (v.is<Scalar>()) return v.as<Scalar>().expr != 0;
  if (!v.is<Sizes>()) return false;
  const Sizes& sizes = v.as<Sizes>();
  return std::any_of(sizes.begin(), sizes.end(), [](const SymInt& s) { return s.expr != 0; });
}

bool is_symbolic(const Ref<ViewHistory>& history) {
  for (const auto* s = static_cast<const ViewStep*>(history.get()); s; s = step_before(*s)) {
    for (const Value& v : s->args) {
      if (is_symbolic(v)) return true;
    }
  }
  return false;
}

// Drops what an engine that runs for its errors only adds to the graph.
struct Trial : TapeWatch {
  Graph& graph;
  const bool tolerant;
  size_t nodes = graph.nodes.size(), spends = 0;  // spends: nodes that did not raise and would be released
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

// Tells whether a gradient goes through other outputs than y, which may have hooks.
struct Passes {
  bool other = false;
  std::vector<Ref<GradNode>> hooked;
  Passes(const Graph& graph, const Tensor& y) {
    const Edge own = gradient_edge(y);
    for (const Tensor& z : with_history(graph)) {
      const Edge edge = gradient_edge(z);
      if (edge.node == own.node && edge.result == own.result) continue;
      edge.node->hooks.emplace_back(edge.result, GradHook{[this](const Tensor&) {
                                      other = true;
                                      return Tensor();
                                    }});
      hooked.push_back(edge.node);
    }
  }
  ~Passes() {
    for (size_t i = hooked.size(); i-- > 0;) hooked[i]->hooks.pop_back();
  }
  Passes(const Passes&) = delete;
};

// Why y cannot be differentiated: empty if it can, or where the try would release something on its way.
std::string refusal(Trace& t, const Tensor& y, std::vector<Edge> sources) {
  for (const auto& n : t.graph->nodes) {
    for (const Tensor& r : n->results) {
      if (r && t.is_new_leaf(r)) sources.push_back(gradient_edge(r));
    }
  }
  const Trial trial(*t.graph, false);
  try {
    grad_at({y}, sources, {y}, std::vector<Tensor>(sources.size()), false);
  } catch (const Error& e) {
    if (!is_users(e)) throw;
    return trial.spends ? "" : e.what();
  }
  return "";
}

}  // namespace

BorderScope::BorderScope(Trace& t) : trace(t) { scope = this; }
BorderScope::~BorderScope() { scope = nullptr; }

Edge border(const Tensor& fake, const Tensor& real) {
  fake->requires_grad = real->requires_grad;
  if (!real->requires_grad) return {};
  if (!is_leaf(real)) set_history(fake, Ref<GradNode>(new BorderNode), 0);
  return gradient_edge(fake);
}

std::vector<Edge> input_edges(const Trace& t) {
  std::vector<Edge> edges;
  for (const auto& in : t.inputs) {
    Edge edge = in.edge;
    if (!edge.node && in.source && in.fake->requires_grad && is_leaf(in.fake)) edge = gradient_edge(in.fake);
    edges.push_back(edge);
  }
  return edges;
}

bool has_new_history(const Trace::TensorInput& in) {
  return in.source && !is_leaf(in.fake) && !(in.fake->autograd->grad_fn == in.edge.node);
}

bool is_writable(const Tensor& real) {
  return !real->base || (real->view && !(real->base->requires_grad && is_leaf(real->base)));
}

void check_writes(Trace& t, size_t first) {
  if (!grad_enabled()) return;
  for (size_t n = first; n < t.graph->nodes.size(); n++) {
    const Node& node = *t.graph->nodes[n];
    if (!node.inplace) continue;
    for (const auto& in : t.inputs) {
      if (in.fake->storage != node.args[0].tensor()->storage || !in.fake->requires_grad) continue;
      if (in.real->base && !is_writable(in.real)) t.stop("a view is written that cannot be", "error", "", true);
    }
  }
}

bool is_differentiable(Trace& t, const std::vector<Edge>& sources) {
  const std::vector<Tensor> outputs = with_history(*t.graph);
  if (outputs.empty() || !t.backward_called) return !outputs.empty();
  {
    const Trial trial(*t.graph, true);
    for (const Tensor& g : grad_at(outputs, sources, outputs, std::vector<Tensor>(sources.size()), false)) {
      if (g) return true;
    }
  }
  for (const Tensor& y : outputs) {
    const Passes passes(*t.graph, y);
    if (refusal(t, y, sources).empty() || passes.other) return true;
  }
  return false;
}

bool sort_outputs(Trace& t, Entry& e, const std::vector<Edge>& sources) {
  const bool differentiable = is_differentiable(t, sources);
  for (size_t i = 0; i < t.graph->outputs.size(); i++) {
    const Tensor y = t.graph->outputs[i].tensor();
    if (!y->requires_grad) continue;
    if (is_leaf(y)) {
      e.leaf_outputs.push_back(int(i));
    } else if (!differentiable) {
      e.refused_outputs.emplace_back(int(i), refusal(t, y, sources));
    }
  }
  return differentiable;
}

void find_view_outputs(Trace& t, Entry& e) {
  const std::vector<Value>& outputs = t.graph->outputs;
  for (size_t i = 0; i < outputs.size(); i++) {
    const Tensor y = outputs[i].tensor();
    if (!y->base) continue;
    ViewOutput v{int(i), {}, y->view, y->view && is_symbolic(y->view)};
    const auto in = t.input_of_fake.find(y->base.get());
    const bool input = in != t.input_of_fake.end();  // whose last value may be an output, too
    if (input) v.base = {Recipe::kTensorIn, in->second};
    for (size_t k = 0; !input && k < outputs.size(); k++) {
      if (outputs[k].tensor().same(y->base)) v.base = {Recipe::kTensorOut, int(k)};
    }
    if (v.base.kind != Recipe::kNil || !v.history) e.view_outputs.push_back(v);
  }
}

void output_bases(Trace& t) {
  std::unordered_set<const TensorImpl*> known, bases;
  std::vector<Value>& outputs = t.graph->outputs;
  for (const Value& v : outputs) known.insert(v.tensor().get());
  for (size_t i = 0, n = outputs.size(); i < n; i++) {
    const Tensor base = outputs[i].tensor()->base;
    if (!base || known.count(base.get()) || t.input_of_fake.count(base.get())) continue;
    if (bases.insert(base.get()).second) continue;
    known.insert(base.get());
    outputs.push_back(base);
  }
}

bool parts_leaves(Trace& t, const std::vector<Edge>& sources) {
  for (const Value& v : t.graph->outputs) {
    if (t.is_new_leaf(v.tensor())) return is_differentiable(t, sources);
  }
  return false;
}

}  // namespace lutra
