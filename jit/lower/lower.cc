// The table of lowering rules, expanded from ops.def: an op without one does not build.
#include "jit/lower/lower.h"

#include "ops/core/interrupt.h"

namespace lutra {
namespace {

using Lowering = Lowered (*)(const Node&, SymFacts&);
const Lowering kLowerings[] = {
#define OP(name, schema, results, meta, vjp, lower, ...) lower_##lower,
#include "ops/defs/ops.def"
#undef OP
};
static_assert(sizeof kLowerings / sizeof kLowerings[0] == size_t(OpId::input));

}  // namespace

Lowered lower(const Node& node, SymFacts& facts) {
  LUTRA_CHECK(node.op < OpId::input, "an input has no lowering");
  Lowered l = kLowerings[size_t(node.op)](node, facts);
  l.checks = may_fail(node);
  return l;
}

LoweredGraph lower(const Graph& graph) {
  SymScope scope(graph.env.get());
  LoweredGraph g{SymFacts(*graph.env), {}};
  g.nodes.reserve(graph.nodes.size());
  for (bool copies : {false, true}) {
    for (const auto& n : graph.nodes) {
      if (n->is_copy() != copies) continue;
      check_stop();
      g.nodes.push_back({n.get(), nullptr, copies ? n->args[0].tensor() : n->results[0], lower(*n, g.facts)});
      const Lowered::Kind kind = g.nodes.back().low.kind;
      if (kind == Lowered::kReduce) {
        std::vector<LoweredNode> parts = split_reduction(*n, g.nodes.back().low, g.facts);
        if (!parts.empty()) g.nodes.pop_back();
        for (LoweredNode& p : parts) g.nodes.push_back(std::move(p));
      }
      if (kind == Lowered::kView) continue;
      for (size_t r = 1; r < n->results.size(); r++) {
        Lowered other;
        other.kind = Lowered::kExternResult;
        other.reads = {n->results[0]};
        g.nodes.push_back({n.get(), nullptr, n->results[r], std::move(other)});
      }
    }
  }
  return g;
}

bool is_extern(OpId op) { return op < OpId::input && kLowerings[size_t(op)] == lower_extern; }

Lowered lower_decompose(const Node& node, SymFacts&) {
  fail_internal(name(node.op), ": a composite op reached the lowering; decompose comes first");
}

// The launch determines the size of its result.
Lowered lower_dynamic(const Node& node, SymFacts& facts) { return lower_extern(node, facts); }

int32_t RuleContext::operand(const Tensor& t, const Index& index) {
  size_t k = 0;
  while (k < reads_.size() && reads_[k] != t) k++;
  LUTRA_CHECK(k < reads_.size(), "an operand that the node does not read");
  return body.operand(k, t->dtype, index);
}

int64_t wrap_dim(int64_t dim, int64_t rank) { return dim < 0 ? dim + rank : dim; }

Index broadcast_index(SymFacts& facts, const Index& index, const Sizes& result, const Sizes& sizes) {
  Index out(sizes.size());
  size_t skip = result.size() - sizes.size();
  for (size_t d = 0; d < sizes.size(); d++) {
    const SymInt own = sizes[d], all = result[d + skip];
    if (own.hint == 1 && !facts.equal(own, all)) {
      // What the sizes are must hold for later sizes too, so it is asked.
      const bool stretched = facts.is_one(own) || all.hint != 1;
      facts.ask_equal(own, stretched ? SymInt(1) : all);
      if (stretched) continue;
    }
    out[d] = index[d + skip];
  }
  return out;
}

std::vector<int> stride_order(SymFacts& facts, const Sizes& strides) {
  std::vector<int> order;
  for (size_t d = 0; d < strides.size(); d++) {
    size_t at = order.size();
    while (at > 0 && facts.ask_less(strides[size_t(order[at - 1])], strides[d])) at--;
    order.insert(order.begin() + long(at), int(d));
  }
  return order;
}

}  // namespace lutra
