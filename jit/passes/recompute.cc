// recompute: a cheap value that is used again after a library's kernel is recomputed there from values that are in
// memory anyway, instead of being written and read. (cse merged it into one node, however far apart its uses are.)
// Examples: the forward's normalised rows, inner values of activations and masks, used again by the backward.
//
// 1. A node's stage is the largest number of library kernels, scatters and the like on any path to it. Kernels of one
//    stage may fuse, those of different stages never do.
// 2. A pointwise value stays in memory if it leaves the graph, if something other than a loop reads it, if a later
// stage
//    reads several parts of it (their kernels do not fuse with that of the whole), or if its operands in memory are
//    together larger than it.
// 3. Only nodes without side effects and random numbers are repeated, so the bits are the same.
#include <algorithm>
#include <unordered_map>

#include "jit/lower/lower.h"
#include "jit/passes/passes.h"
#include "ops/defs/cost.h"
#include "ops/defs/each_tensor.h"

namespace lutra {
namespace {

constexpr int kMaxCost = 40;  // in units of element_cost
// The operands' bytes may exceed the value's by this factor, since statistics of rows and biases come on top.
constexpr double kMaxBytes = 1.25;

bool lowers_to(const Node& n, const char* rule) { return info(n.op).lower == rule; }

bool is_view(const Node& n) { return info(n.op).has(kView); }
bool is_repeatable(const Node& n) {
  const OpInfo& op = info(n.op);
  return !n.inplace && !may_fail(n) && lowers_to(n, "pointwise") && !op.has(kRandom) && !op.has(kMutates) &&
         n.op != OpId::empty;
}

double bytes_of(const Tensor& t) { return double(t->numel().hint) * double(size_of(t->dtype)); }

// A value in memory, and how many of its bytes are read: a view may show a part of it, or repeat it.
struct Leaf {
  const Node* node;
  double bytes;
};

struct Info {
  int stage = 0;
  bool stored = true;
  bool forced = false;               // rule 2 without the comparison of sizes
  int last_use = 0;                  // the latest stage that reads it
  int last_parts = 0;                // the latest stage that reads several parts of it
  std::pair<int, const Node*> part;  // the last part read: the stage that reads it, the view
  int cost = 0;                      // of computing it from its leaves, at most kMaxCost + 1
  std::vector<Leaf> leaves;  // values in memory that it is computed from; unused if it is in memory itself or is too
                             // costly
};

class Analysis {
 public:
  explicit Analysis(const Graph& g) {
    for (const auto& n : g.nodes) find_stage(*n);
    for (const Value& v : g.outputs) {
      if (v.is<Tensor>() && v.tensor()) force(v.tensor());
    }
    for (const auto& n : g.nodes) {
      if (!is_view(*n) && !n->is_copy() && !is_repeatable(*n) && !lowers_to(*n, "reduce")) {
        each_tensor(n->args, [&](const Tensor& t) { force(t); });
      }
    }
    for (const auto& n : g.nodes) decide(*n);
  }
  const Info& operator[](const Tensor& t) const {
    static const Info input;
    auto it = nodes_.find(t->node);
    return it == nodes_.end() ? input : it->second;
  }
  bool repeats(const Tensor& t, int stage) const {
    const Info& i = (*this)[t];
    return !i.stored && i.stage < stage;
  }

