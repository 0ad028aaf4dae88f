// Splits a traced forward and its taped backward into two graphs, and runs them as one node of the tape.
#include "jit/autograd/compiled_autograd.h"

#include <unordered_map>
#include <unordered_set>

#include "ops/defs/each_tensor.h"

namespace lutra {
namespace {

// Drops what tracing a backward added to the traced graph.
struct Rollback {
  Graph& graph;
  size_t nodes = graph.nodes.size(), inputs = graph.inputs.size();
  ~Rollback() {
    graph.nodes.resize(nodes);
    graph.inputs.resize(inputs);
    graph.input_nodes.resize(inputs);
  }
};

// A graph of its own made of nodes of the traced graph. Values that are not mapped are views, recomputed on demand.
struct Extractor {
  Graph& out;
  GraphRecorder recorder{out};
  std::unordered_map<const TensorImpl*, Tensor> map{};

  static bool is_view(const Tensor& t) { return info(t->node->op).has(kView) && !t->node->inplace; }

  Tensor input(const std::string& name, const Tensor& like) {
    Tensor t = out.add_input(name, like->sizes, like->strides, like->dtype, like->device());
    t->offset = like->offset;
    map[like.get()] = t;
    return t;
  }
  void inputs_of(const Graph& traced, size_t count) {
    out.env = traced.env;
    out.scalars = traced.scalars;
    for (size_t i = 0; i < count; i++) {
      Tensor t = input(traced.inputs[i].name, traced.inputs[i].value);
      for (size_t k = 0; k < i; k++) {
        if (traced.inputs[k].value->storage == traced.inputs[i].value->storage)
          t->storage = out.inputs[k].value->storage;
      }
      out.inputs.back().constant = traced.inputs[i].constant;
    }
  }
  Tensor value(const Tensor& t) {
    auto it = map.find(t.get());
    if (it != map.end()) return it->second;
    LUTRA_CHECK(is_view(t), "a value of the forward that was not saved");
    Args args = values(t->node->args);
    return map[t.get()] = recorder.call(t->node->op, args)[size_t(t->result)];
  }
  Args values(Args args) {
    for (Value& v : args) {
      if (v.is<Tensor>() && v.tensor()) v = value(v.tensor());
      if (!v.is<std::vector<Tensor>>()) continue;
      for (Tensor& t : v.as<std::vector<Tensor>>()) t = value(t);
    }
    return args;
  }
  void node(const Node& n) {
    recorder.set_location(n.file, n.line, n.origin);
    Args args = values(n.args);
    if (n.inplace && n.op != OpId::copy_) {
      recorder.call_inplace(n.op, args);
      return;
    }
    Results results = recorder.call(n.op, args);
    if (n.rng >= 0) out.nodes.back()->rng = n.rng;
    for (size_t i = 0; i < results.size() && !n.inplace; i++) map[n.results[i].get()] = results[i];
  }
};

std::string key_of(const std::vector<Tensor>& gradients) {
  std::string key;
  for (const Tensor& g : gradients) key += g ? to_string(g->strides) : "-";
  return key;
}

}  // namespace

// The node of the tape; one a run.
struct CompiledNode : GradNode {
  std::shared_ptr<CompiledAutograd> code;
  std::vector<Tensor> inputs;  // the traced inputs, then the saved values
  std::vector<uint32_t> versions;
  std::vector<double> scalars;
  uint64_t first_call = 0;  // call index that the run's random ops began at

