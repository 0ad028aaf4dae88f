// Expressions of one env made again in another.
#pragma once
#include <memory>

#include "ops/core/sym.h"

namespace lutra {

// e with operands a and b of env (unused where it has none).
int32_t make_again(SymEnv& env, const SymExpr& e, int32_t a, int32_t b);
// Another env with the same expressions, ids and guards: who asks it does not touch the first.
std::shared_ptr<SymEnv> copy_of(const SymEnv& env);

}  // namespace lutra
