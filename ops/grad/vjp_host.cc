// vjp rules of a host's ops: the host computes the gradients, in an op of its own.
#include "ops/decompose/emit.h"
#include "ops/defs/host_op.h"
#include "ops/grad/vjp.h"

namespace lutra {
namespace {

Tensor gradient_of(const Tensor& result, const Tensor& given) {
  return given ? given : full(result->sizes, 0.0, result->dtype, result->device());
}

HostResult type_of(const Tensor& t) {
  HostResult type{t->dtype, {}};
  for (const SymInt& size : t->sizes) type.sizes.push_back(size.guard());
  return type;
}

}  // namespace

LUTRA_VJP(host_op, "0:a0 0:r0 0:r1 0:r2 0:r3 0:r4 0:r5 0:r6 0:r7") {
  const std::string& op = ctx.args[1].as<std::string>();
  HostForm form = read_form(ctx.args[2].as<std::string>());
  if (!form.has_gradient) fail(host_op_name(op), ": has no gradient: lutra_register_op was given no rule for it");
  const auto& inputs = ctx.args[0].as<std::vector<Tensor>>();
  std::vector<Tensor> tensors = inputs;
  for (const Tensor& result : ctx.results) tensors.push_back(result);
  form.results = ctx.results.size();
  for (size_t i = 0; i < ctx.results.size(); i++) {
    form.given.push_back(is_float(ctx.results[i]->dtype));
    if (form.given[i]) tensors.push_back(gradient_of(ctx.results[i], ctx.grads[i]));
  }
  std::vector<HostResult> gives;
  for (size_t i = 0; i < inputs.size(); i++) {
    form.wanted.push_back(ctx.needs(0, i));
    if (form.wanted[i]) gives.push_back(type_of(inputs[i]));
  }
  if (gives.empty()) return;
  Args args = ctx.args;
  args[0] = tensors, args[2] = write_form(form), args[3] = write_results(gives);
  const Results gradients = call_op(OpId::host_op_backward, std::move(args));
  for (size_t i = 0, at = 0; i < inputs.size(); i++) {
    if (form.wanted[i]) ctx.give(0, i, gradients[at++]);
  }
}

LUTRA_VJP(host_op_backward, "") {
  fail(host_op_name(ctx.args[1].as<std::string>()),
       ": its gradient has no gradient: what a host computes is differentiated once");
}

}  // namespace lutra
