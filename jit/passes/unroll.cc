// unroll: replaces a loop of few steps, known before the run, by its steps, and a known branch by its function. A
// deciding value is known if it is computed from constants alone. The pass computes it by eager ops. It does not run
// ops that may fail, since their errors belong to the run. The backward of such a loop becomes its steps, too; cse
// merges the steps that it repeats with the forward's.
// For an unknown branch it computes both sides if that takes no longer than choosing one: then the ops around can fuse
// with them.
#include <algorithm>

#include "jit/device/backend.h"
#include "jit/graph/function.h"
#include "jit/graph/replay.h"
#include "jit/passes/passes.h"
#include "ops/decompose/emit.h"
#include "ops/defs/autocast.h"
#include "ops/defs/control.h"
#include "ops/defs/cost.h"
#include "ops/defs/each_tensor.h"
#include "ops/defs/element.h"

namespace lutra {
namespace {

using Tensors = std::vector<Tensor>;

constexpr size_t kMaxNodes = 128;  // how many nodes a loop may become, inner loops included; twice as many for a
                                   // backward
constexpr int64_t kMaxElements = 16;
constexpr int kMaxDepth = 64;
// Limits for computing both sides of a branch.
constexpr int64_t kMaxBothSides = 1 << 16;  // additions
constexpr size_t kMaxSideNodes = 24;        // in a chain each node waits for the one before
constexpr int64_t kFewElements = 32;        // fewer elements take as long

// Finds the values that depend on no input.
class Known {
 public:
  // Returns null if the value is not known.
  Tensor value(const Tensor& t) { return is_known(t, 0) ? computed(t) : Tensor(); }

 private:
  static bool is_plain(const Node& n, const Tensor& t) {
    const OpInfo& row = info(n.op);
    if (n.is_input() || n.inplace || may_fail(n) || row.has(kRandom) || row.has(kMutates) || row.has(kControl))
      return false;
    if (!backend_of(t->device()).has_host_memory() || !t->numel().is_constant()) return false;
    const auto is_constant = [](const SymInt& s) { return s.is_constant(); };
    for (const Value& v : n.args) {
      if (v.is<Scalar>() && v.as<Scalar>().expr) return false;
      if (v.is<Device>() && !backend_of(v.as<Device>()).has_host_memory()) return false;
      if (!v.is<Sizes>()) continue;
      if (!std::all_of(v.as<Sizes>().begin(), v.as<Sizes>().end(), is_constant)) return false;
    }
    return t->numel().hint <= kMaxElements;
  }
  bool is_known(const Tensor& t, int depth) {
    if (values_.count(t.get())) return true;
    if (depth > kMaxDepth || !t->node || !is_plain(*t->node, t)) return false;
    bool known = true;
    each_tensor(t->node->args, [&](const Tensor& arg) { known = known && (!arg || is_known(arg, depth + 1)); });
    return known;
  }
  Tensor computed(const Tensor& t) {
    if (const auto it = values_.find(t.get()); it != values_.end()) return it->second;
    Args args = t->node->args;
    bool known = true;
    each_argument_tensor(args, [&](size_t, Tensor& arg) {
      if (arg) known = (arg = computed(arg)) && known;
    });
    return values_[t.get()] = known ? result_of(*t->node, std::move(args), size_t(t->result)) : Tensor();
  }
  // Returns null if the op refuses these elements.
  static Tensor result_of(const Node& n, Args args, size_t result) {
    const AutocastOff off;
    const ModeScope none(nullptr);
    try {
      return call_op(n.op, std::move(args))[result];
    } catch (const Error& e) {
      if (e.kind != ErrorKind::kUser && e.kind != ErrorKind::kData) throw;
      return Tensor();
    }
  }
  std::unordered_map<const TensorImpl*, Tensor> values_;
};

// The work of both sides of a branch.
struct Work {
  int64_t additions = 0;
  size_t nodes = 0;   // views are not counted
  bool plain = true;  // only loops over elements
  bool fits() const { return plain && additions <= kMaxBothSides && nodes <= kMaxSideNodes; }

