// Turns a recorded function into functions for its forward and backwards.
#include "jit/autograd/traced_function.h"

#include <algorithm>
#include <unordered_set>

#include "jit/autograd/extract.h"
#include "jit/graph/replay.h"
#include "jit/passes/passes.h"
#include "ops/core/overlap.h"
#include "ops/core/tensor_type.h"
#include "ops/decompose/emit.h"
#include "ops/defs/control.h"
#include "ops/defs/each_tensor.h"
#include "ops/defs/order.h"

namespace lutra {
namespace {

using Tensors = std::vector<Tensor>;

std::unordered_set<const TensorImpl*> values_read(const Graph& graph) {
  std::unordered_set<const TensorImpl*> read;
  const auto note = [&](const Tensor& t) { read.insert(t.get()); };
  for (const auto& n : graph.nodes) each_tensor(n->args, note);
  for (const Value& v : graph.outputs) each_tensor(v, note);
  return read;
}

// Returns the graph as a function without history, with its first `outputs` outputs. copied: the outputs are copies;
// the first `copied` ones have the strides of what they copy, the others are contiguous.
FunctionRef without_history(const Graph& traced, size_t outputs, std::optional<size_t> copied = {}) {
  auto graph = std::make_unique<Graph>();
  GradModeScope no_grad(false);
  Extractor make{*graph, true};
  make.inputs_of(traced, traced.inputs.size());
  for (const auto& n : traced.nodes) make.node(*n);
  ModeScope mode(&make.recorder);
  for (size_t k = 0; k < outputs; k++) {
    const Tensor y = make.value(traced.outputs[k].tensor());
    const Tensor given = !copied ? y : k < *copied ? own_copy(y) : contiguous_copy(y);
    given->requires_grad = traced.outputs[k].tensor()->requires_grad;
    graph->outputs.emplace_back(given);
  }
  graph->renumber();
  return make_function(std::move(graph));
}

}  // namespace

TracedFunction::Strides strides_of(const Tensor& t, std::optional<size_t> sliced) {
  if (!t) return {};
  std::vector<TracedFunction::Stride> out;
  for (size_t d = 0; d < t->strides.size(); d++) {
    if (d != sliced) out.push_back({t->strides[d].hint, t->strides[d].expr});
  }
  return out;
}

Tensors replay(const Graph& graph, const Tensors& arguments, GraphRecorder* recorder) {
  GraphValues now(graph, arguments);
  const bool taped = grad_enabled();
  for (const auto& n : graph.nodes) {
    if (recorder) recorder->set_location(n->file, n->line, n->origin);
    const auto is_differentiable = [](const Tensor& t) { return t->requires_grad; };
    const GradModeScope mode(taped && std::any_of(n->results.begin(), n->results.end(), is_differentiable));
    const Results results = call_op(n->op, now.arguments_of(*n));
    for (size_t i = 0; i < results.size() && !taped; i++) {
      results[i]->requires_grad = n->results[i]->requires_grad;
    }
    now.add(*n, results);
  }
  return now.outputs();
}

bool has_control(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& n) {
    const auto requires_grad = [](const Tensor& t) { return t->requires_grad; };
    return info(n->op).has(kControl) && std::any_of(n->results.begin(), n->results.end(), requires_grad);
  });
}

TracedFunction::TracedFunction(std::unique_ptr<Graph> traced, size_t carried, size_t slices)
    : carried_(carried), slices_(slices), results_(traced->outputs.size()) {
  forward_.graph = std::move(traced);
  for (const GraphInput& in : forward_.graph->inputs) {
    source_.push_back(in.value->requires_grad ? int(forward_.sources.size()) : kNone);
    if (!in.value->requires_grad) continue;
    forward_.sources.push_back(gradient_edge(in.value));
    forward_.inputs.push_back(in.value);
  }
  add_results();
  find_saved(forward_);
  find_stacked();
  find_read();
  GraphRecorder recorder(*forward_.graph);
  ModeScope mode(&recorder);
  for (const Tensor& v : forward_.saved) saved_.push_back(stack(v));
  for (size_t i = 0; i < carried_; i++) {
    const Tensor& v = forward_.graph->inputs[i].value;
    if (!read_[i]) continue;
    if (stacked_[i] != kNone && v->is_contiguous()) {
      before_.push_back(i);
    } else {
      copied_[i] = stack(v);
    }
  }
  add_results();
  function_ = without_history(*forward_.graph, all_results());
}

