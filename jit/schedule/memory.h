// Temporaries of a plan in; slots of its arena out.
#pragma once
#include "jit/schedule/plan.h"

namespace lutra {

// Invariants: two temporaries share a slot only if no launch, nor the launches beside it, needs both, or where
// the one that needs both overwrites each element of the first right after its last use; a slot is as large as each of
// them.
void plan_memory(Plan& plan);

}  // namespace lutra
