// pad_rows: pads the rows of the operands and results of a GPU's large products to multiples of 16 bytes, so that the
// products need not copy them (see ops/extern/padded_rows.h). The bits do not change: the products are the same, and
// the order of other readers does not depend on the padding.
//
// Invariants:
// 1. Only the result of a product or a pointwise op is padded. The readers of it and of its views must be pointwise
//    ops, reductions that do not reduce the last dimension together with others, or products that would copy it into
//    padded rows. For any other product the library would choose another kernel, perhaps with other bits.
// 2. The sizes of the value and of its products are constants. For other sizes the library would use other kernels.
#include <algorithm>
#include <unordered_set>

#include "jit/device/backend.h"
#include "jit/passes/passes.h"
#include "ops/extern/padded_rows.h"

namespace lutra {
namespace {

using TensorSet = std::unordered_set<const TensorImpl*>;

bool is_simple_reduction(OpId op) {
  return op == OpId::sum || op == OpId::amax || op == OpId::amin || op == OpId::prod;
}

// Returns false if the node reduces rows together with other dimensions.
bool keeps_order(const Node& n) {
  const Value& dims = n.args[1];
  const int64_t rank = n.args[0].tensor()->dim();
  if (dims.is_none()) return rank < 2;
  if (!dims.is<Sizes>() || dims.as<Sizes>().size() == 1) return true;
  if (dims.as<Sizes>().empty()) return rank < 2;
  for (const SymInt& d : dims.as<Sizes>()) {
    if (d.hint == -1 || d.hint == rank - 1) return false;
  }
  return true;
}

bool may_be_padded(const Tensor& t) {
  if (t->dim() < 2 || !backend_of(t->device()).preferences.padded_products) return false;
  int64_t stride = 1;
  for (size_t d = t->sizes.size(); d-- > 0;) {
    if (!t->sizes[d].is_constant() || !t->strides[d].is_constant() || t->strides[d].hint != stride) return false;
    stride *= t->sizes[d].hint;
  }
  return true;
}

Sizes padded_strides(const Tensor& t) {
  Sizes strides = t->sizes;
  int64_t stride = padded_row(t->dtype, t->sizes.back().hint);
  strides.back() = 1;
  for (size_t d = strides.size() - 1; d-- > 0; stride *= t->sizes[d].hint) strides[d] = stride;
  return strides;
}

class Padding {
 public:
  explicit Padding(const Graph& g) {
    for (const auto& n : g.nodes) {
      visit(*n);
      const bool makes = n->op == OpId::mm || is_pointwise(*n);
      for (const Tensor& t : n->results) {
        if (makes && may_be_padded(t)) bases_.insert(t.get());
      }
    }
    for (const Value& v : g.outputs) fix(v);
    for (const auto& n : g.nodes) {
      if (is_pointwise(*n)) follow(*n);
    }
  }
  bool pads(const TensorImpl* t) const { return wanted_.count(t) && bases_.count(t) && !fixed_.count(t); }

 private:
  const TensorImpl* base(const Tensor& t) const {
    const auto at = view_of_.find(t.get());
    return at == view_of_.end() ? t.get() : at->second;
  }
  void fix(const Value& v) {
    if (v.is<Tensor>() && v.tensor()) fixed_.insert(base(v.tensor()));
    if (!v.is<std::vector<Tensor>>()) return;
    for (const Tensor& t : v.as<std::vector<Tensor>>()) fixed_.insert(base(t));
  }
  // Pads a pointwise op's result like its operand, so that the result can use the operand's memory.
  void follow(const Node& n) {
    for (const Value& v : n.args) {
      if (!v.is<Tensor>() || !v.tensor() || !pads(base(v.tensor()))) continue;
      if (n.results[0]->dim() >= 2 && v.tensor()->sizes.back().hint == n.results[0]->sizes.back().hint)
        wanted_.insert(n.results[0].get());
    }
  }
  void visit(const Node& n) {
    if (n.op == OpId::mm) return visit_product(n);
    if (is_pointwise(n) || (is_simple_reduction(n.op) && keeps_order(n))) return;
    // Views that keep rows whole.
    const bool turns = n.op == OpId::transpose || n.op == OpId::permute;
    if (turns || n.op == OpId::view) {
      const Tensor &from = n.args[0].tensor(), &to = n.results[0];
      const bool rows = to->dim() >= 2 && from->dim() >= 2 && to->sizes.back().is_constant() &&
                        from->strides.back().hint == 1 && to->sizes.back().hint == from->sizes.back().hint;
      view_of_[to.get()] = base(from);
      if (turns || rows) return;
    }
    for (const Value& v : n.args) fix(v);
  }
  void visit_product(const Node& n) {
    const Tensor &a = n.args[0].tensor(), &b = n.args[1].tensor(), &c = n.results[0];
    const int64_t rows = c->sizes[0].hint, columns = c->sizes[1].hint, depth = a->sizes[1].hint;
    const bool constant = c->sizes[0].is_constant() && c->sizes[1].is_constant() && a->sizes[1].is_constant();
    const bool large = constant && is_large_product(c->dtype, rows, columns, depth);
    const auto want = [&](const Tensor& t, int64_t uses) {
      const int64_t apart = std::max(t->strides[0].hint, t->strides[1].hint);
      (large && wants_padded_rows(t->dtype, apart, uses) ? wanted_ : fixed_).insert(base(t));
    };
    want(a, columns), want(b, rows), want(c, depth);
  }

  std::unordered_map<const TensorImpl*, const TensorImpl*> view_of_;  // maps a view to its value
  TensorSet wanted_, fixed_, bases_;
};

}  // namespace

GraphPtr pad_rows(const Graph& g) {
  SymScope symbols(g.env.get());
  const Padding choice(g);
  return rebuild(g, [&](Rebuilder& b, const Node& n, Args& args, Results& results) {
    if (n.inplace || info(n.op).has(kView) || info(n.op).has(kMutates)) return false;
    results = b.copy(n, args);
    for (size_t i = 0; i < results.size(); i++) {
      const Tensor& old = n.results[i];
      results[i]->strides = choice.pads(old.get()) ? padded_strides(old) : old->strides;
    }
    return true;
  });
}

}  // namespace lutra
