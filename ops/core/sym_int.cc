// Arithmetic of SymInts and of lists of them. Constants give constants, anything else gives an expression of the
// current SymEnv.
#include <utility>

#include "ops/core/error.h"
#include "ops/core/sym.h"

namespace lutra {

namespace {
SymEnv& env_or_throw() {
  SymEnv* env = SymEnv::current();
  LUTRA_CHECK(env, "a symbolic size outside tracing");
  return *env;
}
}  // namespace

int64_t SymInt::guard() const {
  if (expr) env_or_throw().pin(expr);
  return hint;
}

int32_t SymInt::to_expr() const { return expr ? expr : env_or_throw().constant(hint); }

void sym_overflow(SymOp op, int64_t a, int64_t b) {
  // A symbolic sum or product sorts its operands. The message does not depend on that order.
  if (op != SymOp::kSub && a < b) std::swap(a, b);
  fail("sizes are too large: ", a,
       op == SymOp::kAdd   ? " + "
       : op == SymOp::kSub ? " - "
                           : " * ",
       b, " does not fit into 64 bits");
}

SymInt sym_binary(SymOp op, SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return SymInt(eval_int(op, a.hint, b.hint));
  SymEnv& env = env_or_throw();
  return SymInt::of_expr(env, env.make(op, a.to_expr(), b.to_expr()));
}

bool sym_ask(SymCmp cmp, SymInt a, SymInt b) { return env_or_throw().ask(cmp, a.to_expr(), b.to_expr()); }

SymInt floor_div(SymInt a, SymInt b) { return sym_binary(SymOp::kFloorDiv, a, b); }
SymInt floor_mod(SymInt a, SymInt b) { return sym_binary(SymOp::kMod, a, b); }
SymInt sym_min(SymInt a, SymInt b) { return sym_binary(SymOp::kMin, a, b); }
SymInt sym_max(SymInt a, SymInt b) { return sym_binary(SymOp::kMax, a, b); }

SymInt numel(const Sizes& sizes) {
  SymInt n = 1;
  for (SymInt s : sizes) n = n * s;
  return n;
}

Sizes contiguous_strides(const Sizes& sizes) {
  Sizes strides;
  strides.resize(sizes.size());
  SymInt next = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = next;
    // As in PyTorch, an empty dimension counts as one. A symbolic dimension is not asked, because an empty tensor's
    // strides mean nothing.
    if (!sizes[d].is_constant() || sizes[d].hint > 1) next = next * sizes[d];
  }
  return strides;
}

std::string to_string(const Sizes& sizes) {
  std::string s = "{";
  for (size_t i = 0; i < sizes.size(); i++) s += (i ? ", " : "") + std::to_string(sizes[i].hint);
  return s + "}";
}

}  // namespace lutra
