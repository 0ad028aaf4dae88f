// Prints a graph. The grammar is in parse.cc. print, parse, print is the identity.
#include <cmath>

#include "jit/graph/expressions.h"
#include "jit/graph/function.h"
#include "jit/graph/text.h"

namespace lutra {

Text& write_number(Text& out, double v) {
  if (std::isnan(v)) return out << "nan";
  if (std::isinf(v)) return out << (v < 0 ? "-inf" : "inf");
  char buf[32];
  const std::string_view s(buf, std::to_chars(buf, buf + sizeof buf, v).ptr);
  out << s;
  return s.find_first_of(".e") == s.npos ? out << ".0" : out;
}

std::string number_text(double v) {
  Text out;
  write_number(out, v);
  return std::move(out.text);
}

std::string quote(const std::string& s) {
  std::string q = "'";
  for (char c : s) {
    if (c == '\'' || c == '\\') q += '\\';
    q += c == '\n' ? ' ' : c;
  }
  return q + "'";
}

namespace {

constexpr int kMaxPrinted = 200;

}  // namespace

Text& write_leaf(Text& out, const SymExpr& e) {
  switch (e.op) {
    case SymOp::kConstInt: return out << e.i;
    case SymOp::kConstNum: return write_number(out, e.d);
    case SymOp::kScalarInput: return out << "scalar(" << e.a << ')';
    default: return out << name(e.op) << '(' << e.a << ", " << e.b << ')';
  }
}

std::string leaf_text(const SymExpr& e) {
  Text out;
  write_leaf(out, e);
  return std::move(out.text);
}

std::string declared(const SymEnv& env, int32_t leaf) {
  const SymExpr& e = env[leaf];
  const SymRange r = env.made_range(leaf);
  std::string text = str("sym ", leaf_text(e), " = ", e.i);
  if (e.op == SymOp::kSize && (r.low != 0 || r.high != INT64_MAX)) text += str(" in ", r.low, " to ", r.high);
  return text;
}

namespace {

void write_part(std::span<const SymExpr> exprs, int32_t id, int& left, std::string& out) {
  const SymExpr& e = exprs[size_t(id)];
  if (left-- <= 0) {
    out += "...";
  } else if (arity(e.op) == 0) {
    out += leaf_text(e);
  } else {
    out += name(e.op) + std::string("(");
    write_part(exprs, e.a, left, out);
    if (arity(e.op) == 2) out += ", ", write_part(exprs, e.b, left, out);
    out += ")";
  }
}

}  // namespace

std::string expr_text(std::span<const SymExpr> exprs, int32_t id) {
  std::string out;
  int left = kMaxPrinted;
  write_part(exprs, id, left, out);
  return out;
}

namespace {

struct Printer {
  const Graph& g;
  const bool is_function;  // the caller's text has the symbols and guards
  Text out{};
  Expressions exprs{*g.env};

  void size(SymInt s) { s.is_constant() ? void(out << s.hint) : exprs.write(out, s.expr); }
  void sizes(const Sizes& v, char open, char close) {
    out << open;
    for (size_t i = 0; i < v.size(); i++) {
      if (i) out << ", ";
      size(v[i]);
    }
    out << close;
  }
  void ref(const Tensor& t) { t ? out << '%' << t->node->id + t->result : out << "None"; }
  void type(const Tensor& t) {
    out << info(t->dtype).ir_name;
    sizes(t->sizes, '[', ']');
    out << " strides ";
    sizes(t->strides, '[', ']');
  }
  void scalar(const Scalar& s) {
    if (s.expr) return exprs.write(out, s.expr);
    if (s.kind == Scalar::kBool) return void(out << (s.i ? "true" : "false"));
    s.kind == Scalar::kInt ? out << s.i : write_number(out, s.d);
  }
  // Indents the function's text by two columns.
  void function(const Graph& g) {
    const_cast<Graph&>(g).renumber();
    std::string text = Printer{g, true}.run();
    text.pop_back();
    for (char c : text) c == '\n' ? out << "\n  " : out << c;
  }
  void value(const Value& v) {
    if (v.is_none()) return void(out << "None");
    if (v.is<Tensor>()) return ref(v.tensor());
    if (v.is<Scalar>()) return scalar(v.as<Scalar>());
    if (v.is<bool>()) return void(out << (v.as<bool>() ? "true" : "false"));
    if (v.is<Sizes>()) return sizes(v.as<Sizes>(), '{', '}');
    if (v.is<DType>()) return void(out << (v.as<DType>() == DType::kNone ? "None" : name(v.as<DType>())));
    if (v.is<Device>()) return void(out << '\'' << to_string(v.as<Device>()) << '\'');
    if (v.is<std::string>()) return void(out << quote(v.as<std::string>()));
    if (v.is<FunctionRef>()) return function(graph_of(v.as<FunctionRef>()));
    const auto& list = v.as<std::vector<Tensor>>();
    for (size_t i = 0; i < list.size(); i++) out << (i ? ", " : "["), ref(list[i]);
    out << (list.empty() ? "[]" : "]");
  }

