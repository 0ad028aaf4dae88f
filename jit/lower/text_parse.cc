// Parses the text of a lowered graph, by recursive descent over the grammar in text_print.cc. Malformed text, or a node
// that the verifier rejects, is an Error that names the line.
#include <algorithm>

#include "jit/graph/text_reader.h"
#include "jit/lower/verify.h"

namespace lutra {
namespace {

constexpr int64_t kMaxNumbered = 1 << 24;  // dimensions, loops, tensors and statements
constexpr size_t kMaxLoops = 64;           // depth of nesting

class Parser : public TextReader {
 public:
  Parser(const std::string& text, std::unique_ptr<Graph> graph)
      : TextReader(text, "lowered text", *graph->env), graph_(std::move(graph)), lowered_{SymFacts(*graph_->env), {}} {}

  ParsedLowering run() {
    SymScope scope(graph_->env.get());
    program();
    return {std::move(graph_), std::move(lowered_)};
  }

 private:
  void program() {
    expect("lowered");
    expect("{");
    while (!accept("}")) {
      if (at >= text.size()) error("expected '}'");
      placed([&] { statement(); });
    }
    skip();
    if (at < text.size()) error("text after the end");
  }

  void statement() {
    std::string name;
    if (accept("sym")) return read_sym();
    if (accept("let")) return read_let();
    if (accept("scalar")) {
      const double hint = read_scalar(name);
      graph_->add_scalar(name, hint);
      return;
    }
    bool defines = accept("%");
    if (defines) {
      if (small() != int64_t(tensors_.size())) error("tensors are numbered in order");
      expect("=");
      if (accept("input")) return input();
    }
    node(defines);
  }

  void input() {
    const std::string name = quoted();
    expect(":");
    const Type t = type();
    tensors_.push_back(graph_->add_input(name, t.sizes, t.strides, t.dtype));
  }

  int64_t small() {
    const int64_t v = integer();
    if (v < 0 || v >= kMaxNumbered) error("number out of range");
    return v;
  }
  // Reads the number after a letter, as in i0 or a3.
  bool at_numbered(char letter) {
    skip();
    return at + 1 < text.size() && text[at] == letter && isdigit(static_cast<unsigned char>(text[at + 1]));
  }
  int32_t numbered(char letter) {
    if (!at_numbered(letter)) error(std::string("expected '") + letter + "' and a number");
    at++;
    return int32_t(small());
  }
  int32_t use() { return numbered('%'); }

  Lowered::Kind kind() {
    const std::string w = word();
    for (int k = 0; k <= int(Lowered::kJoin); k++) {
      if (w == name(Lowered::Kind(k))) return Lowered::Kind(k);
    }
    error("unknown kind '" + w + "'");
  }

  void node(bool defines) {
    LoweredNode n{};
    Lowered& l = n.low;
    l.kind = kind();
    const std::string op = word();
    auto node = std::make_unique<Node>();
    node->op = find_op(op);
    if (node->op >= OpId::input) error("unknown op '" + op + "'");
    n.node = node.get();
    expect("(");
    while (!accept(")")) {
      if (!l.reads.empty()) expect(",");
      const int32_t id = use();
      if (size_t(id) >= tensors_.size()) error(str("%", id, " is not defined"));
      l.reads.push_back(tensors_[size_t(id)]);
    }
    if (defines == (l.kind == Lowered::kCopy)) error(defines ? "a copy defines no tensor" : "a tensor must be defined");
    if (defines) {
      expect(":");
      const Type t = type();
      n.value = make_fake(t.sizes, t.strides, t.dtype);
      n.value->node = node.get();
      node->results = {n.value};
    } else {
      if (l.reads.empty()) error("a copy reads what it writes and what it takes");
      n.value = l.reads[0];
    }
    flags(l);
    if (l.kind == Lowered::kView) view(l);
    body(n);
    read_location(node->file, node->line);
    check(verify_form(n));
    if (defines) tensors_.push_back(n.value);
    graph_->nodes.push_back(std::move(node));
    lowered_.nodes.push_back(std::move(n));
  }

  void flags(Lowered& l) {
    l.checks = accept("checks");
    l.heavy = accept("heavy");
    l.window = accept("window");
    l.independent = accept("independent");
  }

  void check(const std::string& wrong) {
    if (!wrong.empty()) error(wrong);
  }

  void view(Lowered& l) {
    l.affine = !accept("memory");
    if (l.affine) l.map = place();
  }

  void body(LoweredNode& n) {
    Lowered& l = n.low;
    switch (l.kind) {
      case Lowered::kPointwise:
      case Lowered::kCopy:
        expect("{");
        function(n, l.element, size_t(n.value->dim()), false);
        return;
      case Lowered::kReduce:
        expect("{");
        order(l.reduction);
        check(verify_form(n));
        function(n, l.element, l.reduction.sizes.size(), false);
        return;
      case Lowered::kStrided:
      case Lowered::kJoin:
        while (accept("{")) function(n, l.writes.emplace_back(), 0, true);
        return;
      default: return;
    }
  }

  std::vector<int> dims() {
    std::vector<int> list;
    expect("(");
    while (!accept(")")) list.push_back(int(small()));
    return list;
  }