// Returns a result that stacks the value: one that the graph returns already, or a further one. A further one is
// recorded under the tape, so it takes a gradient, too. A branch's own results are not used: the caller may write them.
TracedFunction::Stack TracedFunction::stack(const Tensor& value) {
  std::vector<Value>& outputs = forward_.graph->outputs;
  for (size_t k = slices_ ? carried_ : results_; k < outputs.size() && value->is_contiguous(); k++) {
    const Node& n = *outputs[k].tensor()->node;
    if (n.op == kCopyOp && n.args[0].tensor().same(value)) return {k, {}};
  }
  const Sizes order = value->is_contiguous() ? Sizes() : falling(value->strides, true);
  outputs.emplace_back(contiguous_copy(order.empty() ? value : permute(value, order)));
  return {outputs.size() - 1, order};
}

bool TracedFunction::saves() const { return !saved_.empty() || std::count(read_.begin(), read_.end(), true) > 0; }

FunctionRef TracedFunction::plain() const { return without_history(*forward_.graph, results_); }

void TracedFunction::find_stacked() {
  const std::vector<Value>& outputs = forward_.graph->outputs;
  const auto value = [&](size_t k) { return outputs[k].tensor()->node->args[0].tensor(); };
  stacked_.assign(carried_, kNone);
  for (size_t k = 0; k < carried_; k++) {
    for (size_t y = carried_; y < results_ && stacked_[k] == kNone; y++) {
      if (value(y).same(value(k))) stacked_[k] = int(y);
    }
  }
}

// Extends gradient_ and forward_.results for the outputs that were added since.
void TracedFunction::add_results() {
  const std::vector<Value>& outputs = forward_.graph->outputs;
  for (size_t k = gradient_.size(); k < outputs.size(); k++) {
    const Tensor& y = outputs[k].tensor();
    gradient_.push_back(y->requires_grad ? int(forward_.results.size()) : kNone);
    if (y->requires_grad) forward_.results.push_back(y);
  }
}

// Returns the request with gradients of these results, in which all parameters want theirs.
TracedFunction::Request TracedFunction::all_of(const std::vector<size_t>& results) const {
  Request all;
  all.gradients.resize(all_results()), all.so_far.resize(parameters());
  for (size_t k : results) all.gradients[k] = strides_of(forward_.graph->outputs[k].tensor());
  all.wanted.assign(parameters(), true);
  return all;
}

// Traces the backward to find it: a node of the tape may have edges to more tensors than it returns gradients for.
std::vector<size_t> TracedFunction::reach(const std::vector<size_t>& results) {
  const TracedBackward traced = trace_backward(forward_, request_of(all_of(results)));
  std::vector<size_t> out;
  for (size_t i = 0; i < source_.size(); i++) {
    if (source_[i] >= 0 && traced.gradients[size_t(source_[i])] >= 0) out.push_back(i);
  }
  return out;
}

void TracedFunction::find_read() {
  std::vector<size_t> results(all_results());
  for (size_t k = 0; k < results.size(); k++) results[k] = k;
  const TracedBackward traced = trace_backward(forward_, request_of(all_of(results)));
  read_.assign(parameters(), false);
  const Graph* graph = traced.pieces[0].graph.get();
  if (!graph) return;
  const auto values = values_read(*graph);
  for (size_t i = 0; i < read_.size(); i++) read_[i] = values.count(graph->inputs[i].value.get()) > 0;
}

BackwardRequest TracedFunction::request_of(const Request& request) {
  const auto like = [this](const Tensor& t, const Strides& strides) {
    Sizes all;
    for (const Stride& stride : *strides) {
      all.push_back(SymInt(stride.hint));
      all.back().expr = stride.expr;
    }
    return layouts_.add_input("gradient", t->sizes, all, t->dtype, t->device());
  };
  BackwardRequest r;
  r.exact = true;
  r.gradients.resize(forward_.results.size());
  for (size_t k = 0; k < request.gradients.size(); k++) {
    if (!request.gradients[k] || gradient_[k] == kNone) continue;
    const auto at = size_t(gradient_[k]);
    r.gradients[at] = like(forward_.results[at], request.gradients[k]);
  }
  for (size_t i = 0; i < source_.size(); i++) {
    if (source_[i] == kNone) continue;
    const bool more = request.wanted[i] && request.so_far[i];
    r.wanted.push_back(request.wanted[i]);
    r.so_far.push_back(more ? like(forward_.graph->inputs[i].value, request.so_far[i]) : Tensor());
  }
  return r;
}

