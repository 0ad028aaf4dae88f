// A loop in; functions for several of its steps at once out.
#pragma once
#include <memory>
#include <vector>

#include "jit/graph/graph.h"

namespace lutra {

// Functions that make kStepsAtOnce steps (plan.h); none where steps one by one take no longer, or where more than
// numbers decides whether there is a next one.
// Of a while_loop: whether all of the next steps are made, by what is carried, what test reads and what body reads; the
// steps, by what is carried and what body reads, which give what is carried on, then what each step gives beside it.
// Of a while_loop_back: back's steps, by sums, by what is saved of each step, the last one first, and by what back
// reads; then, if any, the body's, as a while_loop's.
std::vector<std::unique_ptr<Graph>> several_steps(const Node& loop);

}  // namespace lutra