  const char* name() const override { return "CompiledBackward"; }
  void release() override { inputs.clear(); }
  void check() const {
    if (inputs.empty()) fail_second_backward();
    for (size_t i = 0; i < inputs.size(); i++) {
      if (inputs[i]->storage->version == versions[i]) continue;
      fail("backward: one of the variables needed for gradient computation has been modified by an inplace operation: ",
           code->input_name(i));
    }
  }
  std::vector<Tensor> apply(const std::vector<Tensor>& gradients, bool create_graph) override {
    check();
    if (create_graph) return code->differentiable(*this, gradients);
    std::vector<Tensor> args = inputs;
    for (const Tensor& g : gradients) {
      if (g) args.push_back(g);
    }
    std::vector<Tensor> out;
    for (const Value& v : code->backward_for(gradients).run(args, scalars)) out.push_back(v.tensor());
    return out;
  }
};

// The forward again, op by op under the tape, and its gradient with history: rare enough not to be compiled.
std::vector<Tensor> CompiledAutograd::differentiable(const CompiledNode& node, std::vector<Tensor> gradients) const {
  for (const auto& n : traced_->nodes) {
    const bool writes = n->inplace || n->op == OpId::copy_;
    if (writes && n->args[0].tensor()->node->op == OpId::input) {
      fail("backward: create_graph cannot go through a compiled function that writes its input ",
           "in place; call the original function instead");
    }
  }
  gradients.resize(results_.size());
  std::vector<Tensor> inputs, sources, outputs, tangents;
  size_t real = 0;
  for (const GraphInput& in : traced_->inputs) {
    if (in.constant) continue;
    inputs.push_back(node.inputs[real++]);
    if (in.value->requires_grad) sources.push_back(inputs.back());
  }
  Generator& generator = default_generator();
  const uint64_t now = generator.next_call;
  generator.next_call = node.first_call;
  std::vector<Value> values;
  try {
    values = interpret(*traced_, inputs, node.scalars);
  } catch (const std::exception&) {
    generator.next_call = now;
    throw;
  }
  generator.next_call = now;
  for (size_t k = 0; k < results_.size(); k++) {
    if (!gradients[k]) continue;
    outputs.push_back(values[results_[k]].tensor());
    tangents.push_back(gradients[k]);
  }
  return grad(outputs, sources, tangents, /*retain_graph=*/true, /*create_graph=*/true, /*allow_unused=*/true);
}

std::string CompiledAutograd::input_name(size_t i) const {
  for (const GraphInput& in : traced_->inputs) {
    if (!in.constant && i-- == 0) return in.name;
  }
  return "a result that was saved";
}

// What the backward, nodes from `first` on, reads of the forward: not views, not what is known, not its own.
std::vector<Tensor> CompiledAutograd::read_of_forward(std::unordered_set<const TensorImpl*> known, size_t first,
                                                      const std::vector<Tensor>& grads) const {
  std::vector<Tensor> saved;
  std::function<void(const Tensor&)> save = [&](const Tensor& t) {
    if (!known.insert(t.get()).second) return;
    if (Extractor::is_view(t)) return each_tensor(t->node->args, save);
    saved.push_back(t);
  };
  for (size_t i = first; i < traced_->nodes.size(); i++) {
    each_tensor(traced_->nodes[i]->args, save);
    for (const Tensor& t : traced_->nodes[i]->results) known.insert(t.get());
  }
  for (const Tensor& g : grads) {
    if (g) save(g);
  }
  if (saved_.empty()) return saved;
  // An output without a gradient leaves some unread, but the inputs are the same for every backward.
  std::unordered_set<const TensorImpl*> held;
  for (const Tensor& t : saved_) held.insert(t.get());
  for (const Tensor& t : saved) LUTRA_CHECK(held.count(t.get()), "a backward reads a value that was not saved");
  return saved_;
}

CompiledAutograd::Backward CompiledAutograd::trace_backward(const std::vector<Tensor>& gradients) {
  Rollback mark{*traced_};
  SymScope symbols(traced_->env.get());
  std::vector<Tensor> outputs, tangents, sources;
  for (size_t i : sources_) sources.push_back(traced_->inputs[i].value);
  for (size_t k = 0; k < results_.size(); k++) {
    if (!gradients[k]) continue;
    const Tensor& y = traced_->outputs[results_[k]].tensor();
    outputs.push_back(y);
    tangents.push_back(traced_->add_input("gradient", y->sizes, gradients[k]->strides, y->dtype, y->device()));
  }
  GraphRecorder recorder(*traced_);
  std::vector<Tensor> grads;
  {
    ModeScope mode(&recorder);
    grads = grad(outputs, sources, tangents, /*retain_graph=*/true, /*create_graph=*/false, /*allow_unused=*/true);
  }
  GradModeScope no_grad(false);
  Backward b{std::make_unique<Graph>(), {}};
  Extractor make{*b.graph};
  make.inputs_of(*traced_, mark.inputs);
  std::unordered_set<const TensorImpl*> known;
  for (const auto& [input, copy] : make.map) known.insert(input);
  for (const Tensor& t : tangents) known.insert(t.get());
  b.saved = read_of_forward(std::move(known), mark.nodes, grads);
  for (const Tensor& t : b.saved) make.input("saved", t);
  for (const Tensor& t : tangents) make.input("gradient", t);
  for (size_t i = mark.nodes; i < traced_->nodes.size(); i++) make.node(*traced_->nodes[i]);
  for (const Tensor& g : grads) b.graph->outputs.push_back(g ? Value(make.value(g)) : Value());
  return b;
}

std::shared_ptr<CompiledAutograd> CompiledAutograd::build(std::unique_ptr<Graph> traced,
                                                          const CompileOptions& options) {
  auto self = std::make_shared<CompiledAutograd>();
  self->traced_ = std::move(traced);
  self->options_ = options;
  Graph& g = *self->traced_;
  for (size_t i = 0; i < g.inputs.size(); i++) {
    if (g.inputs[i].value->requires_grad) self->sources_.push_back(i);
  }
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < g.outputs.size(); i++) {
    if (!g.outputs[i].is<Tensor>()) continue;
    const Tensor& y = g.outputs[i].tensor();
    if (!y->requires_grad || is_leaf(y)) continue;
    self->results_.push_back(i);
    gradients.push_back(y);
  }
  // Which values are saved does not depend on the gradients' strides: any will do to find them.
  self->saved_ = self->trace_backward(gradients).saved;
  auto forward = std::make_unique<Graph>();
  {
    SymScope symbols(g.env.get());
    GradModeScope no_grad(false);
    Extractor make{*forward};
    make.inputs_of(g, g.inputs.size());
    for (const auto& n : g.nodes) make.node(*n);
    for (const Value& v : make.values(g.outputs)) forward->outputs.push_back(v);
    for (const Tensor& t : self->saved_) forward->outputs.push_back(make.value(t));
    forward->rng_calls = g.rng_calls;
  }
  self->log_joint(*forward);
  self->forward_ = compile_graph(std::move(forward), options);
  return self;
}

