// A recorded function in, its forward and backwards as functions out.
#include "jit/autograd/traced_function.h"

#include <algorithm>
#include <unordered_set>

#include "jit/autograd/extract.h"
#include "jit/passes/passes.h"
#include "ops/defs/control.h"
#include "ops/defs/each_tensor.h"

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

// The graph without histories, with its first outputs.
FunctionRef without_history(const Graph& traced, size_t outputs) {
  auto graph = std::make_unique<Graph>();
  GradModeScope no_grad(false);
  Extractor make{*graph};
  make.inputs_of(traced, traced.inputs.size());
  for (const auto& n : traced.nodes) make.node(*n);
  for (size_t k = 0; k < outputs; k++) graph->outputs.emplace_back(make.value(traced.outputs[k].tensor()));
  graph->renumber();
  return make_function(std::move(graph));
}

}  // namespace

Tensors replay(const Graph& graph, const Tensors& arguments, GraphRecorder* recorder) {
  std::unordered_map<const TensorImpl*, Tensor> now;
  for (size_t i = 0; i < arguments.size(); i++) now[graph.inputs[i].value.get()] = arguments[i];
  for (const auto& n : graph.nodes) {
    Args args = n->args;
    each_argument_tensor(args, [&](size_t, Tensor& t) {
      if (t) t = now.at(t.get());
    });
    if (recorder) recorder->set_location(n->file, n->line, n->origin);
    const Results results = call_op(n->op, std::move(args));
    for (size_t i = 0; i < results.size(); i++) now[n->results[i].get()] = results[i];
  }
  Tensors outputs;
  for (const Value& v : graph.outputs) outputs.push_back(now.at(v.tensor().get()));
  return outputs;
}

TracedFunction::TracedFunction(std::unique_ptr<Graph> traced, size_t carried, size_t slices)
    : carried_(carried), slices_(slices), results_(traced->outputs.size()) {
  forward_.graph = std::move(traced);
  for (const GraphInput& in : forward_.graph->inputs) {
    const Tensor& t = in.value;
    source_.push_back(t->requires_grad ? int(forward_.sources.size()) : -1);
    if (!t->requires_grad) continue;
    forward_.sources.push_back(gradient_edge(t));
    forward_.inputs.push_back(t);
    like_source_.push_back(layouts_.add_input("x", t->sizes, contiguous_strides(t->sizes), t->dtype, t->device()));
  }
  add_results();
  find_saved(forward_);
  const Tensors saved = forward_.saved;
  GraphRecorder recorder(*forward_.graph);
  ModeScope mode(&recorder);
  std::vector<Value>& outputs = forward_.graph->outputs;
  for (const Tensor& v : saved) {
    const auto is_copy = [&](const Value& out) {
      const Node& n = *out.tensor()->node;
      return n.op == kCopyOp && n.args[0].tensor().same(v);
    };
    const auto at = std::find_if(outputs.begin() + ptrdiff_t(carried_), outputs.end(), is_copy);
    saved_at_.push_back(size_t(at - outputs.begin()));
    if (at == outputs.end()) outputs.emplace_back(contiguous_copy(v));
  }
  find_stacked();
  find_read();
  for (size_t i = 0; i < carried_; i++) {
    if (!read_[i]) continue;
    if (stacked_[i] >= 0) {
      before_.push_back(i);
      continue;
    }
    copy_at_[i] = outputs.size();
    outputs.emplace_back(contiguous_copy(forward_.graph->inputs[i].value));
  }
  add_results();
  function_ = without_history(*forward_.graph, outputs.size());
}

FunctionRef TracedFunction::plain() const { return without_history(*forward_.graph, results_); }

void TracedFunction::find_stacked() {
  const std::vector<Value>& outputs = forward_.graph->outputs;
  const auto value = [&](size_t k) { return outputs[k].tensor()->node->args[0].tensor(); };
  stacked_.assign(carried_, -1);
  for (size_t k = 0; k < carried_; k++) {
    for (size_t y = carried_; y < results_ && stacked_[k] < 0; y++) {
      if (value(y).same(value(k))) stacked_[k] = int(y);
    }
  }
}

