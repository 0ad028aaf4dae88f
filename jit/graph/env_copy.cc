// Copies a SymEnv. An env numbers expressions in the order of their creation, so making the same expressions in the
// same order gives the same ids.
#include "jit/graph/env_copy.h"

#include "ops/core/error.h"

namespace lutra {

int32_t make_again(SymEnv& env, const SymExpr& e, int32_t a, int32_t b) {
  switch (arity(e.op)) {
    case 0:
      if (e.op == SymOp::kConstInt) return env.constant(e.i);
      if (e.op == SymOp::kConstNum) return env.number(e.d);
      return env.leaf(e.op, e.a, e.b, e.i, e.d);
    case 1: return env.make(e.op, a);
    default: return env.make(e.op, a, b);
  }
}

namespace {

template <class Leaf>
std::shared_ptr<SymEnv> with_expressions(const SymEnv& env, const Leaf& leaf) {
  auto copy = std::make_shared<SymEnv>();
  const int32_t n = int32_t(env.size());
  for (int32_t id = 1; id < n; id++) {
    if (env[id].op == SymOp::kSize) copy->assume_sizes(env.made_range(id));
  }
  for (int32_t id = 1; id < n; id++) {
    const int32_t made = make_again(*copy, leaf(env[id]), env[id].a, env[id].b);
    if (env[id].op == SymOp::kScalarInput && env.varies(id)) copy->let_vary(made);
    LUTRA_CHECK(made == id, "expression ", id, " of an env is ", made, " in its copy");
  }
  return copy;
}

}  // namespace

std::shared_ptr<SymEnv> copy_of(const SymEnv& env) {
  auto copy = with_expressions(env, [](const SymExpr& e) { return e; });
  for (const SymGuard& g : env.guards()) copy->ask(g.cmp, g.a, g.b);
  return copy;
}

std::shared_ptr<SymEnv> copy_for(const SymEnv& env, const std::function<SymExpr(SymExpr)>& leaf) {
  std::shared_ptr<SymEnv> copy;
  try {
    copy = with_expressions(env, [&](const SymExpr& e) { return arity(e.op) == 0 ? leaf(e) : e; });
  } catch (const Error&) {
    return nullptr;  // a division by 0, a size that is too large
  }
  for (const SymGuard& g : env.guards()) {
    if (copy->ask(g.cmp, g.a, g.b) != g.outcome) return nullptr;
  }
  return copy;
}

}  // namespace lutra
