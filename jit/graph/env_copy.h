// Rebuilds expressions of one SymEnv in another.
#pragma once
#include <functional>
#include <memory>

#include "ops/core/sym.h"

namespace lutra {

// Makes the expression e in env, with the operands a and b of env. Those that e does not take are ignored.
int32_t make_again(SymEnv& env, const SymExpr& e, int32_t a, int32_t b);
// Returns an env with the same expressions, ids and guards. Queries on the copy do not change the original.
std::shared_ptr<SymEnv> copy_of(const SymEnv& env);
// Like copy_of, but with other hints: `leaf` maps each leaf to the same leaf with a new hint. Returns null if a guard
// has another outcome under these hints, or an expression has no value.
std::shared_ptr<SymEnv> copy_for(const SymEnv& env, const std::function<SymExpr(SymExpr)>& leaf);

}  // namespace lutra