  void add(const Graph& side) {
    for (const auto& n : side.nodes) nodes += !info(n->op).has(kView);
    if (!fits()) return;
    const GraphPtr primitives = decompose(side);
    for (const auto& n : primitives->nodes) {
      add(*n);
      if (!fits()) return;
    }
  }

 private:
  void add(const Node& n) {
    const OpInfo& row = info(n.op);
    const bool loop = row.has(kPointwise) || row.has(kView) || row.has(kCreation);
    const bool other = row.has(kRandom) || row.has(kMutates) || may_fail(n) || n.inplace;
    plain = plain && (control_of(n.op) == Control::kCond || (loop && !other));
    for (const Value& v : n.args) {
      if (v.is<FunctionRef>()) add(graph_of(v.as<FunctionRef>()));
    }
    for (const Tensor& t : n.results) {
      if (!row.has(kView)) additions += std::max(t->numel().hint, kFewElements) * element_work(n.op);
    }
  }
};

// An attempt to unroll an outermost loop.
struct Attempt {
  size_t left;             // nodes that it may still record, including those that it drops again
  bool both_sides = true;  // it may compute both sides of branches
  bool chose = false;      // it computed both sides of some branch
};

class Unroller {
 public:
  // attempt: of the enclosing outermost loop; null if there is none.
  explicit Unroller(Rebuilder& b, Attempt* attempt = nullptr) : b_(b), attempt_(attempt) {}

  // Returns false, and records nothing, if the node stays.
  bool run(const Node& n, const Args& args, Results& results) {
    if (attempt_ || control_of(n.op) == Control::kCond) return try_to(n, args, results);
    const size_t most = control_of(n.op) == Control::kWhileLoopBack ? 2 * kMaxNodes : kMaxNodes;
    Attempt own{most};
    attempt_ = &own;
    if (try_to(n, args, results)) return true;
    if (!own.chose) return false;
    own = {most, false};  // both sides of its branches may be too much work where choosing one is not
    return try_to(n, args, results);
  }

 private:
  bool try_to(const Node& n, const Args& args, Results& results) {
    const size_t before = b_.graph->nodes.size();
    if (unrolled(n, args, results)) return true;
    b_.graph->nodes.resize(before);
    known_ = Known();
    return false;
  }
  bool unrolled(const Node& n, const Args& args, Results& results) {
    switch (control_of(n.op)) {
      case Control::kCond: return cond(args, results) || both_sides(n, args, results);
      case Control::kWhileLoop: return while_loop(args, results);
      case Control::kWhileLoopBack: return while_loop_back(args, results);
      case Control::kScan:
      case Control::kNone: break;
    }
    return false;
  }

