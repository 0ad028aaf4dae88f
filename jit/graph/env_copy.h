// Expressions of one env made again in another.
#pragma once
#include <functional>
#include <memory>

#include "ops/core/sym.h"

namespace lutra {

// e with operands a and b of env (unused where it has none).
int32_t make_again(SymEnv& env, const SymExpr& e, int32_t a, int32_t b);
// Another env with the same expressions, ids and guards: who asks it does not touch the first.
std::shared_ptr<SymEnv> copy_of(const SymEnv& env);
// Likewise with other hints: `leaf` gives a leaf with its own. Null where a guard has another answer then, or an
// expression no value.
std::shared_ptr<SymEnv> copy_for(const SymEnv& env, const std::function<SymExpr(SymExpr)>& leaf);

}  // namespace lutra
