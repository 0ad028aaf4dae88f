// A lowered graph to text; text_parse.cc reads it back.
//
//   lowered  := "lowered" "{" line* node* "}"
//   line     := "sym" leaf "=" int ["in" int "to" int] | "scalar" str "=" num | "let" "$" int "=" expr
//             | %id "=" "input" str ":" type
//   node     := [%id "="] kind op "(" %id,* ")" [":" type] flag* [what] [";" file ":" line]
//   kind     := "pointwise" | "reduce" | "view" | "extern" | "result" | "strided" | "copy" | "join"
//   flag     := "checks" | "heavy" | "window" | "independent"
//   what     := "memory" | place                     of a view
//             | "{" stmt* "return" %v "}"            pointwise, copy: the element at (i0, i1, ...)
//             | "{" order stmt* "return" %v "}"      reduce: the element of the domain
//             | ("{" stmt* "}")*                     strided, join: each writes a part of the result
//   order    := red "." type "over" "[" exprs "]" ["nest" dims+] ["kept" dims] ["rows"] ["lanes" int] ["block" int]
//               ["keepdim"]                          loops outermost first; dims "(0 1)" of the nest are one loop
//   stmt     := [%v "="] (op "." type %v,* ["," int] | "cast" "." type %v | "const" "." type num
//             | "scalar" "." type expr | "size" expr | "index" affine | "part" "." type %v "," (0 | 1)
//             | "read" "." type "a" int place | "check" %v "," expr ["dim" int]
//             | "for" i "in" expr ["vector"] "{" stmt* "}" | "store" "[" affine "]" "," %v)
//   place    := "[" affine,* "]"        affine := term {"+" term}, term := (i | %v) ["*" expr] | expr
//
// a0 is an element of the first tensor that the node reads. %v is the v-th statement of its function.
#include <sstream>

#include "jit/graph/expressions.h"
#include "jit/lower/lower.h"

namespace lutra {
namespace {

class Printer {
 public:
  Printer(const Graph& g, const LoweredGraph& lowered) : g_(g), lowered_(lowered), exprs_(*g.env) {}

  std::string run() {
    name_expressions();
    out_ << "lowered {\n";
    header();
    for (const LoweredNode& n : lowered_.nodes) node(n);
    out_ << "}\n";
    return out_.str();
  }

 private:
  void use(const Sizes& v) {
    for (SymInt s : v) exprs_.use(s.expr);
  }
  void use(const Tensor& t) { use(t->sizes), use(t->strides); }
  void use(const Index& index) {
    for (const Affine& a : index) {
      exprs_.use(a.offset.expr);
      for (const Affine::Term& t : a.terms) exprs_.use(t.coef.expr);
    }
  }
  void use(const ElementFunction& f) {
    use(f.places);
    for (const FunctionStmt& s : f.stmts) {
      exprs_.use(s.size.expr);
      if (s.kind == FunctionStmt::kScalar) exprs_.use(s.arg);
    }
  }
  void name_expressions() {
    for (const GraphInput& in : g_.inputs) use(in.value);
    for (const LoweredNode& n : lowered_.nodes) {
      use(n.value), use(n.low.map), use(n.low.element), use(n.low.reduction.sizes);
      for (const ElementFunction& f : n.low.writes) use(f);
    }
    exprs_.name_large();
  }

  void header() {
    for (const ScalarInput& s : g_.scalars)
      out_ << "  scalar " << quote(s.name) << " = " << number_text(s.hint) << "\n";
    for (int32_t id = 1; id < int32_t(g_.env->size()); id++) {
      const SymExpr& e = (*g_.env)[id];
      const bool leaf = e.op == SymOp::kSize || e.op == SymOp::kStride;
      if (leaf && exprs_.is_used(id)) out_ << "  " << declared(*g_.env, id) << "\n";
    }
    for (int32_t id : exprs_.named()) out_ << "  let " << exprs_.text(id) << " = " << exprs_.full(id) << "\n";
    for (const GraphInput& in : g_.inputs) {
      out_ << "  " << define(in.value) << " = input " << quote(in.name) << " : " << type(in.value) << "\n";
    }
  }

  std::string define(const Tensor& t) {
    const int id = int(ids_.size());
    ids_.emplace(t.get(), id);
    return "%" + std::to_string(id);
  }
  // The result of a write is the tensor that it wrote to.
  std::string ref(Tensor t) {
    while (!ids_.count(t.get()) && t->node && t->node->is_copy()) t = t->node->args[0].tensor();
    const auto found = ids_.find(t.get());
    LUTRA_CHECK(found != ids_.end(), "a tensor that nothing makes");
    return "%" + std::to_string(found->second);
  }
  std::string size(SymInt s) const { return s.is_constant() ? std::to_string(s.hint) : exprs_.text(s.expr); }
  std::string sizes(const Sizes& v) const {
    std::string s = "[";
    for (size_t i = 0; i < v.size(); i++) s += (i ? ", " : "") + size(v[i]);
    return s + "]";
  }
  std::string type(const Tensor& t) const {
    return info(t->dtype).ir_name + sizes(t->sizes) + " strides " + sizes(t->strides);
  }
  std::string affine(const Affine& a) const {
    std::string s;
    for (const Affine::Term& t : a.terms) {
      s += (s.empty() ? "" : " + ") + std::string(t.is_value ? "%" : "i") + std::to_string(t.id);
      if (!identical(t.coef, 1)) s += "*" + size(t.coef);
    }
    if (s.empty()) return size(a.offset);
    return identical(a.offset, 0) ? s : s + " + " + size(a.offset);
  }
  std::string place(const Affine* first, size_t n) const {
    std::string s = "[";
    for (size_t i = 0; i < n; i++) s += (i ? ", " : "") + affine(first[i]);
    return s + "]";
  }