// What takes a gradient among the outputs that there are now and were not.
void TracedFunction::add_results() {
  const std::vector<Value>& outputs = forward_.graph->outputs;
  for (size_t k = gradient_.size(); k < outputs.size(); k++) {
    const Tensor& y = outputs[k].tensor();
    gradient_.push_back(y->requires_grad ? int(forward_.results.size()) : -1);
    if (!y->requires_grad) continue;
    forward_.results.push_back(y);
    like_result_.push_back(layouts_.add_input("y", y->sizes, contiguous_strides(y->sizes), y->dtype, y->device()));
  }
}

std::vector<size_t> TracedFunction::reach(size_t result) const {
  std::vector<size_t> out;
  if (gradient_[result] < 0) return out;
  const std::vector<size_t> sources = reach_of(forward_, uint32_t(gradient_[result])).sources;
  for (size_t i = 0; i < source_.size(); i++) {
    if (source_[i] >= 0 && std::count(sources.begin(), sources.end(), size_t(source_[i]))) out.push_back(i);
  }
  return out;
}

void TracedFunction::find_read() {
  Request all;
  all.gradients.assign(gradient_.size(), true);
  all.wanted.assign(parameters(), true);
  all.so_far.assign(parameters(), false);
  const TracedBackward traced = trace_backward(forward_, request_of(all));
  read_.assign(parameters(), false);
  const Graph* graph = traced.pieces[0].graph.get();
  if (!graph) return;
  const auto values = values_read(*graph);
  for (size_t i = 0; i < read_.size(); i++) read_[i] = values.count(graph->inputs[i].value.get()) > 0;
}

BackwardRequest TracedFunction::request_of(const Request& request) const {
  BackwardRequest r;
  r.gradients.resize(forward_.results.size());
  for (size_t k = 0; k < gradient_.size(); k++) {
    if (request.gradients[k] && gradient_[k] >= 0)
      r.gradients[size_t(gradient_[k])] = like_result_[size_t(gradient_[k])];
  }
  for (size_t i = 0; i < source_.size(); i++) {
    if (source_[i] < 0) continue;
    r.wanted.push_back(request.wanted[i]);
    r.so_far.push_back(request.wanted[i] && request.so_far[i] ? like_source_[size_t(source_[i])] : Tensor());
  }
  return r;
}

// The graph of a backward, from the piece that was traced.
struct TracedFunction::Assembly {
  TracedFunction& f;
  const BackwardRequest& request;
  const TracedBackward& traced;
  Backward out{};
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  Tensors at = Tensors(size_t(traced.places));  // values by place

  void take(Argument::Kind kind, size_t index, const Tensor& like, size_t place) {
    out.arguments.push_back({kind, index});
    at[place] = graph->add_input("x", like->sizes, like->strides, like->dtype, like->device());
  }

  // Calls each(k) for what is there of a list.
  template <class F>
  static void each_there(const Tensors& list, const F& each) {
    for (size_t i = 0; i < list.size(); i++) {
      if (list[i]) each(i);
    }
  }

