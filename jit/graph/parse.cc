// Text to graph. Nodes are rebuilt through call_op in a recorder, so a parsed graph has the types its ops give; a type
// that is written differently is an error with its line.
//
//   graph    := "graph" "{" line* "return" values ["rng" int] "}"
//   line     := "sym" leaf "=" int | "scalar" str "=" num | "let" "$" int "=" expr
//             | "guard" cmp "(" expr ["," expr] ")" bool
//             | %id "=" ("input" | "constant") str ":" type ["aliases" %id] ["requires_grad"]
//             | [%id {"," %id} "="] op "(" values ")" [":" type {"," type}] ["rng" int] [";" file ":" line]
//   values   := ... | graph, where an op takes a function
//   type     := dtype "[" exprs "]" "strides" "[" exprs "]"
#include <cstdlib>
#include <unordered_map>

#include "jit/graph/function.h"
#include "jit/graph/text.h"
#include "ops/core/intern.h"

namespace lutra {
namespace {

struct Parser {
  Parser(const std::string& text, Device device) : text(text), device(device) {}
  const std::string& text;
  const Device device;
  size_t at = 0;
  int depth = 0;
  std::vector<int32_t> lets;  // what $0, $1 ... stand for
  int line = 1;
  std::unique_ptr<Graph> g = std::make_unique<Graph>();
  std::unordered_map<int, Tensor> values;
  GraphRecorder recorder{*g};

