// join_parts: a sum of many parts of one tensor, each with zeros around it, is one join of what stands in each place.
// The gradient of a tensor whose parts were used one by one (x[i] in a loop, unbind, split) is such a sum.
//
//   sum = ((part 3 + part 2) + part 1) + part 3'   becomes   cat(part 1, part 2, part 3 + part 3') + 0
//
// The bits stay: x + 0 is x, but for -0, which becomes 0 where a zero is added, however often and whenever. Of a sum
// that begins with another tensor, that tensor is added last; so each place then has one part at most.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "jit/passes/passes.h"
#include "ops/decompose/emit.h"
#include "ops/defs/each_tensor.h"
#include "ops/grad/parts.h"

namespace lutra {
namespace {

// Fewer parts are one kernel with what reads them.
constexpr size_t kFewestParts = 8;

// t as a part with zeros around it.
bool find_part(const Tensor& t, PlacedPart& p) {
  return p.find(t->node->op, t->node->args, t) && gives_zeros(p.around->node->op, p.around->node->args);
}

bool is_sum(const Node& n) { return !n.inplace && n.results.size() == 1 && gives_sum(n.op, n.args, n.results[0]); }

struct Sum {
  Tensor first;  // null: a part
  std::vector<PlacedPart> parts;
};

class Sums {
 public:
  explicit Sums(const Graph& g) {
    for (const auto& n : g.nodes) {
      each_tensor(n->args, [&](const Tensor& t) { uses_[t.get()]++; });
    }
    each_tensor(g.outputs, [&](const Tensor& t) { uses_[t.get()]++; });
    // What a longer sum goes on with is no sum of its own.
    for (const auto& n : g.nodes) {
      if (!is_sum(*n) || !is_sum(*n->args[0].tensor()->node)) continue;
      PlacedPart p;
      if (uses_[n->args[0].tensor().get()] == 1 && find_part(n->args[1].tensor(), p))
        inner_[n->args[0].tensor()->node] = true;
    }
  }

  // The sum that a node is the last term of; without parts where it is none that can be joined.
  Sum find(const Node& n) const {
    Sum sum;
    if (!is_sum(n) || inner_.count(&n)) return sum;
    Tensor t = n.results[0];
    for (;;) {
      PlacedPart p;
      if (!is_sum(*t->node) || !find_part(t->node->args[1].tensor(), p)) break;
      sum.parts.push_back(p);
      t = t->node->args[0].tensor();
      if (uses_.at(t.get()) != 1) break;
    }
    PlacedPart p;
    if (find_part(t, p)) {
      sum.parts.push_back(p);
    } else {
      sum.first = t;
    }
    std::reverse(sum.parts.begin(), sum.parts.end());
    if (!can_join(sum, n.results[0])) sum.parts.clear();
    return sum;
  }

 private:
  // Parts along one dimension, none of which takes a place that another one takes in part.
  static bool can_join(const Sum& sum, const Tensor& whole) {
    if (sum.parts.size() < kFewestParts || !whole->is_contiguous()) return false;
    std::map<int64_t, int64_t> places;
    for (const PlacedPart& p : sum.parts) {
      if (p.dim != sum.parts[0].dim) return false;
      const auto [at, fresh] = places.emplace(p.from, p.to);
      if (!fresh && (sum.first || at->second != p.to)) return false;
    }
    int64_t end = 0;
    for (const auto& [from, to] : places) {
      if (from < end) return false;
      end = to;
    }
    return places.size() > 1;
  }

  std::unordered_map<const TensorImpl*, int> uses_;
  std::unordered_map<const Node*, bool> inner_;
};

// What stands in each place, in order, with zeros between.
Tensor joined(const Rebuilder& b, const Sum& sum, const Tensor& whole) {
  const int64_t dim = sum.parts[0].dim;
  std::map<int64_t, Tensor> pieces;
  for (const PlacedPart& p : sum.parts) {
    Tensor& piece = pieces[p.from];
    const Tensor value = p.thin ? unsqueeze(b.map(p.value), vdim(dim)) : b.map(p.value);
    piece = piece ? add(piece, value) : value;
  }
  std::vector<Tensor> list;
  int64_t end = 0;
  const auto fill = [&](int64_t to) {
    if (to == end) return;
    Sizes sizes = whole->sizes;
    sizes[size_t(dim)] = to - end;
    list.push_back(full(sizes, 0.0, whole->dtype, whole->device()));
  };
  for (const auto& [from, piece] : pieces) {
    fill(from);
    list.push_back(piece);
    end = from + piece->sizes[size_t(dim)].hint;
  }
  fill(whole->sizes[size_t(dim)].hint);
  return add(join(std::move(list), dim), Scalar(0.0));
}

}  // namespace

GraphPtr join_parts(const Graph& g) {
  SymScope symbols(g.env.get());
  const Sums sums(g);
  return rebuild(g, [&](Rebuilder& b, const Node& n, Args&, Results& results) {
    const Sum sum = sums.find(n);
    if (sum.parts.empty()) return false;
    const ModeScope mode(&b.recorder);
    const Tensor parts = joined(b, sum, n.results[0]);
    results = {sum.first ? add(b.map(sum.first), parts) : parts};
    return true;
  });
}

}  // namespace lutra
