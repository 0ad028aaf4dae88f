// Graph to text. The grammar is the parser's (parse.cc); print, parse, print is the identity.
#include <charconv>
#include <cmath>
#include <set>

#include "jit/graph/graph.h"
#include "jit/graph/text.h"

namespace lutra {

std::string number_text(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buf[32];
  auto end = std::to_chars(buf, buf + sizeof buf, v).ptr;
  std::string s(buf, end);
  return s.find_first_of(".e") == std::string::npos ? s + ".0" : s;
}

std::string quote(const std::string& s) {
  std::string q = "'";
  for (char c : s) {
    if (c == '\'' || c == '\\') q += '\\';
    q += c == '\n' ? ' ' : c;
  }
  return q + "'";
}

std::string expr_text(const SymEnv& env, int32_t id) {
  const SymExpr& e = env[id];
  switch (e.op) {
    case SymOp::kConstInt: return std::to_string(e.i);
    case SymOp::kConstNum: return number_text(e.d);
    case SymOp::kSize:
    case SymOp::kStride: return str(name(e.op), "(", e.a, ", ", e.b, ")");
    case SymOp::kScalarInput: return str("scalar(", e.a, ")");
    default: break;
  }
  std::string s = str(name(e.op), "(", expr_text(env, e.a));
  if (arity(e.op) == 2) s += ", " + expr_text(env, e.b);
  return s + ")";
}

namespace {

const char* kCmpNames[] = {"eq", "ne", "lt", "le", "whole"};

struct Printer {
  const Graph& g;
  std::ostringstream out;

  std::string size(SymInt s) { return s.is_constant() ? std::to_string(s.hint) : expr_text(*g.env, s.expr); }
  std::string sizes(const Sizes& v, const char* open, const char* close) {
    std::string s = open;
    for (size_t i = 0; i < v.size(); i++) s += (i ? ", " : "") + size(v[i]);
    return s + close;
  }
  std::string ref(const Tensor& t) { return t ? str("%", t->node->id + t->result) : "None"; }
  std::string type(const Tensor& t) {
    return str(info(t->dtype).ir_name, sizes(t->sizes, "[", "]"), " strides ", sizes(t->strides, "[", "]"));
  }
  std::string scalar(const Scalar& s) {
    if (s.expr) return expr_text(*g.env, s.expr);
    if (s.kind == Scalar::kBool) return s.i ? "true" : "false";
    return s.kind == Scalar::kInt ? std::to_string(s.i) : number_text(s.d);
  }
  std::string value(const Value& v) {
    if (v.is_none()) return "None";
    if (v.is<Tensor>()) return ref(v.tensor());
    if (v.is<Scalar>()) return scalar(v.as<Scalar>());
    if (v.is<bool>()) return v.as<bool>() ? "true" : "false";
    if (v.is<Sizes>()) return sizes(v.as<Sizes>(), "{", "}");
    if (v.is<DType>()) return v.as<DType>() == DType::kNone ? "None" : name(v.as<DType>());
    if (v.is<Device>()) return "'" + to_string(v.as<Device>()) + "'";
    if (v.is<std::string>()) return quote(v.as<std::string>());
    std::string s = "[";
    for (const Tensor& t : v.as<std::vector<Tensor>>()) s += (s.size() > 1 ? ", " : "") + ref(t);
    return s + "]";
  }

  void leaves(int32_t id, std::set<int32_t>& seen) {
    const SymExpr& e = (*g.env)[id];
    if (e.op == SymOp::kSize || e.op == SymOp::kStride) seen.insert(id);
    if (arity(e.op) >= 1) leaves(e.a, seen);
    if (arity(e.op) == 2) leaves(e.b, seen);
  }

  void header() {
    std::set<int32_t> used;
    for (const GraphInput& in : g.inputs) {
      for (const Sizes* v : {&in.value->sizes, &in.value->strides}) {
        for (SymInt s : *v) {
          if (s.expr) leaves(s.expr, used);
        }
      }
    }
    for (int32_t id : used) out << "  sym " << expr_text(*g.env, id) << " = " << (*g.env)[id].i << "\n";
    for (const ScalarInput& s : g.scalars) out << "  scalar " << quote(s.name) << " = " << number_text(s.hint) << "\n";
    for (size_t i = 0; i < g.inputs.size(); i++) {
      const GraphInput& in = g.inputs[i];
      out << "  " << ref(in.value) << " = " << (in.constant ? "constant " : "input ") << quote(in.name) << " : "
          << type(in.value);
      for (size_t k = 0; k < i; k++) {
        if (g.inputs[k].value->storage == in.value->storage) {
          out << " aliases " << ref(g.inputs[k].value);
          break;
        }
      }
      if (in.value->requires_grad) out << " requires_grad";
      out << "\n";
    }
    for (const SymGuard& guard : g.env->guards()) {
      out << "  guard " << kCmpNames[int(guard.cmp)] << "(" << expr_text(*g.env, guard.a);
      if (guard.cmp != SymCmp::kWhole) out << ", " << expr_text(*g.env, guard.b);
      out << ") " << (guard.outcome ? "true" : "false") << "\n";
    }
  }

  void node(const Node& n) {
    out << "  ";
    if (!n.inplace) {
      for (size_t i = 0; i < n.results.size(); i++) out << (i ? ", " : "") << "%" << n.id + int(i);
      out << " = ";
    }
    out << name(n.op) << (n.inplace && n.op != OpId::copy_ ? "_" : "") << "(";
    for (size_t i = 0; i < n.args.size(); i++) out << (i ? ", " : "") << value(n.args[i]);
    out << ")";
    if (!n.inplace) {
      for (size_t i = 0; i < n.results.size(); i++) out << (i ? ", " : " : ") << type(n.results[i]);
    }
    if (n.rng >= 0) out << " rng " << n.rng;
    if (n.file) out << " ; " << n.file << ":" << n.line;
    out << "\n";
  }

  std::string run() {
    out << "graph {\n";
    header();
    for (const auto& n : g.nodes) node(*n);
    out << "  return";
    for (size_t i = 0; i < g.outputs.size(); i++) out << (i ? ", " : " ") << value(g.outputs[i]);
    if (g.rng_calls) out << " rng " << g.rng_calls;
    out << "\n}\n";
    return out.str();
  }
};

}  // namespace

std::string print(const Graph& graph) {
  const_cast<Graph&>(graph).renumber();  // ids are a function of the order
  return Printer{graph, {}}.run();
}

}  // namespace lutra