 private:
  void find_stage(const Node& n) {
    Info& info = nodes_[&n];
    const bool loops = is_view(n) || is_repeatable(n) || lowers_to(n, "reduce") || n.is_copy();
    each_tensor(n.args, [&](const Tensor& t) { info.stage = std::max(info.stage, (*this)[t].stage); });
    if (!loops) info.stage++;
    if (!is_view(n)) each_tensor(n.args, [&](const Tensor& t) { use(t, info.stage); });
  }
  // Notes a use of t. Looks through views, which are not uses themselves.
  void use(const Tensor& t, int stage) {
    bool part = false;
    for (const Node* n = t->node;; n = n->args[0].tensor()->node) {
      auto it = nodes_.find(n);
      if (it == nodes_.end()) return;
      Info& info = it->second;
      if (part ? info.part == std::pair<int, const Node*>(stage, t->node) : info.last_use >= stage) return;
      info.last_use = std::max(info.last_use, stage);
      if (part && info.part.first == stage) info.last_parts = std::max(info.last_parts, stage);
      if (part) info.part = {stage, t->node};
      if (!is_view(*n)) return;
      part = part || n->results[0]->numel().hint < n->args[0].tensor()->numel().hint;
    }
  }
  void force(const Tensor& t) {
    for (const Node* n = t->node;; n = n->args[0].tensor()->node) {
      auto it = nodes_.find(n);
      if (it == nodes_.end() || it->second.forced) return;
      it->second.forced = true;
      if (!is_view(*n)) return;
    }
  }
  static Leaf leaf_of(Tensor t) {
    double bytes = bytes_of(t);
    while (is_view(*t->node)) {
      t = t->node->args[0].tensor();
      bytes = std::min(bytes, bytes_of(t));
    }
    return {t->node, bytes};
  }
  void decide(const Node& n) {
    Info& info = nodes_[&n];
    if (is_view(n)) {
      const Info& of = (*this)[n.args[0].tensor()];
      info.stored = of.stored, info.cost = of.cost, info.leaves = of.leaves;
      return;
    }
    if (!is_repeatable(n)) return;
    info.cost = element_cost(n.op);
    each_tensor(n.args, [&](const Tensor& t) {
      const Info& of = (*this)[t];
      if (!of.stored) info.cost = std::min(info.cost + of.cost, kMaxCost + 1);
    });
    // A value that is too costly makes its users too costly, so its leaves do not matter.
    each_tensor(n.args, [&](const Tensor& t) {
      const Info& of = (*this)[t];
      if (info.cost > kMaxCost) return;
      for (const Leaf& leaf : of.stored ? std::vector<Leaf>{leaf_of(t)} : of.leaves) {
        const auto same = [&](const Leaf& l) { return l.node == leaf.node; };
        if (std::none_of(info.leaves.begin(), info.leaves.end(), same)) info.leaves.push_back(leaf);
      }
    });
    if (info.last_use <= info.stage) {
      info.stored = info.forced;
      return;
    }
    double bytes = 0;
    for (const Leaf& leaf : info.leaves) bytes += leaf.bytes;
    info.stored = info.forced || info.last_parts > info.stage || info.cost > kMaxCost ||
                  bytes > kMaxBytes * bytes_of(n.results[0]);
  }

  std::unordered_map<const Node*, Info> nodes_;
};

// Repeats values for a stage. A repeated value serves the whole stage.
class Repeater {
 public:
  Repeater(Rebuilder& b, const Analysis& analysis) : b_(b), analysis_(analysis) {}

  Args map(const Args& args, int stage) {
    Args out;
    for (const Value& v : args) {
      if (v.is<Tensor>() && v.tensor()) {
        out.push_back(value(v.tensor(), stage));
      } else if (v.is<std::vector<Tensor>>()) {
        std::vector<Tensor> list;
        for (const Tensor& t : v.as<std::vector<Tensor>>()) list.push_back(value(t, stage));
        out.push_back(list);
      } else {
        out.push_back(v);
      }
    }
    return out;
  }

 private:
  Tensor value(const Tensor& t, int stage) {
    if (!analysis_.repeats(t, stage)) return b_.map(t);
    Tensor& made = made_[{t.get(), stage}];
    if (!made) {
      Args args = map(t->node->args, stage);
      made = b_.copy(*t->node, std::move(args))[0];
    }
    return made;
  }

  struct Hash {
    size_t operator()(const std::pair<const TensorImpl*, int>& k) const {
      return std::hash<const void*>()(k.first) * 31 + size_t(k.second);
    }
  };
  Rebuilder& b_;
  const Analysis& analysis_;
  std::unordered_map<std::pair<const TensorImpl*, int>, Tensor, Hash> made_;
};

}  // namespace

GraphPtr recompute(const Graph& g) {
  Rebuilder b(g);  // first, because sizes may be symbols of its scope
  const Analysis analysis(g);
  Repeater repeater(b, analysis);
  for (const auto& n : g.nodes) {
    const int stage = n->results.empty() ? 0 : analysis[n->results[0]].stage;
    Args args = is_view(*n) || n->inplace ? b.map(n->args) : repeater.map(n->args, stage);
    b.set(*n, b.copy(*n, std::move(args)));
  }
  return b.finish();
}

}  // namespace lutra
