// Calls a graph's nodes again, on other values or in another env.
#pragma once
#include <unordered_map>
#include <vector>

#include "jit/graph/function.h"
#include "ops/defs/each_tensor.h"

namespace lutra {

// Maps a graph's values to their replacements: the given arguments for its inputs, and the results of its nodes so far.
class GraphValues {
 public:
  GraphValues(const Graph& graph, const std::vector<Tensor>& arguments) : graph_(graph) {
    for (size_t i = 0; i < arguments.size(); i++) now_[graph.inputs[i].value.get()] = arguments[i];
  }

  Args arguments_of(const Node& n) const {
    Args args = n.args;
    each_argument_tensor(args, [&](size_t, Tensor& t) {
      if (t) t = now_.at(t.get());
    });
    return args;
  }
  void add(const Node& n, const Results& made) {
    for (size_t i = 0; i < made.size(); i++) now_[n.results[i].get()] = made[i];
  }
  std::vector<Tensor> outputs() const {
    std::vector<Tensor> out;
    for (const Value& v : graph_.outputs) out.push_back(now_.at(v.tensor().get()));
    return out;
  }

 private:
  const Graph& graph_;
  std::unordered_map<const TensorImpl*, Tensor> now_;
};

// Maps a node's argument: m.tensor, m.scalar and m.size map its parts.
template <class M>
Value mapped(const Value& v, const M& m) {
  if (v.is<Tensor>()) return m.tensor(v.as<Tensor>());
  if (v.is<Scalar>()) return m.scalar(v.as<Scalar>());
  if (v.is<Sizes>()) {
    Sizes out;
    for (SymInt s : v.as<Sizes>()) out.push_back(m.size(s));
    return out;
  }
  if (!v.is<std::vector<Tensor>>()) return v;
  std::vector<Tensor> list;
  for (const Tensor& t : v.as<std::vector<Tensor>>()) list.push_back(m.tensor(t));
  return list;
}

// Returns a function like f in another env. m.scalar and m.size map its numbers and sizes there.
template <class M>
FunctionRef translated(const Graph& f, const std::shared_ptr<SymEnv>& env, const M& m) {
  struct Values {
    const M& m;
    std::unordered_map<const TensorImpl*, Tensor> now{};
    Tensor tensor(const Tensor& t) const { return t ? now.at(t.get()) : t; }
    Scalar scalar(const Scalar& s) const { return m.scalar(s); }
    SymInt size(SymInt s) const { return m.size(s); }
    void add(const Tensor& t, const Tensor& made) {
      made->requires_grad = t->requires_grad;
      now[t.get()] = made;
    }
  } values{m};
  std::unique_ptr<Graph> graph = function_graph(env);
  const SymScope symbols(env.get());
  const GradModeScope no_grad(false);
  GraphRecorder recorder(*graph);
  const auto sizes = [&](const Sizes& given) { return mapped(Value(given), values).template as<Sizes>(); };
  for (const GraphInput& in : f.inputs) {
    const Tensor& t = in.value;
    values.add(t, graph->add_input(in.name, sizes(t->sizes), sizes(t->strides), t->dtype, t->device()));
  }
  for (const auto& n : f.nodes) {
    Args args;
    for (const Value& v : n->args) {
      args.push_back(v.is<FunctionRef>() ? Value(translated(graph_of(v.as<FunctionRef>()), env, m))
                                         : mapped(v, values));
    }
    recorder.set_location(n->file, n->line, n->origin);
    const Results results = recorder.call(n->op, args);
    for (size_t i = 0; i < results.size(); i++) values.add(n->results[i], results[i]);
  }
  for (const Value& v : f.outputs) graph->outputs.emplace_back(values.tensor(v.tensor()));
  graph->renumber();
  return make_function(std::move(graph));
}

// Maps to an env with the same expressions under the same ids, or a function without symbols.
struct SameIds {
  Scalar scalar(const Scalar& s) const { return s; }
  SymInt size(SymInt s) const { return s; }
};

// Maps the functions that a graph calls.
template <class M>
void translate_functions(Graph& graph, const std::shared_ptr<SymEnv>& env, const M& m) {
  for (const auto& n : graph.nodes) {
    for (Value& v : n->args) {
      if (v.is<FunctionRef>()) v = translated(graph_of(v.as<FunctionRef>()), env, m);
    }
  }
}

}  // namespace lutra
