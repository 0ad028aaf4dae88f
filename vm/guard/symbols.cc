// Symbol programs: SymEnv expressions in, values and the truth of guards out.
#include "vm/guard/symbols.h"

namespace lutra {
namespace {

// A host operation on values, as SymEnv computed its hint.
SymbolValue evaluate(SymOp op, SymbolValue a, SymbolValue b) {
  SymbolValue r;
  if (op == SymOp::kToNum) {
    r.d = double(a.i);
  } else if (is_number(op)) {
    r.d = eval_number(op, a.d, b.d);
  } else if ((op == SymOp::kFloorDiv || op == SymOp::kMod) && b.i == 0) {
    r.i = 0;  // of an empty tensor: the loops that use it run zero times
  } else {
    r.i = eval_int(op, a.i, b.i);
  }
  return r;
}

const char* text(SymCmp cmp, bool outcome) {
  switch (cmp) {
    case SymCmp::kEq: return outcome ? " == " : " ~= ";
    case SymCmp::kNe: return outcome ? " ~= " : " == ";
    case SymCmp::kLt: return outcome ? " < " : " >= ";
    case SymCmp::kLe: return outcome ? " <= " : " > ";
    case SymCmp::kWhole: return outcome ? " is whole" : " is not whole";
  }
  return "?";
}

}  // namespace

int SymbolProgram::need(const SymEnv& env, int32_t id) {
  auto it = places_.find(id);
  if (it != places_.end()) return it->second;
  SymExpr e = env[id];
  if (arity(e.op) > 0) {
    e.a = need(env, e.a);
    e.b = arity(e.op) == 1 ? e.a : need(env, e.b);
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

bool SymbolProgram::holds(const SymGuard& g, const std::vector<SymbolValue>& values) const {
  const bool a = is_number(g.a), b = is_number(g.b);
  if (!a && !b) return compare_int(g.cmp, values[g.a].i, values[g.b].i);
  const auto number = [&](int32_t id, bool is) { return is ? values[id].d : double(values[id].i); };
  return compare_number(g.cmp, number(g.a, a), number(g.b, b));
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
    if (holds(guard, values) != guard.outcome) {
      *failed = int(g);
      return false;
    }
  }
  return true;
}

}  // namespace lutra
