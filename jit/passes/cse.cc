// cse: replaces a pure node by an earlier equal one (same op, same arguments), and a copy by its original. It does not
// merge memory that leaves the graph: the program may write to each of two equal results separately.
#include <cmath>
#include <unordered_set>

#include "jit/graph/text.h"
#include "jit/passes/passes.h"

namespace lutra {
namespace {

struct Key {
  std::ostringstream out;
  const SymEnv& env;

  void add(const Tensor& t) { out << '%' << static_cast<const void*>(t.get()); }
  void add(const Scalar& s) {
    if (s.expr) {
      out << 'e' << s.expr;
    } else {
      out << int(s.kind) << (s.kind == Scalar::kNumber ? number_text(s.d) : std::to_string(s.i));
      if (s.kind == Scalar::kNumber && s.d == 0 && std::signbit(s.d)) out << '-';
    }
  }
  void add(const Value& v) {
    out << '|' << v.v.index();
    if (v.is<Tensor>()) add(v.tensor());
    if (v.is<Scalar>()) add(v.as<Scalar>());
    if (v.is<bool>()) out << v.as<bool>();
    if (v.is<DType>()) out << name(v.as<DType>());
    if (v.is<Device>()) out << to_string(v.as<Device>());
    if (v.is<std::string>()) out << v.as<std::string>();
    if (v.is<FunctionRef>()) out << static_cast<const void*>(v.as<FunctionRef>().get());
    if (v.is<Sizes>()) {
      for (SymInt s : v.as<Sizes>()) out << ',' << (s.expr ? 'e' : 'c') << (s.expr ? int64_t(s.expr) : s.hint);
    }
    if (v.is<std::vector<Tensor>>()) {
      for (const Tensor& t : v.as<std::vector<Tensor>>()) add(t);
    }
  }
};

using Storages = std::unordered_set<const Storage*>;

// Returns the copies that cannot be told from their originals, with these originals. A copy that leaves the graph is
// replaced by its original as a result.
std::unordered_map<const Node*, Tensor> needless_copies(const Graph& g, Storages& leaving) {
  Storages inputs, written;
  for (const GraphInput& in : g.inputs) inputs.insert(in.value->storage.get());
  for (const auto& n : g.nodes) {
    if (n->inplace) written.insert(n->args[0].tensor()->storage.get());
  }
  std::unordered_map<const Node*, Tensor> found;
  for (const auto& n : g.nodes) {
    if (n->op != OpId::clone) continue;
    Tensor of = n->args[0].tensor();
    const Tensor& copy = n->results[0];
    if (const auto copied = found.find(of->node); copied != found.end()) of = copied->second;
    if (!same_exprs(of->strides, copy->strides) || written.count(of->storage.get())) continue;
    if (leaving.count(copy->storage.get())) {
      const bool view = info(of->node->op).has(kView);
      if (view || inputs.count(of->storage.get()) || !leaving.insert(of->storage.get()).second) continue;
    }
    found.emplace(n.get(), of);
  }
  return found;
}

}  // namespace

GraphPtr cse(const Graph& g) {
  struct Seen {
    Results results;
    bool leaves = false;
  };
  std::unordered_map<std::string, Seen> seen;
  Storages leaving;
  for (const Value& v : g.outputs) {
    if (v.is<Tensor>() && v.tensor()) leaving.insert(v.tensor()->storage.get());
  }
  const auto copies = needless_copies(g, leaving);
  return rebuild(g, [&](Rebuilder& b, const Node& n, Args& args, Results& results) {
    if (copies.count(&n)) return results = {args[0].tensor()}, true;
    if (n.inplace || info(n.op).has(kRandom) || info(n.op).has(kMutates) || info(n.op).dynamic) return false;
    Key key{{}, *g.env};
    key.out << name(n.op);
    for (const Value& v : args) key.add(v);
    bool leaves = false;
    for (const Tensor& t : n.results) leaves = leaves || leaving.count(t->storage.get()) > 0;
    Seen& known = seen[key.out.str()];
    if (known.leaves && leaves) return false;
    if (known.results.empty()) known.results = b.copy(n, args);
    known.leaves = known.leaves || leaves;
    results = known.results;
    return true;
  });
}

}  // namespace lutra
