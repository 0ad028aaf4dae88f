// vjp rules of normalisation.
#include "ops/decompose/emit.h"
#include "ops/grad/vjp.h"

namespace lutra {

void norm_statistics(const Tensor& x, const Sizes& shape, const Scalar& eps, Tensor& centred, Tensor& mean,
                     Tensor& rstd);

// mean and rstd are saved; a gradient to be differentiated again computes them again, as functions of the input.
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

LUTRA_VJP(ctc_nll, "0:a0 0:a1 0:a2 0:a3 0:r0") {
  ctx.give(0, op1(OpId::ctc_nll_backward, {ctx.grads[0], ctx.args[0], ctx.args[1], ctx.args[2], ctx.args[3],
                                           ctx.results[0], ctx.args[4], ctx.args[5]}));
}
LUTRA_VJP(ctc_nll_backward, "") { fail("ctc_loss: the gradient of ctc_loss has no derivative, as in PyTorch"); }

}  // namespace lutra
