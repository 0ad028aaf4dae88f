// cse: a pure node equal to an earlier one (same op, same arguments) is replaced by it.
#include <cmath>

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
  std::unordered_map<std::string, Results> seen;
  return rebuild(g, [&](Rebuilder& b, const Node& n, Args& args, Results& results) {
    if (n.inplace || info(n.op).has(kRandom) || info(n.op).has(kMutates)) return false;
    Key key{{}, *g.env};
    key.out << name(n.op);
    for (const Value& v : args) key.add(v);
    Results& known = seen[key.out.str()];
    if (known.empty()) known = b.copy(n, args);
    results = known;
    return true;
  });
}

}  // namespace lutra
