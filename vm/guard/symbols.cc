// Symbol programs: SymEnv expressions in, values and the truth of guards out.
#include "vm/guard/symbols.h"

#include <cmath>

namespace lutra {
namespace {

int64_t floor_divide(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - (a % b != 0 && (a % b < 0) != (b < 0));
}

bool is_leaf(SymOp op) {
  return op == SymOp::kConstInt || op == SymOp::kConstNum || op == SymOp::kSize || op == SymOp::kStride ||
         op == SymOp::kScalarInput;
}

bool is_unary(SymOp op) {
  switch (op) {
    case SymOp::kNNeg:
    case SymOp::kNSqrt:
    case SymOp::kNExp:
    case SymOp::kNLog:
    case SymOp::kNSin:
    case SymOp::kNCos:
    case SymOp::kNFloor:
    case SymOp::kNCeil:
    case SymOp::kNAbs:
    case SymOp::kToNum:
      return true;
    default:
      return false;
  }
}

bool holds(SymCmp cmp, const SymExpr& ea, SymbolValue a, SymbolValue b) {
  const bool number = is_number(ea.op);
  switch (cmp) {
    case SymCmp::kEq:
      return number ? a.d == b.d : a.i == b.i;
    case SymCmp::kNe:
      return number ? a.d != b.d : a.i != b.i;
    case SymCmp::kLt:
      return number ? a.d < b.d : a.i < b.i;
    case SymCmp::kLe:
      return number ? a.d <= b.d : a.i <= b.i;
    case SymCmp::kWhole:
      return !number || (std::floor(a.d) == a.d && std::fabs(a.d) <= 9007199254740992.0);
  }
  return false;
}

const char* text(SymCmp cmp, bool outcome) {
  switch (cmp) {
    case SymCmp::kEq:
      return outcome ? " == " : " ~= ";
    case SymCmp::kNe:
      return outcome ? " ~= " : " == ";
    case SymCmp::kLt:
      return outcome ? " < " : " >= ";
    case SymCmp::kLe:
      return outcome ? " <= " : " > ";
    case SymCmp::kWhole:
      return outcome ? " is whole" : " is not whole";
  }
  return "?";
}

}  // namespace

SymbolValue evaluate(const SymExpr& e, SymbolValue a, SymbolValue b) {
  SymbolValue r;
  switch (e.op) {
    case SymOp::kAdd:
      r.i = int64_t(uint64_t(a.i) + uint64_t(b.i));
      break;
    case SymOp::kSub:
      r.i = int64_t(uint64_t(a.i) - uint64_t(b.i));
      break;
    case SymOp::kMul:
      r.i = int64_t(uint64_t(a.i) * uint64_t(b.i));
      break;
    case SymOp::kFloorDiv:
      r.i = b.i ? floor_divide(a.i, b.i) : 0;
      break;
    case SymOp::kMod:
      r.i = b.i ? a.i - floor_divide(a.i, b.i) * b.i : 0;
      break;
    case SymOp::kMin:
      r.i = std::min(a.i, b.i);
      break;
    case SymOp::kMax:
      r.i = std::max(a.i, b.i);
      break;
    case SymOp::kNAdd:
      r.d = a.d + b.d;
      break;
    case SymOp::kNSub:
      r.d = a.d - b.d;
      break;
    case SymOp::kNMul:
      r.d = a.d * b.d;
      break;
    case SymOp::kNDiv:
      r.d = a.d / b.d;
      break;
    case SymOp::kNMod:
      r.d = a.d - std::floor(a.d / b.d) * b.d;
      break;
    case SymOp::kNPow:
      r.d = std::pow(a.d, b.d);
      break;
    case SymOp::kNNeg:
      r.d = -a.d;
      break;
    case SymOp::kNSqrt:
      r.d = std::sqrt(a.d);
      break;
    case SymOp::kNExp:
      r.d = std::exp(a.d);
      break;
    case SymOp::kNLog:
      r.d = std::log(a.d);
      break;
    case SymOp::kNSin:
      r.d = std::sin(a.d);
      break;
    case SymOp::kNCos:
      r.d = std::cos(a.d);
      break;
    case SymOp::kNFloor:
      r.d = std::floor(a.d);
      break;
    case SymOp::kNCeil:
      r.d = std::ceil(a.d);
      break;
    case SymOp::kNAbs:
      r.d = std::fabs(a.d);
      break;
    case SymOp::kNMin:
      r.d = b.d < a.d ? b.d : a.d;
      break;
    case SymOp::kNMax:
      r.d = b.d > a.d ? b.d : a.d;
      break;
    case SymOp::kToNum:
      r.d = double(a.i);
      break;
    default:
      fail_internal("symbols: a leaf has no operands");
  }
  return r;
}

int SymbolProgram::need(const SymEnv& env, int32_t id) {
  auto it = places_.find(id);
  if (it != places_.end()) return it->second;
  SymExpr e = env[id];
  if (!is_leaf(e.op)) {
    e.a = need(env, e.a);
    e.b = is_unary(e.op) ? e.a : need(env, e.b);
  }
  exprs_.push_back(e);
  return places_[id] = int(exprs_.size()) - 1;
}

void SymbolProgram::add_guards(const SymEnv& env) {
  for (const SymGuard& g : env.guards()) {
    SymGuard mine = g;
    mine.a = need(env, g.a);
    mine.b = g.cmp == SymCmp::kWhole ? mine.a : need(env, g.b);
    guards_.push_back(mine);
    texts_.push_back(env.print(g.a) + text(g.cmp, g.outcome) + (g.cmp == SymCmp::kWhole ? "" : env.print(g.b)));
  }
}

bool SymbolProgram::run(const std::vector<Tensor>& tensors, const std::vector<double>& scalars,
                        std::vector<SymbolValue>& values, int* failed) const {
  values.resize(exprs_.size());
  for (size_t i = 0; i < exprs_.size(); i++) {
    const SymExpr& e = exprs_[i];
    switch (e.op) {
      case SymOp::kConstInt:
        values[i].i = e.i;
        break;
      case SymOp::kConstNum:
        values[i].d = e.d;
        break;
      case SymOp::kSize:
        values[i].i = tensors[e.a]->sizes[e.b].hint;
        break;
      case SymOp::kStride:
        values[i].i = tensors[e.a]->strides[e.b].hint;
        break;
      case SymOp::kScalarInput:
        values[i].d = scalars[e.a];
        break;
      default:
        values[i] = evaluate(e, values[e.a], values[e.b]);
    }
  }
  for (size_t g = 0; g < guards_.size(); g++) {
    const SymGuard& guard = guards_[g];
    if (holds(guard.cmp, exprs_[guard.a], values[guard.a], values[guard.b]) != guard.outcome) {
      *failed = int(g);
      return false;
    }
  }
  return true;
}

}  // namespace lutra
