// Borders of control flow in eager code. Which tensors have gradients is not to depend on what the data decided: what
// only the other branch reads, or a loop of no steps, has zeros, as in compiled code (jit/autograd/control_gradient.h)
// and in PyTorch.
#pragma once
#include "ops/grad/tape.h"

namespace lutra {

// Results of a branch. others: by result, what the other branch's result reads, which is given zeros where nothing else
// gives it a gradient. results[k] without others is as it was.
std::vector<Tensor> join_branches(const std::vector<Tensor>& results, const std::vector<std::vector<Tensor>>& others);

struct LoopBorder {
  std::vector<Tensor> values;
  Tensor token;  // of this border, for the next: a gradient goes through all of them
};
// What a loop carries, between two steps. takes: which of them have gradients, which then lie as they do; zeros where
// nothing comes. reads: what the body reads; given behind the last step, and as dense as the values.
LoopBorder loop_border(const std::vector<Tensor>& values, const std::vector<bool>& takes,
                       const std::vector<Tensor>& reads, const Tensor& token);

}  // namespace lutra