void CompiledAutograd::log_joint(Graph& graph) const {
  if (!options_.log || (options_.wanted && !options_.wanted("joint"))) return;
  graph.renumber();
  options_.log("joint", print(graph));
}

const Compiled& CompiledAutograd::backward_for(std::vector<Tensor> gradients) {
  gradients.resize(results_.size());  // the engine brings as many as it met
  std::lock_guard<std::mutex> lock(mutex_);
  std::string key = key_of(gradients);
  auto it = backwards_.find(key);
  if (it != backwards_.end()) return it->second;
  Backward b = trace_backward(gradients);
  log_joint(*b.graph);
  return backwards_.emplace(key, compile_graph(std::move(b.graph), options_)).first->second;
}

std::vector<Value> CompiledAutograd::run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars) {
  const uint64_t first_call = default_generator().next_call;
  std::vector<Value> out = forward_.run(inputs, scalars);
  std::vector<Value> results(out.begin(), out.end() - int64_t(saved_.size()));
  if (!grad_enabled()) return results;
  auto node = make_ref<CompiledNode>();
  node->code = shared_from_this();
  node->inputs = inputs;
  for (size_t i = results.size(); i < out.size(); i++) node->inputs.push_back(out[i].tensor());
  for (const Tensor& t : node->inputs) node->versions.push_back(t->storage->version);
  node->scalars = scalars;
  node->first_call = first_call;
  std::vector<Tensor> sources;
  size_t real = 0;  // inputs come without the constants
  for (size_t i = 0; i < traced_->inputs.size(); i++) {
    if (traced_->inputs[i].constant) continue;
    if (traced_->inputs[i].value->requires_grad) sources.push_back(inputs[real]);
    real++;
  }
  link(*node, sources);
  for (size_t k = 0; k < results_.size(); k++)
    set_history(results[results_[k]].tensor(), Ref<GradNode>(node.get()), uint32_t(k));
  return results;
}

}  // namespace lutra
