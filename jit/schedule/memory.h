// Assigns the temporaries of a plan to slots of its arena, and finds from which launch to which each slot is in use.
// The plan's expressions are env's.
#pragma once
#include "jit/schedule/plan.h"

namespace lutra {

// Invariants: two temporaries of one size may share a slot if the one launch that uses both overwrites each element of
// the first right after its last use. Slots that are not in use during the same launch, or during launches in parallel,
// may be at the same place (jit/runtime/arena.h).
void plan_memory(Plan& plan, SymEnv& env);

}  // namespace lutra
