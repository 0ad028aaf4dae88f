// Branches and loops in a trace that gradients go through. In: recorded functions and their arguments. Out: the op's
// results, with a node of the tape. In a backward, this node calls the op on the functions' backwards.
//
// Invariants:
// 1. Gradients are eager's, bit for bit. If several steps read a tensor, its gradient is summed from step to step, use
//    by use.
// 2. The backward of a loop runs in the other direction. Steps at which the set of gradients changes, such as the first
//    ones, run before the loop, one by one.
// 3. The forward of a cond or scan saves what its backward reads. The forward of a while_loop saves it for the first
//    steps only, as many as fit in little memory. The backward of a longer loop runs all steps again and saves it then.
// 4. Which tensors have gradients does not depend on the data: a tensor that a branch or a loop of no steps does not
//    read gets zeros. Eager code gets these zeros from ops/grad/control_border.h.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/autograd/traced_function.h"
#include "ops/defs/control.h"

namespace lutra {

struct RecordedFunction {
  ControlFunction plain;
  std::shared_ptr<TracedFunction> traced;  // null if its results take no gradients
};

// Called when something cannot be a part of a graph. It does not return while the trace is recorded. Later it does
// nothing.
using Refuse = std::function<void(const std::string& why)>;

Results call_cond(const Tensor& pred, const RecordedFunction& f, const RecordedFunction& g, const Refuse& refuse);
Results call_while_loop(const ControlFunction& test, const RecordedFunction& body, const std::vector<Tensor>& carried,
                        const Refuse& refuse);
// Refuses a loop if something that it carries takes a gradient in the first step only.
void check_steps_alike(const RecordedFunction& body, const Refuse& refuse);
// Returns the tensors read by the body that get gradients from the loop's results. Empty if the results take no
// gradients.
std::vector<Tensor> reached_by_loop(const RecordedFunction& body);
Results call_scan(const RecordedFunction& body, const std::vector<Tensor>& carried, const std::vector<Tensor>& xs,
                  const Sizes& dims, bool reverse, const Refuse& refuse);

}  // namespace lutra
