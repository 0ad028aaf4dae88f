// vjp rules: one function a family, written against call_op so that the eager tape and the joint graph share them.
#pragma once
#include "ops/defs/call.h"
#include "ops/grad/tape.h"

namespace lutra {

// The arguments of a rule. Invariants: grads[i] belongs to results[i] and may be null (no gradient flows). out[k]
// belongs to args[k] and stays null if needs(k) is false or no gradient flows. Gradients have the argument's sizes and
// dtype.
struct VjpContext {
  OpId op;
  const Args& args;
  const Results& results;
  const Results& grads;
  SmallVec<bool, 8> wanted;  // by tensor in args: it required grad when the op ran
  std::vector<Tensor> out;
  std::vector<std::vector<Tensor>> lists = {};  // lists[k]: the gradients of args[k] if that is a list of tensors
  bool in_place = false;                        // the result was written over args[0]
  bool needs(size_t k) const;                   // args[k] is a tensor that required grad
  bool needs(size_t k, size_t i) const;         // element i of the list args[k] required grad
  Tensor arg(size_t k) const { return args[k].tensor(); }
  // Sums g down to the sizes of args[k], converts it to that argument's dtype and stores it in out[k].
  void give(size_t k, const Tensor& g);
  void give(size_t k, size_t i, const Tensor& g);
};

// Defines the rule vjp_<rule> and lists the values whose elements it reads, as words "K:xN". For the gradient of
// argument K it reads argument N ("0:a1") or result N ("0:r0"). "0:a0|r0" means the first, or the second if the op was
// done in place. A value that is not listed is not saved, except for its sizes and dtype.
#define LUTRA_VJP(rule, saves)            \
  extern const char* const saves_##rule;  \
  const char* const saves_##rule = saves; \
  void vjp_##rule(VjpContext& ctx);       \
  void vjp_##rule([[maybe_unused]] VjpContext& ctx)

// Runs the rule of a pointwise op as one op, pointwise_vjp, so that eager code launches one kernel in place of several.
// Returns false and does nothing where that could change a bit or the layout, or where the rule is one op itself.
bool run_as_one_op(VjpContext& ctx);
// Returns the op's name, or that of the rule that a call of pointwise_vjp runs: relu_backward.
std::string name_of_call(OpId op, const Args& args);

// Sums a gradient over the dimensions that broadcasting expanded.
Tensor sum_to_size(const Tensor& grad, const Sizes& sizes);

}  // namespace lutra