  void node(const LoweredNode& n) {
    const Lowered& l = n.low;
    const bool defines = l.kind != Lowered::kCopy;
    std::string reads;
    for (const Tensor& t : l.reads) reads += (reads.empty() ? "" : ", ") + ref(t);
    out_ << "  " << (defines ? define(n.value) + " = " : "") << name(l.kind) << " " << name(n.node->op) << "(" << reads
         << ")" << (defines ? " : " + type(n.value) : "");
    if (l.checks) out_ << " checks";
    if (l.heavy) out_ << " heavy";
    if (l.window) out_ << " window";
    if (l.independent) out_ << " independent";
    if (l.kind == Lowered::kView) out_ << " " << (l.affine ? place(l.map.data(), l.map.size()) : "memory");
    if (l.kind == Lowered::kPointwise || l.kind == Lowered::kCopy || l.kind == Lowered::kReduce) {
      out_ << " {\n";
      if (l.kind == Lowered::kReduce) order(l.reduction);
      function(l.element);
    }
    for (const ElementFunction& f : l.writes) {
      out_ << " {\n";
      function(f);
    }
    if (n.node->file) out_ << " ; " << n.node->file << ":" << n.node->line;
    out_ << "\n";
  }

  void dims(const std::vector<int>& list) {
    out_ << " (";
    for (size_t i = 0; i < list.size(); i++) out_ << (i ? " " : "") << list[i];
    out_ << ")";
  }
  void order(const Reduction& r) {
    out_ << "    " << name(r.op) << "." << info(r.type).ir_name << " over " << sizes(r.sizes);
    if (!r.nest.empty()) out_ << " nest";
    for (const auto& loop : r.nest) dims(loop);
    if (!r.kept.empty()) out_ << " kept", dims(r.kept);
    if (r.rows) out_ << " rows";
    if (r.lanes != 1) out_ << " lanes " << r.lanes;
    if (r.block) out_ << " block " << r.block;
    if (r.keepdim) out_ << " keepdim";
    out_ << "\n";
  }

  void function(const ElementFunction& f) {
    size_t depth = 2;
    for (size_t i = 0; i < f.stmts.size(); i++) {
      const FunctionStmt& s = f.stmts[i];
      if (s.kind == FunctionStmt::kClose) depth--;
      out_ << std::string(2 * depth, ' ');
      if (s.defines()) out_ << "%" << i << " = ";
      stmt(s, f);
      out_ << "\n";
      if (s.kind == FunctionStmt::kOpen) depth++;
    }
    if (f.result >= 0) out_ << "    return %" << f.result << "\n";
    out_ << "  }";
  }

  void stmt(const FunctionStmt& s, const ElementFunction& f) {
    const Affine* at = f.places.data() + s.place;
    const auto typed = [&](const char* what) -> std::ostream& {
      return out_ << what << "." << info(s.type).ir_name << " ";
    };
    switch (s.kind) {
      case FunctionStmt::kOp: {
        typed(name(s.op));
        const int32_t operands[] = {s.a, s.b, s.c};
        for (int i = 0; i < info(s.op).operands; i++) out_ << (i ? ", %" : "%") << operands[i];
        if (info(s.op).rule == loop::TypeRule::kRandom) out_ << ", " << s.arg;
        return;
      }
      case FunctionStmt::kCast: typed("cast") << "%" << s.a; return;
      case FunctionStmt::kNumber: typed("const") << number_text(s.number); return;
      case FunctionStmt::kInteger: typed("const") << s.integer; return;
      case FunctionStmt::kScalar: typed("scalar") << exprs_.text(s.arg); return;
      case FunctionStmt::kSize: out_ << "size " << size(s.size); return;
      case FunctionStmt::kIndex: out_ << "index " << affine(*at); return;
      case FunctionStmt::kPart: typed("part") << "%" << s.a << ", " << s.arg; return;
      case FunctionStmt::kOperand: typed("read") << "a" << s.arg << place(at, size_t(s.places)); return;
      case FunctionStmt::kCheck:
        out_ << "check %" << s.a << ", " << size(s.size);
        if (s.arg >= 0) out_ << " dim " << s.arg;
        return;
      case FunctionStmt::kOpen:
        out_ << "for i" << s.arg << " in " << size(s.size) << (s.mode == loop::LoopMode::kVector ? " vector {" : " {");
        return;
      case FunctionStmt::kClose: out_ << "}"; return;
      case FunctionStmt::kStore: out_ << "store " << place(at, 1) << ", %" << s.a; return;
    }
  }

  const Graph& g_;
  const LoweredGraph& lowered_;
  Expressions exprs_;
  std::unordered_map<const TensorImpl*, int> ids_;
  std::ostringstream out_;
};

}  // namespace

std::string print(const Graph& graph, const LoweredGraph& lowered) { return Printer(graph, lowered).run(); }

const char* name(Lowered::Kind kind) {
  switch (kind) {
    case Lowered::kPointwise: return "pointwise";
    case Lowered::kReduce: return "reduce";
    case Lowered::kView: return "view";
    case Lowered::kExtern: return "extern";
    case Lowered::kExternResult: return "result";
    case Lowered::kStrided: return "strided";
    case Lowered::kCopy: return "copy";
    case Lowered::kJoin: return "join";
  }
  fail_internal("a kind of lowering without a name");
}

}  // namespace lutra
