// Bugs of passes: make some nodes of a graph wrong.
#include <algorithm>

#include "jit/graph/graph.h"
#include "jit/inject/bugs.h"

namespace lutra {
namespace {

bool alike(const Tensor& a, const Tensor& b) {
  return a->dtype == b->dtype && same_exprs(a->sizes, b->sizes) && same_exprs(a->strides, b->strides) &&
         a->device() == b->device();
}

bool is_pure(const Node& n) {
  return !n.inplace && !n.is_copy() && n.rng < 0 && n.results.size() == 1 && !info(n.op).has(kView) &&
         !info(n.op).has(kMutates);
}

void replace(Value& v, const Tensor& old, const Tensor& now) {
  if (v.is<Tensor>() && v.as<Tensor>() == old) v = now;
  if (!v.is<std::vector<Tensor>>()) return;
  for (Tensor& t : v.as<std::vector<Tensor>>()) {
    if (t == old) t = now;
  }
}

// Returns true if both have the same tensors and as many arguments.
bool same_operands(const Node& a, const Node& b, bool attributes_too) {
  if (a.op != b.op || a.args.size() != b.args.size()) return false;
  for (size_t i = 0; i < a.args.size(); i++) {
    const Value &x = a.args[i], &y = b.args[i];
    const bool tensors = x.is<Tensor>() || y.is<Tensor>() || x.is<std::vector<Tensor>>() || y.is<std::vector<Tensor>>();
    if (tensors ? x.v.index() != y.v.index() || describe(x) != describe(y)
                : attributes_too && describe(x) != describe(y))
      return false;
    if (x.is<Tensor>() && !(x.as<Tensor>() == y.as<Tensor>())) return false;
    if (x.is<std::vector<Tensor>>() && x.as<std::vector<Tensor>>() != y.as<std::vector<Tensor>>()) return false;
  }
  return true;
}

bool same_attributes(const Node& a, const Node& b) { return same_operands(a, b, true); }

}  // namespace

bool ignore_attribute(Graph* graph, Plan*) {
  auto& nodes = graph->nodes;
  for (size_t k = 1; k < nodes.size(); k++) {
    for (size_t i = 0; i < k; i++) {
      const Node &a = *nodes[i], &b = *nodes[k];
      if (!is_pure(a) || !is_pure(b) || !same_operands(a, b, false) || same_attributes(a, b)) continue;
      if (!alike(a.results[0], b.results[0])) continue;
      const Tensor now = a.results[0], old = b.results[0];
      for (size_t j = k + 1; j < nodes.size(); j++) {
        for (Value& v : nodes[j]->args) replace(v, old, now);
      }
      for (Value& v : graph->outputs) replace(v, old, now);
      return true;
    }
  }
  return false;
}

bool fail_at_exp(Graph* graph, Plan*) {
  for (const auto& n : graph->nodes) {
    if (n->op == OpId::exp) fail_internal("the bug 'crash' that LUTRA_INJECT asks for");
  }
  return false;
}

bool drop_write(Graph* graph, Plan*) {
  auto& nodes = graph->nodes;
  const auto last = std::find_if(nodes.rbegin(), nodes.rend(), [](const auto& n) { return n->is_copy(); });
  if (last == nodes.rend()) return false;
  // The output that is the written input stays.
  nodes.erase(std::next(last).base());
  return true;
}

bool wrong_operand(Graph* graph, Plan*) {
  auto& nodes = graph->nodes;
  for (size_t k = 1; k < nodes.size(); k++) {
    Node& again = *nodes[k];
    if (!is_pure(again)) continue;
    const bool repeated = std::any_of(nodes.begin(), nodes.begin() + long(k),
                                      [&](const auto& n) { return is_pure(*n) && same_attributes(*n, again); });
    if (!repeated) continue;
    for (Value& v : again.args) {
      if (!v.is<Tensor>() || !v.as<Tensor>()) continue;
      const Tensor was = v.as<Tensor>();
      for (size_t i = 0; i < k; i++) {
        const Node& other = *nodes[i];
        if (!is_pure(other) || other.results[0] == was || !alike(other.results[0], was)) continue;
        v = other.results[0];
        return true;
      }
    }
  }
  return false;
}

}  // namespace lutra
