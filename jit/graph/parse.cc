// Parses graph text. It rebuilds each node through call_op in a recorder, so values have the types that their ops give.
// It rejects a type that is written differently, and names the line.
//
//   graph    := "graph" "{" line* "return" values ["rng" int] "}"
//   line     := "sym" leaf "=" int ["in" int "to" int] | "scalar" str "=" num ["varies"] | "let" "$" int "=" expr
//             | "guard" cmp "(" expr ["," expr] ")" bool
//             | %id "=" ("input" | "constant") str ":" type ["on" device] ["aliases" %id] ["requires_grad"]
//             | [%id {"," %id} "="] op "(" values ")" [":" type {"," type}] ["rng" int] ["of" op] [";" file ":" line]
//   values   := ... | graph, where an op takes a function; it has the symbols and numbers of the outer text
//   type     := dtype "[" exprs "]" "strides" "[" exprs "]"
#include <algorithm>
#include <unordered_map>

#include "jit/graph/function.h"
#include "jit/graph/text.h"
#include "jit/graph/text_reader.h"
#include "jit/graph/unbacked.h"

namespace lutra {
namespace {

struct Parser : TextReader {
  Parser(const std::string& text, Device device, std::unique_ptr<Graph> graph)
      : TextReader(text, "graph text", *graph->env), device(device), g(std::move(graph)) {}
  const Device device;
  int nested = 0;  // depth of nested functions
  int draws = 0;   // call indices used by nodes
  std::unique_ptr<Graph> g;
  std::unordered_map<int, Tensor> values;
  GraphRecorder recorder{*g};

  Tensor ref() {
    expect("%");
    const int id = place();
    auto it = values.find(id);
    if (it == values.end()) error(str("%", id, " is not defined"));
    return it->second;
  }

  Value function() {
    constexpr int kMaxNested = 50;
    Parser inner(text, device, function_graph(g->env));
    inner.take_scalars(*this);
    inner.at = at, inner.line = line, inner.nested = nested + 1;
    if (inner.nested > kMaxNested) error("functions are nested too deeply");
    std::unique_ptr<Graph> graph = inner.graph();
    at = inner.at, line = inner.line;
    if (std::string wrong = check_function(*graph); !wrong.empty()) error(wrong);
    return make_function(std::move(graph));
  }

  Value value(ArgType type) {
    if (type == ArgType::kFunction) return function();
    if (accept("None")) return Value();
    if (peek("%")) return ref();
    if (accept("true")) return type == ArgType::kBool ? Value(true) : Value(Scalar::of_bool(true));
    if (accept("false")) return type == ArgType::kBool ? Value(false) : Value(Scalar::of_bool(false));
    if (peek("{")) return sizes("{", "}");
    if (accept("[")) {
      std::vector<Tensor> list;
      while (!accept("]")) {
        if (!list.empty()) expect(",");
        list.push_back(ref());
      }
      return list;
    }
    if (peek("'")) {
      std::string s = quoted();
      return type == ArgType::kDevice ? Value(parse_device(s)) : Value(s);
    }
    if (type == ArgType::kDType) {
      DType t = dtype_from_name(word());
      if (t == DType::kNone) error("unknown dtype");
      return t;
    }
    int32_t id = expr();
    const SymExpr& e = (*g->env)[id];
    Scalar s = is_number(e.op) ? Scalar(e.d) : Scalar::of_int(e.i);
    if (e.op != SymOp::kConstInt && e.op != SymOp::kConstNum) s.expr = id;
    return s;
  }

  void define(int id, const Tensor& t) {
    if (!values.emplace(id, t).second) fail("%", id, " is defined twice");
  }

  void input(int id, bool constant) {
    std::string name = quoted();
    expect(":");
    Type t = type();
    for (const SymInt& s : t.strides) {
      if (s.hint < 0) error("a negative stride");
    }
    const Device on = accept("on") ? parse_device(quoted()) : device;
    Tensor v = g->add_input(name, t.sizes, t.strides, t.dtype, on);
    if (constant) g->inputs.back().constant = make_tensor(t.sizes, t.strides, t.dtype);
    if (accept("aliases")) {
      const Tensor other = ref();
      if (other->device() != on) error("memory on two devices");
      v->storage = other->storage;
    }
    v->requires_grad = accept("requires_grad");
    define(id, v);
  }

  // Checks that the inputs have the sizes and strides that leaves refer to.
  void check_leaves() {
    for (size_t id = 1; id < g->env->size(); id++) {
      const SymExpr& e = (*g->env)[int32_t(id)];
      if (e.op != SymOp::kSize && e.op != SymOp::kStride) continue;
      const bool exists = size_t(e.a) < g->inputs.size() && size_t(e.b) < g->inputs[size_t(e.a)].value->sizes.size();
      if (!exists) error("there is no " + leaf_text(e));
    }
  }

  // Reads an unbacked size from the result's type, without consuming the text: the type is parsed again afterwards.
  struct WrittenSize : UnbackedSizes {
    Parser& p;
    explicit WrittenSize(Parser& p) : p(p) {}
    bool takes(bool) override { return true; }
    SymInt size(OpId, SymInt) override {
      const auto place = p.at;
      const auto line = p.line;
      p.expect(":");
      const Type t = p.type();
      p.at = place, p.line = line;
      const SymExpr* e = t.sizes.empty() ? nullptr : &(*p.g->env)[t.sizes[0].expr];
      if (!e || e->op != SymOp::kToInt || (*p.g->env)[e->a].op != SymOp::kScalarInput) p.error("a size of no number");
      return t.sizes[0];
    }
  };

