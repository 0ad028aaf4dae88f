// Borders of control flow in eager code. Which tensors get gradients must not depend on the data. So tensors that only
// the other branch reads, or that a loop of no steps would read, get zeros, as in compiled code
// (jit/autograd/control_gradient.h) and in PyTorch.
#pragma once
#include "ops/grad/tape.h"

namespace lutra {

// Joins the results of a branch. others[k]: the tensors that the other branch's result k reads. They get zeros if
// nothing else gives them a gradient. If others[k] is empty, results[k] is returned unchanged.
std::vector<Tensor> join_branches(const std::vector<Tensor>& results, const std::vector<std::vector<Tensor>>& others);

struct LoopBorder {
  std::vector<Tensor> values;
  Tensor token;  // this border's token, an input of the next border: a gradient passes all of them
};
// Wraps the values that a loop carries between two steps. If takes[k] is set, values[k] has a gradient with its layout,
// which is zeros if none comes. reads: the tensors that the body reads, as dense as the values. Pass them to the border
// behind the last step.
LoopBorder loop_border(const std::vector<Tensor>& values, const std::vector<bool>& takes,
                       const std::vector<Tensor>& reads, const Tensor& token);

}  // namespace lutra
