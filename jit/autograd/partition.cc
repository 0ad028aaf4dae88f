// Computes a minimum cut between the values that cannot be recomputed and those that backwards read.
#include "jit/autograd/partition.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "jit/autograd/min_cut.h"
#include "ops/defs/cost.h"
#include "ops/defs/each_tensor.h"

namespace lutra {
namespace {

bool is_view(const Node& n) { return info(n.op).has(kView) && !n.inplace; }

double bytes_of(const Tensor& t) { return double(t->numel().hint) * double(size_of(t->dtype)); }

// Returns true if the forward's node can run a second time: it does not write. It cannot fail on its operands either,
// since the forward would have failed.
bool is_repeatable(const Node& n) {
  const OpInfo& op = info(n.op);
  return !n.is_input() && !n.inplace && !op.has(kMutates) && !op.dynamic && n.op != OpId::empty;
}

// Returns true for a node that loops recompute from its operands on the fly.
bool is_cheap(const Node& n) { return is_repeatable(n) && !may_fail(n) && info(n.op).lower == "pointwise"; }

std::vector<int64_t> hints(const Tensor& t) {
  std::vector<int64_t> out;
  for (const SymInt& s : t->sizes) out.push_back(s.hint);
  return out;
}

// Returns the cost of running a node again, in additions.
double cost_of(const Node& n) {
  SizeLists in, out;
  double elements = 0;
  for (const Value& v : n.args) {
    if (!v.is<Tensor>()) continue;
    in.push_back(v.tensor() ? hints(v.tensor()) : std::vector<int64_t>());
    if (v.tensor()) elements = std::max(elements, double(v.tensor()->numel().hint));
  }
  for (const Tensor& t : n.results) out.push_back(hints(t)), elements = std::max(elements, double(t->numel().hint));
  return flops(n.op, in, out) + elements * element_cost(n.op);
}

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The flow network. A value is an edge from its operands to its users.
struct Network {
  const Graph& graph;
  const PartitionOptions& options;
  std::unordered_set<const Storage*> exposed{};  // memory of outputs and inputs
  std::unordered_set<const Storage*> copied{};   // inputs that are never kept themselves: they are written, or
                                                 // constants
  std::vector<Tensor> demands{};                 // bases of the values that are read and not pinned
  std::vector<Tensor> values{};                  // all values that the demands depend on, through repeatable nodes

  explicit Network(const Graph& graph, size_t results, const PartitionOptions& options)
      : graph(graph), options(options) {
    for (size_t i = 0; i < results; i++) {
      each_tensor(graph.outputs[i], [&](const Tensor& t) { exposed.insert(t->storage.get()); });
    }
    for (const GraphInput& in : graph.inputs) exposed.insert(in.value->storage.get());
    for (const auto& n : graph.nodes) {
      if (n->inplace) copied.insert(n->results[0]->storage.get());
    }
    for (const GraphInput& in : graph.inputs) {
      if (in.constant) copied.insert(in.value->storage.get());
    }
  }

  void demand(const Tensor& read) {
    demands.push_back(base_of_views(read));
    std::vector<Tensor> open = {demands.back()};
    while (!open.empty()) {
      const Tensor t = open.back();
      open.pop_back();
      if (!known_.insert(t.get()).second) continue;
      values.push_back(t);
      if (!is_repeatable(*t->node)) continue;
      each_tensor(t->node->args, [&](const Tensor& a) { open.push_back(base_of_views(a)); });
    }
  }

  bool may_repeat(const Node& n, const std::unordered_set<const Node*>& costly) const {
    return is_cheap(n) || (costly.count(&n) && is_repeatable(n));
  }

  // Returns true for an input that is kept itself, which costs nothing.
  bool is_free(const Tensor& t) const {
    return options.budget < 1 && t->node->is_input() && !copied.count(t->storage.get());
  }
  // Returns true if only a copy of t could be kept, and the copy would have other strides, on which t's readers depend.
  bool is_out_of_reach(const Tensor& t) const {
    if (is_free(t) || !exposed.count(t->storage.get())) return false;
    return !same_exprs(info(kCopyOp).meta(kCopyOp, {t, std::string("preserve_format")})[0].strides, t->strides);
  }
  double weight(const Tensor& t) const {
    if (is_free(t)) return 0;
    if (is_out_of_reach(t)) return MinCut::kInfinite;
    if (!options.random) return bytes_of(t);
    return 1 + double(mix(options.random * 1000003 + place_.at(t.get())) % 1000);
  }

  // Returns the values of the minimum cut.
  std::vector<Tensor> cut(const std::unordered_set<const Node*>& costly) {
    place_.clear();
    for (const Tensor& t : values) place_.emplace(t.get(), place_.size());
    MinCut flow;
    const int source = flow.add_node(), sink = flow.add_node();
    for (size_t i = 0; i < 2 * values.size(); i++) flow.add_node();
    const auto in = [&](const Tensor& t) { return 2 + 2 * int(place_.at(t.get())); };
    for (const Tensor& t : values) {
      flow.add_edge(in(t), in(t) + 1, weight(t));
      if (t->node->is_input() || !may_repeat(*t->node, costly)) {
        flow.add_edge(source, in(t), MinCut::kInfinite);
        continue;
      }
      each_tensor(t->node->args,
                  [&](const Tensor& a) { flow.add_edge(in(base_of_views(a)) + 1, in(t), MinCut::kInfinite); });
    }
    for (const Tensor& t : demands) flow.add_edge(in(t) + 1, sink, MinCut::kInfinite);
    flow.run(source, sink);
    const std::vector<bool> behind = flow.behind(sink);
    std::vector<Tensor> kept;
    for (const Tensor& t : values) {
      if (behind[size_t(in(t)) + 1] && !behind[size_t(in(t))]) kept.push_back(t);
    }
    return kept;
  }

