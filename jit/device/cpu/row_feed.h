// A kernel whose loop writes rows of a temporary that only the scatter behind it reads: both can run by blocks of rows,
// in memory that the cache holds. The scatter takes its rows in order, so blocks change no bit.
#pragma once
#include "jit/runtime/flat_plan.h"

namespace lutra {

struct RowFeed {
  int32_t pointer = -1;  // the kernel's pointer argument that is the temporary; -1: the step feeds nothing
  loop::Coef row;        // elements of a row
};

// Of steps[i]; the scatter is steps[i + 1].
RowFeed row_feed(const FlatPlan& flat, size_t i);

}  // namespace lutra
