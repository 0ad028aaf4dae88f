// join_parts: replaces a sum of many zero-padded parts of one tensor by one cat of the parts. The gradient of a tensor
// whose parts were used one by one (x[i] in a loop, unbind, split) is such a sum.
//
//   sum = ((part 3 + part 2) + part 1) + part 3'   becomes   cat(part 1, part 2, part 3 + part 3') + 0
//
// The bits do not change: x + 0 is x, except that -0 becomes 0, no matter how often or when a zero is added. If the sum
// begins with another tensor, that tensor is added last. Then each place may have one part only.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "jit/passes/passes.h"
#include "ops/decompose/emit.h"
#include "ops/defs/each_tensor.h"
#include "ops/grad/parts.h"

namespace lutra {
namespace {

// Fewer parts fuse into one kernel with their readers.
constexpr size_t kMinParts = 8;

// Returns true if t is a part with zeros around it; p describes it then.
bool find_part(const Tensor& t, PlacedPart& p) {
  return p.find(t->node->op, t->node->args, t) && gives_zeros(p.around->node->op, p.around->node->args);
}

bool is_sum(const Node& n) { return !n.inplace && n.results.size() == 1 && gives_sum(n.op, n.args, n.results[0]); }

struct Sum {
  Tensor first;  // null: the sum begins with a part
  std::vector<PlacedPart> parts;
};

class Sums {
 public:
  explicit Sums(const Graph& g) {
    for (const auto& n : g.nodes) {
      each_tensor(n->args, [&](const Tensor& t) { uses_[t.get()]++; });
    }
    each_tensor(g.outputs, [&](const Tensor& t) { uses_[t.get()]++; });
    // A sum that a longer sum continues is not joined by itself.
    for (const auto& n : g.nodes) {
      if (!is_sum(*n) || !is_sum(*n->args[0].tensor()->node)) continue;
      PlacedPart p;
      if (uses_[n->args[0].tensor().get()] == 1 && find_part(n->args[1].tensor(), p))
        inner_[n->args[0].tensor()->node] = true;
    }
  }

  // Returns the sum whose last term n is. Without parts if the sum cannot be joined.
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
  // Returns true if all parts are along one dimension and no two overlap partly.
  static bool can_join(const Sum& sum, const Tensor& whole) {
    if (sum.parts.size() < kMinParts || !whole->is_contiguous()) return false;
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

// Returns the sum of the parts in each place, joined in order, with zeros between.
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
