// Writes a relation's expressions as Lua does, with the names of their sources: n + 1 <= 3. The texts are for people. A
// large expression is written in part, with "..." for the rest.
#include <cmath>

#include "vm/guard/program.h"

namespace lutra {
namespace {

constexpr int kMaxOperands = 60;

const std::string& source_name(const std::vector<const Source*>& sources, int i) {
  static const std::string unknown = "?";
  return i >= 0 && size_t(i) < sources.size() && sources[size_t(i)] ? sources[size_t(i)]->text : unknown;
}

// Lua's operators with their precedence.
struct Infix {
  SymOp integer, number;
  const char* text;
  int rank;
};
const Infix kInfix[] = {{SymOp::kAdd, SymOp::kNAdd, " + ", 1}, {SymOp::kSub, SymOp::kNSub, " - ", 1},
                        {SymOp::kMul, SymOp::kNMul, " * ", 2}, {SymOp::kNDiv, SymOp::kNDiv, " / ", 2},
                        {SymOp::kMod, SymOp::kNMod, " % ", 2}, {SymOp::kNPow, SymOp::kNPow, " ^ ", 4}};
constexpr int kNegation = 3, kPower = 4;

std::string constant_text(double d) {
  if (std::isnan(d)) return "nan";  // LuaJIT's own text has a sign
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", d);
  return text;
}

// Writes expressions of a SymbolProgram or a SymEnv.
template <class Exprs>
class NumberText {
 public:
  NumberText(const GuardProgram& p, const Exprs& exprs) : p_(p), exprs_(exprs) {}

  // Returns the operand, in parentheses if its precedence is lower than `around`. Each call writes one operand, so the
  // recursion is at most as deep as the number of operands left.
  std::string operand(int place, int around) {
    if (left_-- <= 0) return "...";
    const SymExpr& e = exprs_[place];
    switch (e.op) {
      case SymOp::kConstInt: return str(e.i);
      case SymOp::kConstNum: return constant_text(e.d);
      case SymOp::kScalarInput: return source_name(p_.scalar_sources, e.a);
      case SymOp::kSize: return str(source_name(p_.tensor_sources, e.a), ".shape[", e.b + 1, "]");
      case SymOp::kStride: return str(source_name(p_.tensor_sources, e.a), ":stride(", e.b, ")");
      case SymOp::kToInt:
      case SymOp::kToNum: return left_++, operand(e.a, around);
      case SymOp::kNNeg: {
        const std::string text = "-" + operand(e.a, kNegation);
        return kNegation < around ? "(" + text + ")" : text;
      }
      default: break;
    }
    for (const Infix& i : kInfix) {
      if (e.op != i.integer && e.op != i.number) continue;
      const bool right = i.rank == kPower;  // right associative
      std::string text = operand(e.a, i.rank + right);
      text += i.text + operand(e.b, i.rank + !right);
      return i.rank < around ? "(" + text + ")" : text;
    }
    std::string text = name(e.op) + std::string("(") + operand(e.a, 0);
    if (is_number(e.op)) text.erase(0, 1);  // nsqrt
    if (arity(e.op) == 2) text += ", " + operand(e.b, 0);
    return text + ")";
  }

 private:
  const GuardProgram& p_;
  const Exprs& exprs_;
  int left_ = kMaxOperands;
};

const char* sign(const SymGuard& g) {
  switch (g.cmp) {
    case SymCmp::kSame:
    case SymCmp::kEq: return g.outcome ? " == " : " ~= ";
    case SymCmp::kNe: return g.outcome ? " ~= " : " == ";
    case SymCmp::kLt: return g.outcome ? " < " : " >= ";
    case SymCmp::kLe: return g.outcome ? " <= " : " > ";
    case SymCmp::kWhole: return g.outcome ? " is whole" : " is not whole";
    case SymCmp::kExact: return g.outcome ? " is within 2^53" : " is beyond 2^53";
  }
  return "?";
}

}  // namespace

std::string number_text(const GuardProgram& p, const SymEnv& env, int32_t expr) {
  return NumberText(p, env).operand(expr, 0);
}

std::string relation_text(const GuardProgram& p, int i) {
  const SymGuard& g = p.symbols.guards()[size_t(i)];
  NumberText text(p, p.symbols);
  std::string out = text.operand(g.a, 0) + sign(g);
  return arity(g.cmp) == 2 ? out + text.operand(g.b, 0) : out;
}

namespace {

// Calls f for the sizes and numbers of a relation from the left, each once, until f says to stop.
template <class F>
void each_leaf(const GuardProgram& p, int i, F f) {
  const SymGuard& g = p.symbols.guards()[size_t(i)];
  std::vector<int> stack{g.a};
  if (arity(g.cmp) == 2) stack.insert(stack.begin(), g.b);
  std::vector<bool> seen;
  while (!stack.empty()) {
    const int place = stack.back();
    stack.pop_back();
    if (size_t(place) >= seen.size()) seen.resize(size_t(place) + 1, false);
    if (seen[size_t(place)]) continue;
    seen[size_t(place)] = true;
    const SymExpr& e = p.symbols[place];
    if (e.op == SymOp::kConstInt || e.op == SymOp::kConstNum) continue;
    if (arity(e.op) == 0) {
      if (f(e)) return;
      continue;
    }
    if (arity(e.op) == 2) stack.push_back(e.b);
    stack.push_back(e.a);
  }
}

constexpr int kMaxValues = 4;

}  // namespace

const Source* relation_source(const GuardProgram& p, int i) {
  const Source* found = nullptr;
  each_leaf(p, i, [&](const SymExpr& e) {
    const auto& sources = e.op == SymOp::kScalarInput ? p.scalar_sources : p.tensor_sources;
    if (size_t(e.a) < sources.size()) found = sources[size_t(e.a)];
    return true;
  });
  return found;
}

std::string relation_values(const GuardProgram& p, int i, const std::vector<Tensor>& tensors,
                            const std::vector<double>& scalars) {
  std::string out;
  int left = kMaxValues;
  each_leaf(p, i, [&](const SymExpr& e) {
    std::string item;
    if (e.op == SymOp::kScalarInput) {
      if (size_t(e.a) >= scalars.size()) return false;
      item = str(source_name(p.scalar_sources, e.a), " = ", constant_text(scalars[size_t(e.a)]));
    } else {
      if (size_t(e.a) >= tensors.size() || !tensors[size_t(e.a)]) return false;
      const TensorImpl& t = *tensors[size_t(e.a)].get();
      if (size_t(e.b) >= t.sizes.size()) return false;
      const bool size = e.op == SymOp::kSize;
      item =
          str(source_name(p.tensor_sources, e.a), size ? str(".shape[", e.b + 1, "] = ") : str(":stride(", e.b, ") = "),
              (size ? t.sizes : t.strides)[size_t(e.b)].hint);
    }
    out += (out.empty() ? "" : ", ") + item;
    return --left == 0;
  });
  return out;
}

std::string relations_text(const GuardProgram& p) {
  std::string text;
  for (size_t i = 0; i < p.symbols.guards().size(); i++) text += (i ? ", " : "") + relation_text(p, int(i));
  return text;
}

}  // namespace lutra
