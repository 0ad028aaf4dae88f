// Makes functions for several steps of a loop at once.
#pragma once
#include <memory>
#include <vector>

#include "jit/graph/graph.h"

namespace lutra {

// Returns functions that make kStepsAtOnce steps (plan.h). Empty if single steps take no longer, or if more than
// numbers decides whether there is a next step.
// For a while_loop: a test of whether all these steps are made, whose arguments are the carried values, what test reads
// and what body reads; and the steps, whose arguments are the carried values and what body reads. The steps return the
// carried values, then each step's other results.
// For a while_loop_back: back's steps, whose arguments are the sums, the saved values of each step, the last step
// first, and what back reads; then, if there are any, the body's steps as for a while_loop.
std::vector<std::unique_ptr<Graph>> several_steps(const Node& loop);

}  // namespace lutra
