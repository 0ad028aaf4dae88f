// Turns expressions into a list of steps, and evaluates them. Invariant: a step reads slots of earlier steps only.
#include "jit/runtime/host_program.h"

#include <algorithm>
#include <cmath>

#include "ops/core/error.h"

namespace lutra {

void HostProgram::begin(std::span<const SymExpr> exprs, std::span<const int32_t> positions) {
  exprs_ = exprs;
  positions_.assign(positions.begin(), positions.end());
  slots_.assign(exprs.size(), -1);
  int_slots_.assign(exprs.size(), -1);
  number_slots_.assign(exprs.size(), -1);
}

// Assigns slots to operands first, with a stack of its own, since chains of expressions may be long.
int32_t HostProgram::slot(int32_t expr) {
  LUTRA_CHECK(expr >= 0 && size_t(expr) < slots_.size(), "expression ", expr);
  if (slots_[size_t(expr)] >= 0) return slots_[size_t(expr)];
  std::vector<int32_t> stack{expr};
  while (!stack.empty()) {
    const int32_t id = stack.back();
    const SymExpr& e = exprs_[size_t(id)];
    const size_t depth = stack.size();
    if (slots_[size_t(id)] < 0 && arity(e.op) > 0) {
      if (arity(e.op) == 2 && slots_[size_t(e.b)] < 0) stack.push_back(e.b);
      if (slots_[size_t(e.a)] < 0) stack.push_back(e.a);
    }
    if (stack.size() > depth) continue;
    stack.pop_back();
    if (slots_[size_t(id)] < 0) add_step(id);
  }
  return slots_[size_t(expr)];
}

// Adds the step of an expression whose operands have slots.
void HostProgram::add_step(int32_t expr) {
  const SymExpr e = exprs_[size_t(expr)];
  HostOp s{e.op, -1, e.a, e.b, kNone};
  const int n = arity(e.op);
  if (n >= 1) s.a = e.op == SymOp::kToNum ? int_slot(e.a) : slots_[size_t(e.a)];
  if (n == 2) s.b = slots_[size_t(e.b)];
  s.dst = slots_[size_t(expr)] = fresh();
  if (e.op == SymOp::kConstInt) {
    start_[s.dst].i = e.i;
  } else if (e.op == SymOp::kConstNum) {
    start_[s.dst].d = e.d;
  } else {
    if (e.op == SymOp::kSize || e.op == SymOp::kStride) {
      if (size_t(e.a) < positions_.size()) s.a = positions_[size_t(e.a)];
      LUTRA_CHECK(s.a >= 0, "the size of a constant is a symbol");
      input_count_ = std::max(input_count_, s.a + 1);
    }
    steps_.push_back(s);
  }
}

int32_t HostProgram::int_slot(int32_t expr) {
  const int32_t from = slot(expr);
  int32_t& known = int_slots_[expr];
  if (!is_number(exprs_[size_t(expr)].op)) return known = from;
  if (known < 0) known = fresh(), steps_.push_back({SymOp::kToNum, known, from, 0, kToInt});
  return known;
}

int32_t HostProgram::number_slot(int32_t expr) {
  const int32_t from = slot(expr);
  if (is_number(exprs_[size_t(expr)].op)) return from;
  int32_t& known = number_slots_[expr];
  if (known < 0) known = fresh(), steps_.push_back({SymOp::kToNum, known, from, 0, kToNumber});
  return known;
}

void HostProgram::add_guard(const SymGuard& g, int32_t level) {
  const bool a = is_number(exprs_[size_t(g.a)].op), b = arity(g.cmp) == 2 && is_number(exprs_[size_t(g.b)].op);
  const bool numbers = a || b;
  Guard guard{g.cmp, numbers, g.outcome, level, numbers ? number_slot(g.a) : slot(g.a), 0};
  if (arity(g.cmp) == 2) guard.b = numbers ? number_slot(g.b) : slot(g.b);
  guards_.push_back(guard);
}

void HostProgram::run(HostValue* v, const InputView* inputs, const double* scalars) const {
  for (const HostOp& s : steps_) {
    switch (s.op) {
      case SymOp::kSize: v[s.dst].i = inputs[s.a].sizes[s.b].hint; break;
      case SymOp::kStride: v[s.dst].i = inputs[s.a].strides[s.b].hint; break;
      case SymOp::kScalarInput: v[s.dst].d = scalars[s.a]; break;
      case SymOp::kToInt: v[s.dst].i = eval_to_int(v[s.a].d); break;
      case SymOp::kMul: v[s.dst].i = sym_exact(SymOp::kMul, v[s.a].i, v[s.b].i); break;
      case SymOp::kToNum:
        if (s.convert == kToInt) {
          v[s.dst].i = eval_to_int(v[s.a].d);
        } else {
          v[s.dst].d = double(v[s.a].i);
        }
        break;
      default:
        if (is_number(s.op)) {
          v[s.dst].d = eval_number(s.op, v[s.a].d, v[s.b].d);
        } else if ((s.op == SymOp::kFloorDiv || s.op == SymOp::kMod) && v[s.b].i == 0) {
          v[s.dst].i = 0;  // for an empty tensor; loops with this size run zero times
        } else {
          v[s.dst].i = eval_int(s.op, v[s.a].i, v[s.b].i);
        }
    }
  }
}

bool HostProgram::guards_hold(const HostValue* v, int32_t level) const {
  for (const Guard& g : guards_) {
    if (g.level > level) continue;
    const bool answer = g.numbers ? compare_number(g.cmp, v[g.a].d, v[g.b].d) : compare_int(g.cmp, v[g.a].i, v[g.b].i);
    if (answer != g.outcome) return false;
  }
  return true;
}

}  // namespace lutra