  void use(const Sizes& v) {
    for (SymInt s : v) exprs.use(s.expr);
  }
  void use(const Value& v) {
    if (v.is<Scalar>()) exprs.use(v.as<Scalar>().expr);
    if (v.is<Sizes>()) use(v.as<Sizes>());
  }
  void use(const Tensor& t) {
    if (t) use(t->sizes), use(t->strides);
  }
  void name_expressions() {
    for (const GraphInput& in : g.inputs) use(in.value);
    if (!is_function) {
      for (const SymGuard& guard : g.env->guards()) exprs.use(guard.a), exprs.use(guard.b);
    }
    for (const auto& n : g.nodes) {
      for (const Value& v : n->args) use(v);
      for (const Tensor& t : n->results) use(t);
    }
    for (const Value& v : g.outputs) use(v);
    exprs.name_large();
  }

  void symbols() {
    std::vector<bool> used(g.env->size(), false);
    for (const GraphInput& in : g.inputs) {
      for (const Sizes* v : {&in.value->sizes, &in.value->strides}) {
        for (SymInt s : *v) used[size_t(s.expr)] = used[size_t(s.expr)] || s.expr;
      }
    }
    exprs.spread(used);
    for (size_t id = 1; id < used.size(); id++) {
      const SymExpr& e = (*g.env)[int32_t(id)];
      const bool leaf = e.op == SymOp::kSize || e.op == SymOp::kStride;
      if (used[id] && leaf) out << "  " << declared(*g.env, int32_t(id)) << "\n";
    }
    for (size_t i = 0; i < g.scalars.size(); i++) {
      const ScalarInput& s = g.scalars[i];
      const bool varies = g.env->varies(g.env->leaf(SymOp::kScalarInput, int32_t(i), 0, 0, s.hint));
      out << "  scalar " << quote(s.name) << " = " << number_text(s.hint) << (varies ? " varies" : "") << "\n";
    }
  }
  void header() {
    if (!is_function) symbols();
    for (int32_t id : exprs.named()) {
      out << "  let ";
      exprs.write(out, id);
      out << " = ";
      exprs.write_full(out, id) << "\n";
    }
    for (size_t i = 0; i < g.inputs.size(); i++) {
      const GraphInput& in = g.inputs[i];
      out << "  ";
      ref(in.value);
      out << (in.constant ? " = constant " : " = input ") << quote(in.name) << " : ";
      type(in.value);
      if (in.value->device() != Device()) out << " on " << quote(to_string(in.value->device()));
      for (size_t k = 0; k < i; k++) {
        if (g.inputs[k].value->storage == in.value->storage) {
          out << " aliases ";
          ref(g.inputs[k].value);
          break;
        }
      }
      if (in.value->requires_grad) out << " requires_grad";
      out << "\n";
    }
    if (!is_function) guards();
  }
  void guards() {
    for (const SymGuard& guard : g.env->guards()) {
      out << "  guard " << name(guard.cmp) << "(";
      exprs.write(out, guard.a);
      if (arity(guard.cmp) == 2) out << ", ", exprs.write(out, guard.b);
      out << ") " << (guard.outcome ? "true" : "false") << "\n";
    }
  }

  void node(const Node& n) {
    out << "  ";
    if (!n.inplace) {
      for (size_t i = 0; i < n.results.size(); i++) out << (i ? ", " : "") << "%" << n.id + int(i);
      out << " = ";
    }
    out << name(n.op) << (n.is_inplace_form() ? "_" : "") << "(";
    for (size_t i = 0; i < n.args.size(); i++) {
      if (i) out << ", ";
      value(n.args[i]);
    }
    out << ")";
    if (!n.inplace) {
      for (size_t i = 0; i < n.results.size(); i++) out << (i ? ", " : " : "), type(n.results[i]);
    }
    if (n.rng >= 0) out << " rng " << n.rng;
    if (n.origin != OpId::kCount && n.origin != n.op) out << " of " << name(n.origin);
    if (n.written >= 0) out << " written " << n.written;
    if (n.file) out << " ; " << n.file << ":" << n.line;
    out << "\n";
  }

  std::string run() {
    name_expressions();
    out << "graph {\n";
    header();
    for (const auto& n : g.nodes) node(*n);
    out << "  return";
    for (size_t i = 0; i < g.outputs.size(); i++) out << (i ? ", " : " "), value(g.outputs[i]);
    if (g.rng_calls) out << " rng " << g.rng_calls;
    out << "\n}\n";
    return std::move(out.text);
  }
};

}  // namespace

std::string print(const Graph& graph) {
  const_cast<Graph&>(graph).renumber();  // ids are a function of the order
  return Printer{graph, false}.run();
}

}  // namespace lutra
