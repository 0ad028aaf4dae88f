// vjp rules of normalisation.
#include "ops/decompose/emit.h"
#include "ops/grad/vjp.h"

namespace lutra {

void norm_statistics(const Tensor& x, const Sizes& shape, const Scalar& eps, Tensor& centred, Tensor& mean,
                     Tensor& rstd);
void batch_statistics(const Tensor& x, Tensor& mean, Tensor& var);

// mean and rstd are saved. If the gradient is to be differentiated again, they are recomputed as functions of the
// input.
LUTRA_VJP(native_layer_norm, "0:a0 0:a2 0:r1 0:r2 2:a0 2:r1 2:r2") {
  Tensor g = ctx.grads[0], x = ctx.arg(0), mean = ctx.results[1], rstd = ctx.results[2];
  if (!g) return;
  if (grad_enabled() && (ctx.needs(0) || ctx.needs(2))) {
    Tensor centred;
    norm_statistics(x, ctx.args[1].as<Sizes>(), ctx.args[4].as<Scalar>(), centred, mean, rstd);
  }
  if (ctx.needs(0)) {
    ctx.give(0, op1(OpId::layer_norm_backward_input, {g, x, mean, rstd, ctx.args[2], ctx.args[1]}));
  }
  if (ctx.needs(2)) ctx.give(2, op1(OpId::layer_norm_backward_weight, {g, x, mean, rstd, ctx.args[1]}));
  if (ctx.needs(3)) ctx.give(3, g);
}

LUTRA_VJP(batch_norm_train, "0:a0 0:a1 0:r1 0:r2 1:a0 1:a1 1:r1 1:r2") {
  const Tensor g = ctx.grads[0], x = ctx.arg(0);
  if (!g) return;
  Tensor mean = ctx.results[1], var = ctx.results[2];
  if (grad_enabled() && (ctx.needs(0) || ctx.needs(1))) batch_statistics(x, mean, var);
  if (!ctx.needs(0) && !ctx.needs(1)) {
    Sizes dims = {0};
    for (int64_t d = 2; d < x->dim(); d++) dims.push_back(d);
    if (ctx.needs(2)) ctx.give(2, sum(to_dtype(g, at_least_float32(g->dtype)), dims, false));
    return;
  }
  const Results r = call_op(OpId::batch_norm_backward, {g, x, mean, var, ctx.args[1], ctx.args[3]});
  for (size_t i = 0; i < 3; i++) {
    if (ctx.needs(i)) ctx.give(i, r[i]);
  }
}

LUTRA_VJP(ctc_nll, "0:a0 0:a1 0:a2 0:a3 0:r0") {
  ctx.give(0, op1(OpId::ctc_nll_backward, {ctx.grads[0], ctx.args[0], ctx.args[1], ctx.args[2], ctx.args[3],
                                           ctx.results[0], ctx.args[4], ctx.args[5]}));
}
LUTRA_VJP(ctc_nll_backward, "") { fail("ctc_loss: the gradient of ctc_loss has no derivative, as in PyTorch"); }

}  // namespace lutra
