// A kernel whose loop writes rows of a temporary that only the next launch, a scatter, reads. Both can run in blocks of
// rows, in memory that fits the cache. The scatter takes its rows in order, so blocks change no bit.
#pragma once
#include "jit/runtime/flat_plan.h"

namespace lutra {

struct RowFeed {
  int32_t pointer = -1;  // the kernel's pointer argument for the temporary; -1: the step feeds no scatter
  loop::Coef row;        // number of elements in a row
};

// Returns the feed of steps[i]; the scatter is steps[i + 1].
RowFeed row_feed(const FlatPlan& flat, size_t i);

}  // namespace lutra
