// cse: a pure node equal to an earlier one (same op, same arguments) is replaced by it. Memory that leaves the graph is
// not shared by it: two results that are equal may be written to afterwards, each on its own.
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
    if (v.is<Sizes>()) {
      for (SymInt s : v.as<Sizes>()) out << ',' << (s.expr ? 'e' : 'c') << (s.expr ? int64_t(s.expr) : s.hint);
    }
    if (v.is<std::vector<Tensor>>()) {
      for (const Tensor& t : v.as<std::vector<Tensor>>()) add(t);
    }
  }
};

}  // namespace

GraphPtr cse(const Graph& g) {
  struct Seen {
    Results results;
    bool leaves = false;
  };
  std::unordered_map<std::string, Seen> seen;
  std::unordered_set<const Storage*> leaving;
  for (const Value& v : g.outputs) {
    if (v.is<Tensor>() && v.tensor()) leaving.insert(v.tensor()->storage.get());
  }
  return rebuild(g, [&](Rebuilder& b, const Node& n, Args& args, Results& results) {
    if (n.inplace || info(n.op).has(kRandom) || info(n.op).has(kMutates)) return false;
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
