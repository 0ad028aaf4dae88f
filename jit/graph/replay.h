// Calls a graph's nodes again, on other values.
#pragma once
#include <unordered_map>
#include <vector>

#include "jit/graph/graph.h"
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

}  // namespace lutra
