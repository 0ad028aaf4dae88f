// sink_views: computes op(view(x), ...) in x's own shape if all readers view it in that shape. It replaces a view back
// to a former shape by the value of that shape. So the ops on both sides of such views run over the same loops and can
// be one kernel, e.g. the bias of a linear layer and the loss after it. The bits do not change: pointwise ops do not
// depend on the shape.
#include <algorithm>
#include <unordered_map>

#include "jit/passes/passes.h"
#include "ops/defs/each_tensor.h"

namespace lutra {
namespace {

bool same_sizes(const Tensor& a, const Tensor& b) { return same_exprs(a->sizes, b->sizes); }

bool is_movable(const Node& n) {
  return info(n.op).has(kPointwise) && !info(n.op).has(kMutates) && !info(n.op).has(kRandom) && !n.inplace &&
         n.results.size() == 1;
}

// Returns true if t keeps its sizes when the dimensions before the last are merged.
bool ignores_rows(const Tensor& t) { return t->dim() <= 1; }

class Shapes {
 public:
  explicit Shapes(const Graph& g) {
    for (const auto& n : g.nodes) {
      each_tensor(n->args, [&](const Tensor& t) { users_[t.get()].push_back(n.get()); });
    }
    each_tensor(g.outputs, [&](const Tensor& t) { users_[t.get()].push_back(nullptr); });
  }

  // Returns the tensor that the node's operand is a view of, if all readers of the result view it in that tensor's
  // shape. Otherwise returns null.
  Tensor source_shape(const Node& n) const {
    if (!is_movable(n)) return {};
    const Tensor& to = n.results[0];
    Tensor shape;
    for (const Value& v : n.args) {
      if (v.is<std::vector<Tensor>>()) return {};
      if (!v.is<Tensor>() || !v.tensor()) continue;
      const Tensor& t = v.tensor();
      if (ignores_rows(t)) continue;
      const Tensor from = viewed(t);
      if (!from || !same_sizes(t, to) || (shape && !same_sizes(shape, from))) return {};
      shape = from;
    }
    if (!shape || shape->dim() == 0 || !keeps_last(shape, to)) return {};
    const auto users = users_.find(to.get());
    if (users == users_.end()) return {};
    for (const Node* user : users->second) {
      if (!user || user->op != OpId::view || !same_sizes(user->results[0], shape)) return {};
    }
    return shape;
  }

  bool leaves(const Tensor& t) const {
    const auto users = users_.find(t.get());
    return users != users_.end() && std::count(users->second.begin(), users->second.end(), nullptr);
  }

  // Returns the tensor that t is a view of. Null unless t views row-major elements.
  static Tensor viewed(const Tensor& t) {
    if (!t->node || t->node->op != OpId::view) return {};
    const Tensor& from = t->node->args[0].tensor();
    const Sizes want = contiguous_strides(from->sizes);
    for (size_t d = 0; d < want.size(); d++) {
      if (want[d].expr != from->strides[d].expr || want[d].hint != from->strides[d].hint) return {};
    }
    return from;
  }

 private:
  static bool keeps_last(const Tensor& a, const Tensor& b) {
    return b->dim() && a->sizes.back().expr == b->sizes.back().expr && a->sizes.back().hint == b->sizes.back().hint;
  }
  std::unordered_map<const TensorImpl*, std::vector<const Node*>> users_;
};

}  // namespace

GraphPtr sink_views(const Graph& g) {
  SymScope symbols(g.env.get());
  const Shapes shapes(g);
  return rebuild(g, [&](Rebuilder& b, const Node& n, Args& args, Results& results) {
    if (n.op == OpId::view && !shapes.leaves(n.results[0])) {
      const Tensor& from = args[0].tensor();
      const Tensor before = Shapes::viewed(from);
      // n's operand was sunk, so it has this shape already
      if (same_sizes(from, n.results[0])) return results = {from}, true;
      if (before && same_sizes(before, n.results[0])) return results = {before}, true;
      return false;
    }
    const Tensor shape = shapes.source_shape(n);
    if (!shape) return false;
    for (size_t i = 0; i < args.size(); i++) {
      if (!args[i].is<Tensor>() || !args[i].tensor() || ignores_rows(args[i].tensor())) continue;
      const Tensor from = b.map(Shapes::viewed(n.args[i].tensor()));
      if (!same_sizes(from, shape)) return false;  // it was sunk itself
      args[i] = from;
    }
    results = b.copy(n, args);
    return true;
  });
}

}  // namespace lutra
