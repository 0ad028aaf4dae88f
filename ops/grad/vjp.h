// vjp rules: one function a family, written against call_op so that the eager tape and the joint graph share them.
#pragma once
#include "ops/defs/call.h"
#include "ops/grad/tape.h"

namespace lutra {

// What a rule sees. Invariants: grads[i] belongs to results[i] and may be null (no gradient flows); out[k] belongs to
// args[k] and stays null where needs(k) is false or nothing flows. Gradients have the argument's sizes and dtype.
struct VjpContext {
  OpId op;
  const Args& args;
  const Results& results;
  const Results& grads;
  const Edges& next;  // by tensor in args; without a node where it required no grad when the op ran
  std::vector<Tensor> out;
  std::vector<std::vector<Tensor>> lists = {};  // lists[k]: the gradients of args[k] where that is a list of tensors
  bool in_place = false;                        // the result took the place of args[0]
  bool needs(size_t k) const;                   // args[k] is a tensor that required grad
  bool needs(size_t k, size_t i) const;         // so is element i of the list args[k]
  Tensor arg(size_t k) const { return args[k].tensor(); }
  // Sums g down to the sizes of args[k], converts it to its dtype and makes it out[k].
  void give(size_t k, const Tensor& g);
  void give(size_t k, size_t i, const Tensor& g);
};

// Defines the rule vjp_<rule> with what it reads besides sizes and dtypes, as words "K:xN": for the gradient of
// argument K it reads the elements of argument N ("0:a1") or of result N ("0:r0"), or of the one, but where the op was
// done in place the other ("0:a0|r0"). What is not listed is not saved.
#define LUTRA_VJP(rule, saves)            \
  extern const char* const saves_##rule;  \
  const char* const saves_##rule = saves; \
  void vjp_##rule(VjpContext& ctx);       \
  void vjp_##rule([[maybe_unused]] VjpContext& ctx)

// Sums a gradient down to the sizes that broadcasting expanded.
Tensor sum_to_size(const Tensor& grad, const Sizes& sizes);

}  // namespace lutra