  // Returns the nodes that are not recomputed by default, ordered by cost per freed byte, cheapest first.
  std::vector<const Node*> costly_nodes() const {
    std::vector<std::pair<double, const Node*>> ranked;
    std::unordered_set<const Node*> seen;
    for (const Tensor& t : values) {
      const Node* n = t->node;
      if (is_cheap(*n) || !is_repeatable(*n) || !seen.insert(n).second) continue;
      double bytes = 0;
      for (const Tensor& r : n->results) bytes += bytes_of(r);
      ranked.emplace_back(cost_of(*n) / std::max(bytes, 1.0), n);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<const Node*> nodes;
    for (const auto& [ratio, node] : ranked) nodes.push_back(node);
    return nodes;
  }

  std::unordered_set<const Node*> random_nodes() const {
    std::unordered_set<const Node*> nodes;
    for (size_t i = 0; i < values.size(); i++) {
      if (mix(options.random * 7919 + i) % 2) nodes.insert(values[i]->node);
    }
    return nodes;
  }

 private:
  std::unordered_set<const TensorImpl*> known_;
  std::unordered_map<const TensorImpl*, size_t> place_;
};

double bytes_of(const Network& network, const std::vector<Tensor>& kept) {
  double bytes = 0;
  for (const Tensor& t : kept) bytes += network.is_free(t) ? 0 : bytes_of(t);
  return bytes;
}

// Returns the cut that is cheapest to recompute among those that fit the limit. Allowing more costly nodes never makes
// a cut larger.
std::vector<Tensor> fitting_cut(Network& network, double limit) {
  if (network.options.random) return network.cut(network.random_nodes());
  std::vector<Tensor> kept = network.cut({});
  if (network.options.budget >= 1 || bytes_of(network, kept) <= limit) return kept;
  const std::vector<const Node*> nodes = network.costly_nodes();
  const auto first = [&](size_t count) { return network.cut({nodes.begin(), nodes.begin() + ptrdiff_t(count)}); };
  size_t low = 0, high = nodes.size();  // low does not fit
  kept = first(high);
  while (low + 1 < high) {
    const size_t middle = (low + high) / 2;
    std::vector<Tensor> other = first(middle);
    if (bytes_of(network, other) > limit) {
      low = middle;
    } else {
      high = middle, kept = std::move(other);
    }
  }
  return kept;
}

}  // namespace

Tensor base_of_views(Tensor t) {
  while (is_view(*t->node)) t = t->node->args[0].tensor();
  return t;
}

Partition partition(const Graph& graph, size_t results, const std::vector<bool>& pinned,
                    const PartitionOptions& options) {
  Partition out;
  Network network(graph, results, options);
  std::unordered_set<const TensorImpl*> counted;
  double pinned_bytes = 0;
  const auto once = [&](const Tensor& t) { return counted.insert(t.get()).second ? bytes_of(t) : 0; };
  for (size_t i = 0; i < pinned.size(); i++) {
    const Tensor& read = graph.outputs[results + i].tensor();
    const Tensor base = base_of_views(read);
    const double bytes = pinned[i] && base->node->is_input() ? 0 : once(base);  // a run keeps its inputs
    out.all_bytes += bytes;
    out.place.push_back(-1);
    if (!pinned[i] && !network.is_out_of_reach(base)) {
      network.demand(read);
      continue;
    }
    pinned_bytes += bytes;
    out.place.back() = int(out.kept.size());
    out.kept.push_back({read, true});
  }
  const double limit = options.budget * out.all_bytes - pinned_bytes;
  std::unordered_map<const TensorImpl*, int> kept;
  out.saved_bytes = pinned_bytes;
  for (const Tensor& t : fitting_cut(network, limit)) {
    if (network.is_free(t)) {
      for (size_t i = 0; i < graph.inputs.size(); i++) {
        if (graph.inputs[i].value.same(t)) out.inputs.push_back(i);
      }
      continue;
    }
    kept[t.get()] = int(out.kept.size());
    out.kept.push_back({t, false, network.exposed.count(t->storage.get()) > 0});
    out.saved_bytes += bytes_of(t);
  }
  for (size_t i = 0; i < pinned.size(); i++) {
    const Tensor& read = graph.outputs[results + i].tensor();
    if (auto at = kept.find(read.get()); !pinned[i] && at != kept.end()) out.place[i] = at->second;
  }
  std::unordered_set<const TensorImpl*> again;
  for (size_t i = 0; i < pinned.size(); i++) {
    const Tensor base = base_of_views(graph.outputs[results + i].tensor());
    if (out.place[i] < 0 && !kept.count(base.get()) && again.insert(base.get()).second) {
      out.recomputed_bytes += bytes_of(base);
    }
  }
  return out;
}

}  // namespace lutra