// Assembles a backward from the traced piece.
struct TracedFunction::Assembly {
  TracedFunction& f;
  const BackwardRequest& request;
  const TracedBackward& traced;
  const bool filled;
  Backward out{};
  std::unique_ptr<Graph> graph = function_graph(f.env());
  Tensors at = Tensors(size_t(traced.places));      // by place
  std::map<size_t, size_t> gradient_at, so_far_at;  // places, by result of the forward and by parameter
  GraphRecorder recorder{*graph};

  Tensor take(Argument::Kind kind, size_t index, const Tensor& like) {
    out.arguments.push_back({kind, index});
    return graph->add_input("x", like->sizes, like->strides, like->dtype, like->device());
  }
  Tensor take_gradient(size_t k) { return take(Argument::kGradient, k, request.gradients[size_t(f.gradient_[k])]); }
  Tensor take_so_far(size_t i) { return take(Argument::kSoFar, i, request.so_far[size_t(f.source_[i])]); }
  Tensor take_stack(const Stack& stack) {
    const Tensor t = take(Argument::kResult, stack.result, f.forward_.graph->outputs[stack.result].tensor());
    return stack.order.empty() ? t : permute(t, inverse(stack.order));
  }

  // Returns the place of a parameter's gradient; kNone: it has none.
  int gradient_place(size_t parameter) const {
    const int source = f.source_[parameter];
    return source == kNone ? kNone : traced.gradients[size_t(source)];
  }
  bool is_unchanged(size_t parameter, const std::map<size_t, size_t>& places) const {
    const auto place = places.find(parameter);
    return place != places.end() && gradient_place(parameter) == int(place->second);
  }

  void find_places() {
    size_t place = f.parameters() + f.forward_.saved.size();
    for (size_t k = 0; k < request.gradients.size(); k++) {
      if (request.gradients[k]) gradient_at[index_of(f.gradient_, k)] = place++;
    }
    for (size_t i = 0; i < request.so_far.size(); i++) {
      if (request.so_far[i]) so_far_at[index_of(f.source_, i)] = place++;
    }
  }
  static size_t index_of(const std::vector<int>& list, size_t k) {
    return size_t(std::find(list.begin(), list.end(), int(k)) - list.begin());
  }

  void take_all() {
    find_places();
    const auto gradients = [&](bool carried, bool unchanged) {
      for (const auto& [k, p] : gradient_at) {
        const bool is_carried = k < f.carried_;
        if (is_carried == carried && (is_carried && is_unchanged(k, gradient_at)) == unchanged)
          at[p] = take_gradient(k);
      }
    };
    const auto sums = [&](bool is_read, bool unchanged) {
      for (const auto& [i, p] : so_far_at) {
        if ((i >= f.first_read()) != is_read || (is_read && is_unchanged(i, so_far_at)) != unchanged) continue;
        at[p] = take_so_far(i);
      }
    };
    gradients(true, false), sums(true, false);
    out.carried = out.arguments.size();
    gradients(false, false), sums(false, false);
    for (size_t i = 0; i < f.saved_.size(); i++) at[f.parameters() + i] = take_stack(f.saved_[i]);
    for (const auto& [i, stack] : f.copied_) at[i] = take_stack(stack);
    for (size_t i : f.before_) at[i] = take(Argument::kBefore, i, f.forward_.graph->inputs[i].value);
    for (size_t i = f.carried_; i < f.first_read(); i++) take_parameter(i);
    out.slices = out.arguments.size() - out.carried;
    for (size_t i = f.first_read(); i < f.parameters(); i++) take_parameter(i);
    gradients(true, true), sums(true, true);
  }
  void take_parameter(size_t i) { at[i] = take(Argument::kParameter, i, f.forward_.graph->inputs[i].value); }

  void run() {
    const BackwardPiece& piece = traced.pieces[0];
    if (piece.graph) {
      Tensors arguments;
      for (size_t i = 0; i < f.parameters(); i++) arguments.push_back(at[i]);
      for (int p : piece.takes) arguments.push_back(at[size_t(p)]);
      const Tensors given = replay(*functionalise(*piece.graph), arguments, &recorder);
      for (size_t i = 0; i < given.size(); i++) at[size_t(piece.gives[i])] = given[i];
    }
    out.gives.assign(f.parameters(), kNone);
    for (size_t i = 0; i < f.carried_; i++) give(i, is_unchanged(i, gradient_at));
    for (size_t i = f.first_read(); i < f.parameters(); i++) give(i, is_unchanged(i, so_far_at));
    for (size_t i = f.carried_; i < f.first_read(); i++) give(i, false);
  }
  void give(size_t parameter, bool unchanged) {
    const int place = gradient_place(parameter);
    Tensor g = place == kNone ? Tensor() : at[size_t(place)];
    const auto& places = parameter < f.carried_ ? gradient_at : so_far_at;
    if (const auto like = places.find(parameter); filled && like != places.end()) {
      g = g ? laid_as(g, at[like->second]) : zeros_laid_as(at[like->second]);
    }
    if (!g) return;
    out.gives[parameter] = unchanged ? kUnchanged : int(graph->outputs.size());
    if (!unchanged) graph->outputs.emplace_back(g);
  }

