// Symbol programs. In: SymEnv expressions. Out: values, and whether guards hold.
#include "vm/guard/symbols.h"

namespace lutra {
namespace {

// Evaluates a host operation as SymEnv computed its hint. Throws nothing, because guards may not hold: an integer that
// does not fit becomes the largest one.
SymbolValue evaluate(SymOp op, SymbolValue a, SymbolValue b) {
  SymbolValue r;
  if (op == SymOp::kToNum) {
    r.d = double(a.i);
  } else if (op == SymOp::kToInt) {
    r.i = eval_to_int(a.d);
  } else if (is_number(op)) {
    r.d = eval_number(op, a.d, b.d);
  } else if ((op == SymOp::kFloorDiv || op == SymOp::kMod) && b.i == 0) {
    r.i = 0;  // for an empty tensor: the loops that use it run zero times
  } else if ((op == SymOp::kAdd && __builtin_add_overflow(a.i, b.i, &r.i)) ||
             (op == SymOp::kSub && __builtin_sub_overflow(a.i, b.i, &r.i)) ||
             (op == SymOp::kMul && __builtin_mul_overflow(a.i, b.i, &r.i))) {
    r.i = INT64_MAX;
  } else if (op != SymOp::kAdd && op != SymOp::kSub && op != SymOp::kMul) {
    r.i = eval_int(op, a.i, b.i);
  }
  return r;
}

}  // namespace

double compute(SymOp op, double a, double b) {
  const SymbolValue r = evaluate(op, {eval_to_int(a), a}, {eval_to_int(b), b});
  return is_number(op) ? r.d : double(r.i);
}

// Copies operands first. It uses a stack of its own, because a chain of operands may be long.
int SymbolProgram::need(const SymEnv& env, int32_t wanted) {
  std::vector<int32_t> stack{wanted};
  while (!stack.empty()) {
    const int32_t id = stack.back();
    SymExpr e = env[id];
    const int operands = arity(e.op);
    const auto a = operands > 0 ? places_.find(e.a) : places_.end();
    const auto b = operands > 1 ? places_.find(e.b) : a;
    if (operands > 0 && a == places_.end()) stack.push_back(e.a);
    if (operands > 1 && b == places_.end()) stack.push_back(e.b);
    if (stack.back() != id) continue;
    stack.pop_back();
    if (places_.count(id)) continue;
    if (operands > 0) e.a = a->second, e.b = b->second;
    exprs_.push_back(e);
    places_[id] = int(exprs_.size()) - 1;
  }
  return places_.at(wanted);
}

std::vector<size_t> SymbolProgram::add_guards(SymEnv& env, const std::vector<int32_t>& excluded) {
  std::vector<size_t> origins;
  const auto known = [&](int32_t id) { return size_t(id) >= excluded.size() || !excluded[size_t(id)]; };
  for (const auto& [guard, origin] : env.needed_guards()) {
    if (!known(guard.a) || (arity(guard.cmp) == 2 && !known(guard.b))) continue;
    SymGuard mine = guard;
    mine.a = need(env, guard.a);
    mine.b = arity(guard.cmp) == 2 ? need(env, guard.b) : mine.a;
    guards_.push_back(mine);
    origins.push_back(origin);
  }
  return origins;
}

bool SymbolProgram::holds(const SymGuard& g, const std::vector<SymbolValue>& values) const {
  const bool a = is_number(g.a), b = is_number(g.b);
  const auto number = [&](int32_t id, bool is) { return is ? values[id].d : double(values[id].i); };
  const bool answer =
      a || b ? compare_number(g.cmp, number(g.a, a), number(g.b, b)) : compare_int(g.cmp, values[g.a].i, values[g.b].i);
  return answer == g.outcome;
}

bool SymbolProgram::run(const std::vector<Tensor>& tensors, const std::vector<double>& scalars,
                        std::vector<SymbolValue>& values, int* failed) const {
  values.resize(exprs_.size());
  for (size_t i = 0; i < exprs_.size(); i++) {
    const SymExpr& e = exprs_[i];
    switch (e.op) {
      case SymOp::kConstInt: values[i].i = e.i; break;
      case SymOp::kConstNum: values[i].d = e.d; break;
      case SymOp::kSize: values[i].i = tensors[e.a]->sizes[e.b].hint; break;
      case SymOp::kStride: values[i].i = tensors[e.a]->strides[e.b].hint; break;
      case SymOp::kScalarInput: values[i].d = scalars[e.a]; break;
      default: values[i] = evaluate(e.op, values[e.a], values[e.b]);
    }
  }
  for (size_t g = 0; g < guards_.size(); g++) {
    const SymGuard& guard = guards_[g];
    if (!holds(guard, values)) {
      *failed = int(g);
      return false;
    }
  }
  return true;
}

}  // namespace lutra