  void node(const std::vector<int>& ids) {
    std::string w = word();
    OpId op = find_op(w);
    bool inplace = op == OpId::copy_;
    if (op == OpId::kCount && !w.empty() && w.back() == '_') op = find_op(w.substr(0, w.size() - 1)), inplace = true;
    if (op == OpId::kCount) error("unknown op '" + w + "'");
    expect("(");
    Args args;
    for (const ArgInfo& arg : info(op).args) {
      if (peek(")")) break;
      if (!args.empty()) expect(",");
      args.push_back(value(arg.type));
    }
    expect(")");
    complete_args(info(op), args);
    WrittenSize written(*this);
    Results results;
    if (inplace && op != OpId::copy_) {
      recorder.call_inplace(op, args);
    } else {
      results = recorder.call(op, args);
    }
    Node& n = *g->nodes.back();
    if (inplace) {
      if (!ids.empty()) error(w + " defines no value");
      return trailer(n);
    }
    if (ids.size() != results.size()) error(str(w, " has ", results.size(), " results"));
    for (size_t i = 0; i < ids.size(); i++) {
      expect(i ? "," : ":");
      Type t = type();
      const Tensor& r = results[i];
      // channels_last may have chosen another layout than the op's rule gives.
      if (!info(op).has(kView) && t.strides.size() == r->strides.size()) r->strides = t.strides;
      bool same = t.dtype == r->dtype && same_exprs(t.sizes, r->sizes) && same_exprs(t.strides, r->strides);
      if (!same) error(str("the type of %", ids[i], " is ", describe(r), " strides ", to_string(r->strides)));
      define(ids[i], r);
    }
    trailer(n);
  }
  void trailer(Node& n) {
    if (peek("rng") && n.rng < 0) error(str(name(n.op), " draws no random numbers"));
    if (accept("rng")) n.rng = place(), draws = std::max(draws, n.rng + 1);
    if (accept("of")) {
      const std::string w = word();
      n.origin = find_op(w);
      if (n.origin == OpId::kCount) error("unknown op '" + w + "'");
    }
    if (accept("written")) n.written = place();
    read_location(n.file, n.line);
  }

  void guard() {
    std::string w = word();
    int i = 0;
    while (i <= int(SymCmp::kExact) && w != name(SymCmp(i))) i++;
    if (i > int(SymCmp::kExact)) error("unknown guard '" + w + "'");
    expect("(");
    int32_t a = expr(), b = 0;
    if (arity(SymCmp(i)) == 2) expect(","), b = expr();
    expect(")");
    bool outcome = accept("true");
    if (!outcome) expect("false");
    if (g->env->ask(SymCmp(i), a, b) != outcome) error("the guard contradicts the hints");
  }

  void statement() {
    if (accept("sym")) {
      if (nested) error("a function has its caller's symbols");
      read_sym();
    } else if (accept("scalar")) {
      std::string name;
      const double hint = read_scalar(name);
      const Scalar s = g->add_scalar(name, hint);
      if (accept("varies")) g->env->let_vary(s.expr);
    } else if (accept("let")) {
      read_let();
    } else if (accept("guard")) {
      if (nested) error("a function has its caller's guards");
      guard();
    } else {
      std::vector<int> ids;
      while (accept("%")) {
        ids.push_back(place());
        if (!accept(",")) expect("=");
      }
      bool constant = false;
      if (ids.size() == 1 && (accept("input") || (constant = accept("constant")))) return input(ids[0], constant);
      node(ids);
    }
  }

  std::unique_ptr<Graph> run() {
    std::unique_ptr<Graph> made = graph();
    skip();
    if (at < text.size()) error("text after the end");
    return made;
  }

  std::unique_ptr<Graph> graph() {
    SymScope scope(g->env.get());
    GradModeScope no_grad(false);
    expect("graph");
    expect("{");
    while (!accept("return")) {
      skip();
      if (at >= text.size()) error("the graph has no end");
      placed([&] { statement(); });
    }
    placed([&] { results(); });
    g->renumber();
    return std::move(g);
  }

  void results() {
    while (!peek("}") && !peek("rng")) {
      if (!g->outputs.empty()) expect(",");
      g->outputs.push_back(value(ArgType::kOperand));
    }
    const int made = g->rng_calls;
    g->rng_calls = accept("rng") ? place() : 0;
    if (g->rng_calls < std::max(draws, made)) error("more random numbers are drawn than the graph says");
    if (!nested) check_leaves();
    expect("}");
  }
};

}  // namespace

std::unique_ptr<Graph> parse_graph(const std::string& text, Device device) {
  return Parser(text, device, std::make_unique<Graph>()).run();
}

void move_to(Graph& graph, Device device) {
  for (const auto* nodes : {&graph.input_nodes, &graph.nodes}) {
    for (const auto& n : *nodes) {
      for (const Tensor& t : n->results) t->storage->device = device;
    }
  }
  graph.device = device;
}

}  // namespace lutra
