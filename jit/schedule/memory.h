// Temporaries of a plan in (its expressions are env's); slots of its arena, and from which launch to which each is in
// use, out.
#pragma once
#include "jit/schedule/plan.h"

namespace lutra {

// Invariants: two temporaries share a slot only where the one launch that needs both overwrites each element of the
// first right after its last use, and they are of one size; slots in use at no common launch, nor launches side by
// side, may lie in the same place (jit/runtime/arena.h).
void plan_memory(Plan& plan, SymEnv& env);

}  // namespace lutra