  [[noreturn]] void error(const std::string& what) { fail("graph text, line ", line, ": ", what); }
  void skip() {
    for (; at < text.size() && isspace(static_cast<unsigned char>(text[at])); at++) line += text[at] == '\n';
  }
  bool peek(const std::string& s) {
    skip();
    return text.compare(at, s.size(), s) == 0;
  }
  bool accept(const std::string& s) {
    if (!peek(s)) return false;
    if (isalpha(static_cast<unsigned char>(s[0])) && at + s.size() < text.size()) {
      char c = text[at + s.size()];
      if (isalnum(static_cast<unsigned char>(c)) || c == '_') return false;
    }
    at += s.size();
    return true;
  }
  void expect(const std::string& s) {
    if (!accept(s)) error("expected '" + s + "'" + (at < text.size() ? " before '" + text.substr(at, 12) + "'" : ""));
  }
  std::string word() {
    skip();
    size_t b = at;
    while (at < text.size() && (isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_')) at++;
    if (b == at) error("expected a name");
    return text.substr(b, at - b);
  }
  std::string quoted() {
    expect("'");
    std::string s;
    for (; at < text.size() && text[at] != '\''; at++) {
      if (text[at] == '\\' && at + 1 < text.size()) at++;
      s += text[at];
    }
    if (at >= text.size()) error("a string without its end");
    at++;
    return s;
  }
  // A number's text; whole tells an integer.
  std::string number(bool& whole) {
    skip();
    size_t b = at;
    if (at < text.size() && text[at] == '-') at++;
    while (at < text.size() && (isalnum(static_cast<unsigned char>(text[at])) || text[at] == '.' ||
                                ((text[at] == '-' || text[at] == '+') && text[at - 1] == 'e'))) {
      at++;
    }
    std::string s = text.substr(b, at - b);
    whole = !s.empty() && s.find_first_not_of("-0123456789") == std::string::npos;
    char* end = nullptr;
    std::strtod(s.c_str(), &end);
    if (s.empty() || *end) error("expected a number, got '" + s + "'");
    return s;
  }
  int64_t integer() {
    bool whole;
    std::string s = number(whole);
    if (!whole) error("expected an integer, got '" + s + "'");
    return std::strtoll(s.c_str(), nullptr, 10);
  }

  // Printed expressions are flat: $n stands for what is large.
  struct Nested {
    explicit Nested(Parser& p) : parser(p) {
      if (++p.depth > 200) p.error("an expression is nested too deeply");
    }
    ~Nested() { parser.depth--; }
    Parser& parser;
  };

  // An expression of the env: a constant, a leaf or op(a, b).
  int32_t expr() {
    skip();
    SymEnv& env = *g->env;
    if (accept("$")) {
      const int64_t n = integer();
      if (n < 0 || size_t(n) >= lets.size()) error(str("$", n, " is not defined"));
      return lets[size_t(n)];
    }
    Nested nested(*this);
    if (at < text.size() && isalpha(static_cast<unsigned char>(text[at])) && !peek("inf") && !peek("nan")) {
      std::string w = word();
      expect("(");
      for (int i = 0; i <= int(SymOp::kToNum); i++) {
        SymOp op = SymOp(i);
        if (w != name(op)) continue;
        if (arity(op) == 0) return leaf(op, false);
        int32_t a = expr(), b = 0;
        if (arity(op) == 2) expect(","), b = expr();
        expect(")");
        return env.make(op, a, b);
      }
      error("unknown host op '" + w + "'");
    }
    bool whole;
    std::string s = number(whole);
    return whole ? env.constant(std::strtoll(s.c_str(), nullptr, 10)) : env.number(std::strtod(s.c_str(), nullptr));
  }
  // After "size(": the leaf, with its hint when it is being declared.
  int32_t leaf(SymOp op, bool declared) {
    int64_t a = integer(), b = 0;
    if (op != SymOp::kScalarInput) expect(","), b = integer();
    expect(")");
    if (op == SymOp::kScalarInput && size_t(a) >= g->scalars.size()) error("scalar input out of range");
    int64_t hint = 0;
    if (declared) expect("="), hint = integer();
    double d = op == SymOp::kScalarInput ? g->scalars[a].hint : 0;
    return g->env->leaf(op, int32_t(a), int32_t(b), hint, d);
  }
  SymInt size() {
    int32_t id = expr();
    if (is_number((*g->env)[id].op)) error("a size must be an integer");
    return SymInt::of_expr(*g->env, id);
  }
  Sizes sizes(const char* open, const char* close) {
    Sizes v;
    expect(open);
    while (!accept(close)) {
      if (!v.empty()) expect(",");
      v.push_back(size());
    }
    return v;
  }
  Tensor ref() {
    expect("%");
    int id = int(integer());
    auto it = values.find(id);
    if (it == values.end()) error(str("%", id, " is not defined"));
    return it->second;
  }

  Value function() {
    Nested nested(*this);
    Parser inner(text);
    inner.at = at, inner.line = line, inner.depth = depth;
    std::unique_ptr<Graph> graph = inner.run();
    if (std::string wrong = check_function(*graph); !wrong.empty()) error(wrong);
    at = inner.at, line = inner.line;
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

  struct Type {
    DType dtype;
    Sizes sizes, strides;
  };
  Type type() {
    DType t = dtype_from_ir_name(word());
    if (t == DType::kNone) error("unknown type");
    Sizes s = sizes("[", "]");
    expect("strides");
    Sizes st = sizes("[", "]");
    return {t, s, st};
  }

  void input(int id, bool constant) {
    std::string name = quoted();
    expect(":");
    Type t = type();
    Tensor v = g->add_input(name, t.sizes, t.strides, t.dtype, device);
    if (constant) g->inputs.back().constant = make_tensor(t.sizes, t.strides, t.dtype);
    if (accept("aliases")) v->storage = ref()->storage;
    v->requires_grad = accept("requires_grad");
    values[id] = v;
  }

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
      // A pass may have chosen another layout than the op's rule (channels_last).
      if (!info(op).has(kView) && t.strides.size() == r->strides.size()) r->strides = t.strides;
      bool same = t.dtype == r->dtype && equal(t.sizes, r->sizes) && equal(t.strides, r->strides);
      if (!same) error(str("the type of %", ids[i], " is ", describe(r), " strides ", to_string(r->strides)));
      values[ids[i]] = r;
    }
    trailer(n);
  }
  static bool equal(const Sizes& a, const Sizes& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); i++) {
      if (a[i].expr != b[i].expr || a[i].hint != b[i].hint) return false;
    }
    return true;
  }
  void trailer(Node& n) {
    if (accept("rng")) n.rng = int(integer());
    if (!accept(";")) return;
    skip();
    size_t e = std::min(text.find('\n', at), text.size());
    size_t colon = text.rfind(':', e);
    if (colon == std::string::npos || colon < at) error("expected file:line");
    n.file = intern(text.substr(at, colon - at));
    n.line = std::atoi(text.c_str() + colon + 1);
    at = e;
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
      std::string w = word();
      expect("(");
      if (w != "size" && w != "stride") error("expected size or stride");
      leaf(w == "size" ? SymOp::kSize : SymOp::kStride, true);
    } else if (accept("scalar")) {
      std::string name = quoted();
      expect("=");
      bool whole;
      std::string s = number(whole);
      g->add_scalar(name, std::strtod(s.c_str(), nullptr));
    } else if (accept("let")) {
      expect("$");
      if (size_t(integer()) != lets.size()) error("expressions are numbered in order");
      expect("=");
      lets.push_back(expr());
    } else if (accept("guard")) {
      guard();
    } else {
      std::vector<int> ids;
      while (accept("%")) {
        ids.push_back(int(integer()));
        if (!accept(",")) expect("=");
      }
      bool constant = false;
      if (ids.size() == 1 && (accept("input") || (constant = accept("constant")))) return input(ids[0], constant);
      node(ids);
    }
  }

  std::unique_ptr<Graph> run() {
    SymScope scope(g->env.get());
    GradModeScope no_grad(false);
    expect("graph");
    expect("{");
    while (!accept("return")) {
      skip();
      if (at >= text.size()) error("the graph has no end");
      statement();
    }
    while (!peek("}") && !peek("rng")) {
      if (!g->outputs.empty()) expect(",");
      g->outputs.push_back(value(ArgType::kOperand));
    }
    if (accept("rng")) g->rng_calls = int(integer());
    expect("}");
    g->renumber();
    return std::move(g);
  }
};

}  // namespace

std::unique_ptr<Graph> parse_graph(const std::string& text, Device device) { return Parser(text, device).run(); }

void move_to(Graph& graph, Device device) {
  for (const auto* nodes : {&graph.input_nodes, &graph.nodes}) {
    for (const auto& n : *nodes) {
      for (const Tensor& t : n->results) t->storage->device = device;
    }
  }
  graph.device = device;
}

}  // namespace lutra