  // Removes the arguments that are not read, except the carried ones.
  void prune() {
    const auto read = values_read(*graph);
    Backward kept = out;
    kept.arguments.clear(), kept.slices = 0;
    std::vector<GraphInput> inputs;
    std::vector<std::unique_ptr<Node>> nodes;
    for (size_t i = 0; i < out.arguments.size(); i++) {
      if (i >= out.carried && !read.count(graph->inputs[i].value.get())) continue;
      kept.arguments.push_back(out.arguments[i]);
      kept.slices += i >= out.carried && i < out.carried + out.slices;
      inputs.push_back(std::move(graph->inputs[i]));
      nodes.push_back(std::move(graph->input_nodes[i]));
    }
    out = std::move(kept);
    graph->inputs = std::move(inputs), graph->input_nodes = std::move(nodes);
  }

  // Returns the argument for a place of the run.
  Argument at_place(int place) const {
    const auto p = size_t(place);
    if (p < f.parameters()) return {Argument::kParameter, p};
    return {Argument::kResult, f.saved_[p - f.parameters()].result};
  }
  void find_readers() {
    for (const Argument& a : out.arguments) {
      std::vector<Reader>& readers = out.readers.emplace_back();
      for (const BackwardRead& read : traced.pieces[0].reads) {
        if (read.place < 0) continue;
        const Argument is_read = at_place(read.place);
        if (is_read.kind != a.kind || is_read.index != a.index) continue;
        Reader& reader = readers.emplace_back();
        for (const TakenBranch& b : read.branches) {
          if (!b.steps) reader.push_back({at_place(b.place), b.holds});  // otherwise any step may have taken it
        }
      }
      if (readers.empty()) readers.emplace_back();
    }
  }

  // Returns the body of a scan. Returns null unless each carried argument has a next value with the same strides.
  FunctionRef loop() const {
    for (size_t i = 0; i < out.carried; i++) {
      const Argument& a = out.arguments[i];
      if (out.gives[a.index] != int(i)) return nullptr;
      const Tensor &before = graph->inputs[i].value, &after = graph->outputs[i].tensor();
      if (!are_equal(after->strides, before->strides) || !is_dense(after->sizes, after->strides)) return nullptr;
    }
    size_t carried = 0;
    for (size_t i = 0; i < f.parameters(); i++) carried += (i < f.carried_ || i >= f.first_read()) && out.gives[i] >= 0;
    if (carried != out.carried) return nullptr;
    const FunctionRef plain = without_history(*graph, graph->outputs.size(), out.carried);
    if (const std::string wrong = check_function(graph_of(plain)); !wrong.empty()) fail_internal("a backward: ", wrong);
    return plain;
  }

  Backward assemble() {
    GradModeScope no_grad(false);
    {
      ModeScope mode(&recorder);
      take_all();
      run();
    }
    if (graph->outputs.empty()) {  // no argument is needed, then
      out.arguments.clear(), out.carried = out.slices = 0;
      return std::move(out);
    }
    prune();
    find_readers();
    graph->renumber();
    // If the backward is differentiated, all of it is. A gradient may pass through unchanged.
    for (const GraphInput& in : graph->inputs) in.value->requires_grad = is_float(in.value->dtype);
    for (const auto& n : graph->nodes) {
      for (const Tensor& t : n->results) t->requires_grad = is_float(t->dtype);
    }
    if (out.slices > 0 || filled) out.loop = loop();
    out.step = std::move(graph);
    return std::move(out);
  }
};

const TracedFunction::Backward& TracedFunction::backward(const Request& request) {
  const auto known = backwards_.find(request);
  if (known != backwards_.end()) return known->second;
  const BackwardRequest r = request_of(request);
  const TracedBackward traced = trace_backward(forward_, r);
  if (!traced.error.empty()) fail(traced.error);
  return backwards_.emplace(request, Assembly{*this, r, traced, request.filled}.assemble()).first->second;
}

}  // namespace lutra
