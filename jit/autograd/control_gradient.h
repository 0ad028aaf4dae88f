// Branches and loops of a trace that gradients go through. In: recorded functions and what they are called on. Out: the
// op's results, with a node of the tape that, at its turn, calls the op on the functions' backwards.
//
// Invariants:
// 1. Gradients are eager's, bit for bit: those of a tensor that several steps read go on from step to step, use by use.
// 2. The backward of a loop goes through it in the other direction. Where the gradients that there are change from step
//    to step, as in the first ones, steps stand by themselves before the loop.
// 3. The forward of a cond or scan saves what its backward reads. That of a while_loop saves it of so many first steps
//    as little memory holds; the backward of a loop of more steps makes all again, and saves it of them.
// 4. Which tensors have gradients does not depend on the data: what a branch does not read, or a loop of no steps, has
//    zeros. Eager code has them from ops/grad/control_border.h.
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
  std::shared_ptr<TracedFunction> traced;  // null where its results take no gradients
};

// Of what cannot be a part of a graph: it does not return while the trace is recorded, and does nothing later.
using Refuse = std::function<void(const std::string& why)>;

Results call_cond(const Tensor& pred, const RecordedFunction& f, const RecordedFunction& g, const Refuse& refuse);
Results call_while_loop(const ControlFunction& test, const RecordedFunction& body, const std::vector<Tensor>& carried,
                        const Refuse& refuse);
// Refuses a body that carries what takes a gradient in its first step only.
void check_steps_alike(const RecordedFunction& body, const Refuse& refuse);
// What the gradient of a loop's results goes on to, among what its body reads. Empty: its results take no gradients.
std::vector<Tensor> reached_by_loop(const RecordedFunction& body);
Results call_scan(const RecordedFunction& body, const std::vector<Tensor>& carried, const std::vector<Tensor>& xs,
                  const Sizes& dims, bool reverse, const Refuse& refuse);

}  // namespace lutra
