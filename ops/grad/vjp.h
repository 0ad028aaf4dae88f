// vjp rules: one function a family, written against call_op so that the eager tape and the joint graph share them.
#pragma once
#include "ops/defs/call.h"

namespace lutra {

// What a rule sees. Invariants: grads[i] belongs to results[i] and may be null (no gradient flows); out[k] belongs to
// args[k] and stays null where needs(k) is false or nothing flows. Gradients have the argument's sizes and dtype.
struct VjpContext {
  OpId op;
  const Args& args;
  const Results& results;
  const Results& grads;
  std::vector<Tensor> out;
  bool needs(size_t k) const;  // args[k] is a tensor that requires grad
  Tensor arg(size_t k) const { return args[k].tensor(); }
  void set(size_t k, Tensor g) { out[k] = std::move(g); }
};

// Sums a gradient down to the sizes that broadcasting expanded.
Tensor sum_to_size(const Tensor& grad, const Sizes& sizes);

}  // namespace lutra
