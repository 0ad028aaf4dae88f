// The graph verifier: the invariants of graph.h, checked after every pass in debug builds.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "jit/graph/function.h"

namespace lutra {
namespace {

struct Verifier {
  const Graph& g;
  const bool may_have_symbols = true;  // false: a function with another env than its caller's
  std::unordered_set<const TensorImpl*> defined{};
  std::string problem{};

  void check(bool ok, const std::string& what) {
    if (!ok && problem.empty()) problem = what;
  }
  void use(const Tensor& t, const std::string& where) {
    if (t) check(defined.count(t.get()), where + " uses a value that no earlier node defines");
  }
  void use(const Value& v, const std::string& where) {
    if (v.is<Tensor>()) use(v.tensor(), where);
    if (v.is<std::vector<Tensor>>()) {
      for (const Tensor& t : v.as<std::vector<Tensor>>()) use(t, where);
    }
    if (v.is<FunctionRef>()) function(graph_of(v.as<FunctionRef>()), where);
    if (v.is<Scalar>()) sym(v.as<Scalar>().expr, where);
    if (v.is<Sizes>()) {
      for (SymInt s : v.as<Sizes>()) sym(s.expr, where);
    }
  }
  void function(const Graph& f, const std::string& where) {
    std::string wrong = Verifier{f, f.env == g.env}.run();
    if (wrong.empty()) wrong = check_function(f);
    check(wrong.empty(), where + " has a function: " + wrong);
  }
  void sym(int32_t expr, const std::string& where) {
    check(expr >= 0 && size_t(expr) < g.env->size(), where + " has a symbol that is not in the graph's env");
    check(may_have_symbols || expr == 0, where + " has a symbol that is not its caller's");
  }
  void define(const Tensor& t, const Node& n, size_t i, const std::string& where) {
    check(bool(t) && t->is_fake(), where + " has a result that is not a FakeTensor");
    if (!problem.empty()) return;
    check(t->node == &n && size_t(t->result) == i, where + " has a result of another node");
    check(t->sizes.size() == t->strides.size(), where + " has a result with sizes and strides of different rank");
    for (size_t d = 0; d < t->sizes.size(); d++) sym(t->sizes[d].expr, where), sym(t->strides[d].expr, where);
    defined.insert(t.get());
  }

  void node(const Node& n) {
    std::string where = str("node ", n.id, " (", name(n.op), ")");
    check(n.op < OpId::kCount && !n.is_input(), where + " is not an op");
    if (!problem.empty()) return;
    check(n.args.size() <= info(n.op).args.size(), where + " has too many arguments");
    for (const Value& v : n.args) use(v, where);
    check(info(n.op).has(kRandom) == (n.rng >= 0), where + " must have a call index exactly if it is random");
    check(n.rng < g.rng_calls, where + " has a call index that the graph does not consume");
    if (n.inplace) {
      check(n.results.size() == 1 && n.results[0].same(n.args[0].tensor()),
            where + " must result in its first argument");
      return;
    }
    const bool counted = info(n.op).has(kList) || int(n.results.size()) == info(n.op).results;
    check(counted, where + " has a wrong number of results");
    for (size_t i = 0; i < n.results.size(); i++) define(n.results[i], n, i, where);
  }

  std::string run() {
    check(g.inputs.size() == g.input_nodes.size(), "inputs without their nodes");
    for (size_t i = 0; i < g.inputs.size() && problem.empty(); i++) {
      define(g.inputs[i].value, *g.input_nodes[i], 0, "input '" + g.inputs[i].name + "'");
    }
    for (size_t i = 0; i < g.nodes.size() && problem.empty(); i++) node(*g.nodes[i]);
    for (const Value& v : g.outputs) use(v, "return");
    return problem;
  }
};

// Returns, for the first `inputs` inputs and then for each result, the index of the first of them with the same memory.
std::vector<size_t> sharing(const Graph& g, size_t inputs) {
  std::unordered_map<const Storage*, size_t> first;
  std::vector<size_t> all;
  const auto add = [&](const Tensor& t) {
    all.push_back(t ? first.emplace(t->storage.get(), all.size()).first->second : 0);
  };
  for (size_t i = 0; i < inputs; i++) add(g.inputs[i].value);
  for (const Value& v : g.outputs) add(v.is<Tensor>() ? v.tensor() : Tensor());
  return all;
}

}  // namespace

std::string verify(const Graph& graph) { return Verifier{graph}.run(); }

std::string verify_sharing(const Graph& before, const Graph& after) {
  const size_t inputs = before.inputs.size();
  const auto is_new = [&](const GraphInput& in) { return bool(in.constant); };
  const bool kept = after.inputs.size() >= inputs && after.outputs.size() == before.outputs.size();
  // A pass may append constants to the inputs.
  if (!kept || !std::all_of(after.inputs.begin() + ptrdiff_t(inputs), after.inputs.end(), is_new)) {
    return "another number of inputs and results";
  }
  const std::vector<size_t> was = sharing(before, inputs), is = sharing(after, inputs);
  for (size_t i = before.inputs.size(); i < was.size(); i++) {
    if (was[i] != is[i]) return str("result ", i - before.inputs.size(), " shares its memory otherwise than before");
  }
  return "";
}

}  // namespace lutra