  static const Tensors& list(const Args& args, size_t i) { return args[i].as<Tensors>(); }
  static const Graph& graph(const Args& args, size_t i) { return graph_of(args[i].as<FunctionRef>()); }
  static Tensors joined(Tensors a, const Tensors& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  bool spend(size_t nodes) {
    if (!attempt_) return true;
    const bool fits = nodes <= attempt_->left;
    attempt_->left -= fits ? nodes : attempt_->left;
    return fits;
  }

  // Returns false if the call needs more nodes than are left.
  bool call(const Graph& f, const Tensors& arguments, Tensors& results) {
    GraphValues now(f, arguments);
    for (const auto& n : f.nodes) {
      Args args = now.arguments_of(*n);
      b_.at(*n);
      Results made;
      if (!Unroller(b_, attempt_).run(*n, args, made)) {
        if (!spend(1)) return false;
        made = b_.recorder.call(n->op, args);
      }
      now.add(*n, made);
    }
    results = now.outputs();
    return true;
  }

  bool cond(const Args& args, Results& results) {
    const Tensor pred = known_.value(args[0].tensor());
    if (!pred) return false;
    const bool first = Elements(pred).at(0).to_double() != 0;
    Tensors out;
    if (!call(graph(args, first ? 1 : 2), list(args, first ? 3 : 4), out)) return false;
    results = out;
    return true;
  }

  bool both_sides(const Node& n, const Args& args, Results& results) {
    if (attempt_ && !attempt_->both_sides) return false;
    Work work;
    work.add(graph(args, 1)), work.add(graph(args, 2));
    if (!work.fits()) return false;
    if (attempt_) attempt_->chose = true;
    Tensors f, g;
    if (!call(graph(args, 1), list(args, 3), f) || !call(graph(args, 2), list(args, 4), g)) return false;
    const ModeScope mode(&b_.recorder);
    const Tensor first = to_dtype(reshape(args[0].tensor(), {}), DType::kBool);
    results.clear();
    for (size_t i = 0; i < f.size(); i++) results.push_back(laid_as(where(first, f[i], g[i]), n.results[i]));
    return true;
  }

  bool while_loop(const Args& args, Results& results) {
    Tensors now = list(args, 2), test;
    const size_t carried = now.size();
    std::vector<Tensors> kept;  // by step
    while (kept.size() <= kMaxNodes && call(graph(args, 0), joined(now, list(args, 3)), test)) {
      const Tensor goes_on = known_.value(test[0]);
      if (!goes_on) return false;
      if (Elements(goes_on).at(0).to_double() == 0) {
        const size_t before = b_.graph->nodes.size();
        results = joined(now, stacks(args, kept));
        return !kept.empty() && spend(b_.graph->nodes.size() - before);
      }
      if (!call(graph(args, 1), joined(now, list(args, 4)), now)) return false;
      kept.emplace_back(now.begin() + ptrdiff_t(carried), now.end());
      now.resize(carried);
    }
    return false;
  }

  Tensors stacks(const Args& args, const std::vector<Tensors>& kept) {
    const ModeScope mode(&b_.recorder);
    const std::vector<TensorType> types = args[1].as<FunctionRef>()->results();
    const size_t carried = list(args, 2).size();
    const int64_t n = args[5].sym_int().hint;
    Tensors out;
    for (size_t k = 0; k < types.size() - carried; k++) {
      Tensors made;
      for (size_t step = 0; step < kept.size() && int64_t(step) < n; step++) made.push_back(kept[step][k]);
      out.push_back(stacked_steps(made, n, types[carried + k], list(args, 2)[0]->device()));
    }
    return out;
  }

  bool while_loop_back(const Args& args, Results& results) {
    const Tensor steps = known_.value(args[2].tensor());
    if (!steps) return false;
    const auto n = size_t(Elements(steps).at(0).to_double());
    if (n == 0 || n > kMaxNodes) return false;
    Tensors carried = list(args, 3), sums = list(args, 5);
    std::vector<Tensors> saved;
    for (size_t step = 0; step < n; step++) {
      Tensors out;
      if (!call(graph(args, 0), joined(carried, list(args, 4)), out)) return false;
      saved.emplace_back(out.begin() + ptrdiff_t(carried.size()), out.end());
      out.resize(carried.size());
      carried = std::move(out);
    }
    for (; !saved.empty(); saved.pop_back()) {
      if (!call(graph(args, 1), joined(joined(sums, saved.back()), list(args, 6)), sums)) return false;
    }
    results = sums;
    return true;
  }

  Rebuilder& b_;
  Attempt* attempt_;
  Known known_;
};

}  // namespace

GraphPtr unroll(const Graph& g) {
  return rebuild(g, [](Rebuilder& b, const Node& n, Args& args, Results& results) {
    return info(n.op).has(kControl) && Unroller(b).run(n, args, results);
  });
}

}  // namespace lutra