  void order(Reduction& r) {
    const std::string op = word();
    int i = 0;
    while (i <= int(loop::RedOp::kAll) && op != name(loop::RedOp(i))) i++;
    if (i > int(loop::RedOp::kAll)) error("unknown reduction '" + op + "'");
    r.op = loop::RedOp(i);
    expect(".");
    r.type = dtype();
    expect("over");
    r.sizes = sizes("[", "]");
    if (r.sizes.size() > kMaxDims + 2) error("too many dimensions");
    r.reduced.assign(r.sizes.size(), false);
    if (accept("nest")) {
      while (peek("(")) r.nest.push_back(dims());
    }
    for (const auto& loop : r.nest) {
      for (int d : loop) {
        if (size_t(d) >= r.sizes.size()) error(str("dimension ", d, " of the nest"));
        r.reduced[size_t(d)] = true;
      }
    }
    if (accept("kept")) r.kept = dims();
    r.rows = accept("rows");
    if (accept("lanes")) r.lanes = int32_t(small());
    if (accept("block")) r.block = int32_t(small());
    r.keepdim = accept("keepdim");
  }

  Affine affine() {
    Affine sum;
    do {
      const bool value = at_numbered('%');
      if (!value && !at_numbered('i')) {
        sum = sum + Affine::constant(size());
        continue;
      }
      const Affine term = value ? Affine::value(use()) : Affine::loop(numbered('i'));
      sum = sum + (accept("*") ? term * size() : term);
    } while (accept("+"));
    return sum;
  }
  Index place() {
    Index index;
    expect("[");
    while (!accept("]")) {
      if (!index.empty()) expect(",");
      index.push_back(affine());
    }
    return index;
  }

  // Reads a function after its "{".
  void function(const LoweredNode& n, ElementFunction& f, size_t rank, bool writes) {
    f.rank = int32_t(rank);
    FunctionVerifier verifier(n, f, writes);
    for (size_t loops = 0;;) {
      if (accept("return")) f.result = use();
      if (!loops && accept("}")) break;
      if (f.result >= 0 || at >= text.size()) error("expected '}'");
      f.stmts.push_back(stmt(f));
      const FunctionStmt::Kind kind = f.stmts.back().kind;
      loops = loops + size_t(kind == FunctionStmt::kOpen) - size_t(kind == FunctionStmt::kClose);
      if (loops > kMaxLoops) error("loops are nested too deep");
      check(verifier.next());
    }
    check(verifier.end());
  }

  FunctionStmt stmt(ElementFunction& f) {
    FunctionStmt s;
    const bool defines = accept("%");
    if (defines) {
      if (small() != int64_t(f.stmts.size())) error("a value has the number of its statement");
      expect("=");
    }
    if (accept("}")) {
      s.kind = FunctionStmt::kClose;
    } else {
      rest(s, f, word());
    }
    if (defines != s.defines()) error(defines ? "the statement has no result" : "the statement has a result");
    return s;
  }

  void at_place(FunctionStmt& s, ElementFunction& f, Index index) {
    s.place = int32_t(f.places.size()), s.places = int32_t(index.size());
    f.places.insert(f.places.end(), index.begin(), index.end());
  }

  void rest(FunctionStmt& s, ElementFunction& f, const std::string& what) {
    if (what == "size") {
      s.kind = FunctionStmt::kSize, s.type = DType::kInt64, s.size = size();
    } else if (what == "index") {
      s.kind = FunctionStmt::kIndex, s.type = DType::kInt64;
      at_place(s, f, {affine()});
    } else if (what == "check") {
      s.kind = FunctionStmt::kCheck, s.a = use();
      expect(",");
      s.size = size();
      if (accept("dim")) s.arg = int32_t(small());
    } else if (what == "for") {
      s.kind = FunctionStmt::kOpen, s.arg = numbered('i');
      expect("in");
      s.size = size();
      if (accept("vector")) s.mode = loop::LoopMode::kVector;
      expect("{");
    } else if (what == "store") {
      s.kind = FunctionStmt::kStore;
      expect("[");
      at_place(s, f, {affine()});
      expect("]");
      expect(",");
      s.a = use();
    } else {
      expect(".");
      s.type = dtype();
      typed(s, f, what);
    }
  }

  void typed(FunctionStmt& s, ElementFunction& f, const std::string& what) {
    if (what == "cast") {
      s.kind = FunctionStmt::kCast, s.a = use();
    } else if (what == "const") {
      constant(s);
    } else if (what == "scalar") {
      s.kind = FunctionStmt::kScalar, s.arg = expr();
    } else if (what == "part") {
      s.kind = FunctionStmt::kPart, s.a = use();
      expect(",");
      s.arg = int32_t(small());
    } else if (what == "read") {
      s.kind = FunctionStmt::kOperand, s.arg = numbered('a');
      at_place(s, f, place());
    } else {
      operation(s, what);
    }
  }

  void constant(FunctionStmt& s) {
    bool whole;
    const std::string digits = number(whole);
    s.kind = whole ? FunctionStmt::kInteger : FunctionStmt::kNumber;
    if (whole) {
      s.integer = whole_number(digits);
    } else {
      s.number = std::strtod(digits.c_str(), nullptr);
    }
  }

  void operation(FunctionStmt& s, const std::string& what) {
    s.kind = FunctionStmt::kOp;
    for (int i = 0; i < int(loop::Op::kCount); i++) {
      if (what == name(loop::Op(i))) s.op = loop::Op(i);
    }
    if (s.op == loop::Op::kCount) error("unknown operation '" + what + "'");
    int32_t* const slots[] = {&s.a, &s.b, &s.c};
    for (int i = 0; i < info(s.op).operands; i++) {
      if (i) expect(",");
      *slots[i] = use();
    }
    if (info(s.op).rule != loop::TypeRule::kRandom) return;
    expect(",");
    s.arg = int32_t(small());
  }

  std::unique_ptr<Graph> graph_;
  LoweredGraph lowered_;
  std::vector<Tensor> tensors_;
};

}  // namespace

ParsedLowering parse_lowered(const std::string& text) { return Parser(text, std::make_unique<Graph>()).run(); }

}  // namespace lutra
