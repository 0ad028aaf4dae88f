// Making an expression is a function of its operands, so that expressions made in their order have the same ids.
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

std::shared_ptr<SymEnv> copy_of(const SymEnv& env) {
  auto copy = std::make_shared<SymEnv>();
  const int32_t n = int32_t(env.size());
  for (int32_t id = 1; id < n; id++) {
    if (env[id].op == SymOp::kSize) copy->assume_sizes(env.made_range(id));
  }
  for (int32_t id = 1; id < n; id++) {
    const int32_t made = make_again(*copy, env[id], env[id].a, env[id].b);
    LUTRA_CHECK(made == id, "expression ", id, " of an env is ", made, " in its copy");
  }
  for (const SymGuard& g : env.guards()) copy->ask(g.cmp, g.a, g.b);
  return copy;
}

}  // namespace lutra