  void take_all() {
    const size_t first_gradient = f.parameters() + f.forward_.saved.size();
    size_t place = first_gradient;
    std::map<size_t, size_t> gradient_at, so_far_at;  // by result of the forward, by parameter
    each_there(request.gradients, [&](size_t k) { gradient_at[index_of(f.gradient_, k)] = place++; });
    each_there(request.so_far, [&](size_t i) { so_far_at[index_of(f.source_, i)] = place++; });
    const auto gradient = [&](bool carried) {
      for (const auto& [k, p] : gradient_at) {
        if ((k < f.carried_) == carried) take(Argument::kGradient, k, f.like_result_[size_t(f.gradient_[k])], p);
      }
    };
    const auto so_far = [&](bool is_read) {
      for (const auto& [i, p] : so_far_at) {
        if ((i >= f.carried_ + f.slices_) == is_read) {
          take(Argument::kSoFar, i, f.like_source_[size_t(f.source_[i])], p);
        }
      }
    };
    gradient(true), so_far(true);
    out.carried = out.arguments.size();
    gradient(false), so_far(false);
    const auto result = [&](size_t k, size_t p) {
      take(Argument::kResult, k, f.forward_.graph->outputs[k].tensor(), p);
    };
    for (size_t i = 0; i < f.saved_at_.size(); i++) result(f.saved_at_[i], f.parameters() + i);
    for (const auto& [i, k] : f.copy_at_) result(k, i);
    for (size_t i : f.before_) take(Argument::kBefore, i, f.forward_.graph->outputs[size_t(f.stacked_[i])].tensor(), i);
    const auto parameter = [&](size_t i) { take(Argument::kParameter, i, f.forward_.graph->inputs[i].value, i); };
    for (size_t i = f.carried_; i < f.carried_ + f.slices_; i++) parameter(i);
    out.slices = out.arguments.size() - out.carried;
    for (size_t i = f.carried_ + f.slices_; i < f.parameters(); i++) parameter(i);
  }
  static size_t index_of(const std::vector<int>& list, size_t k) {
    return size_t(std::find(list.begin(), list.end(), int(k)) - list.begin());
  }

  void run() {
    GradModeScope no_grad(false);
    GraphRecorder recorder(*graph);
    ModeScope mode(&recorder);
    const BackwardPiece& piece = traced.pieces[0];
    if (piece.graph) {
      Tensors arguments;
      for (size_t i = 0; i < f.parameters(); i++) arguments.push_back(at[i]);
      for (int p : piece.takes) arguments.push_back(at[size_t(p)]);
      const Tensors given = replay(*functionalise(*piece.graph), arguments, &recorder);
      for (size_t i = 0; i < given.size(); i++) at[size_t(piece.gives[i])] = given[i];
    }
    out.gives.assign(f.parameters(), -1);
    const size_t first_read = f.carried_ + f.slices_;
    for (size_t i = 0; i < f.carried_; i++) give(i);
    for (size_t i = first_read; i < f.parameters(); i++) give(i);
    for (size_t i = f.carried_; i < first_read; i++) give(i);
  }
  void give(size_t parameter) {
    const int source = f.source_[parameter], place = source < 0 ? -1 : traced.gradients[size_t(source)];
    if (place < 0) return;
    out.gives[parameter] = int(graph->outputs.size());
    graph->outputs.emplace_back(contiguous_copy(at[size_t(place)]));
  }

  // Arguments that are not read go, but for those that a loop carries.
  void prune() {
    const auto read = values_read(*graph);
    Backward kept = out;
    kept.arguments.clear(), kept.slices = 0;
    std::vector<GraphInput> inputs;
    std::vector<std::unique_ptr<Node>> nodes;
    const size_t first_read = out.carried + out.slices;
    for (size_t i = 0; i < out.arguments.size(); i++) {
      if (i >= out.carried && !read.count(graph->inputs[i].value.get())) continue;
      kept.arguments.push_back(out.arguments[i]);
      kept.slices += i >= out.carried && i < first_read;
      inputs.push_back(std::move(graph->inputs[i]));
      nodes.push_back(std::move(graph->input_nodes[i]));
    }
    out = std::move(kept);
    graph->inputs = std::move(inputs), graph->input_nodes = std::move(nodes);
  }

  Backward assemble() {
    take_all();
    run();
    if (graph->outputs.empty()) return std::move(out);
    prune();
    graph->renumber();
    if (const std::string wrong = check_function(*graph); !wrong.empty()) fail_internal("a backward: ", wrong);
    out.function = make_function(std::move(graph));
    return std::move(out);
  }
};

const TracedFunction::Backward& TracedFunction::backward(const Request& request) {
  const auto known = backwards_.find(request);
  if (known != backwards_.end()) return known->second;
  const BackwardRequest r = request_of(request);
  const TracedBackward traced = trace_backward(forward_, r);
  if (!traced.error.empty()) fail(traced.error);
  return backwards_.emplace(request, Assembly{*this, r, traced}.assemble()).first->second;
}

}  // namespace lutra
