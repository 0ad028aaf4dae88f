// vjp rules of reductions and softmax.
#include "ops/core/half.h"
#include "ops/decompose/emit.h"
#include "ops/grad/vjp.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// Reshapes a reduction's result or gradient to have its reduced dims as ones, so that it broadcasts over the input.
Tensor with_dims(const VjpContext& ctx, const Tensor& t) {
  const Sizes& sizes = ctx.args[0].as<Tensor>()->sizes;
  if (ctx.args[2].as<bool>()) return t;
  return reshape(t, reduced_sizes(sizes, reduced_dims(ctx.op, ctx.args[1], sizes.size()), true));
}

}  // namespace

LUTRA_VJP(sum, "") { ctx.give(0, expand(with_dims(ctx, ctx.grads[0]), ctx.arg(0)->sizes)); }

// Ties share the gradient evenly. If the input has a NaN, the result is NaN, and all NaNs tie.
LUTRA_VJP(amaxmin, "0:a0 0:r0") {
  Tensor x = ctx.arg(0), given = op1(OpId::logical_or, {eq(x, with_dims(ctx, ctx.results[0])), ne(x, x)});
  Tensor ties = to_dtype(given, x->dtype);
  Sizes dims;
  for (int64_t d : reduced_dims(ctx.op, ctx.args[1], x->sizes.size())) dims.push_back(d);
  Tensor count = sum(ties, dims, true);
  ctx.give(0, mul(div(with_dims(ctx, ctx.grads[0]), count), ties));
}

LUTRA_VJP(max_dim, "0:r1") {
  if (!ctx.grads[0]) return;
  Tensor x = ctx.arg(0);
  ctx.give(0, scatter_add(full(x->sizes, 0.0, x->dtype, x->device()), ctx.args[1], with_dims(ctx, ctx.results[1]),
                          with_dims(ctx, ctx.grads[0])));
}

// Gradients of half types are rounded once, at the end.
LUTRA_VJP(softmax, "0:r0") {
  const DType wide = opmath_type(ctx.results[0]->dtype);
  const Tensor r = to_dtype(ctx.results[0], wide), weighted = mul(to_dtype(ctx.grads[0], wide), r);
  Sizes dims = {ctx.args[1].sym_int()};
  ctx.give(0, sub(weighted, mul(r, sum(weighted, dims, true))));
}

LUTRA_VJP(log_softmax, "0:r0") {
  const DType wide = opmath_type(ctx.results[0]->dtype);
  const Tensor g = to_dtype(ctx.grads[0], wide);
  Sizes dims = {ctx.args[1].sym_int()};
  ctx.give(0, sub(g, mul(exp(to_dtype(ctx.results[0], wide)), sum(g, dims, true))));
}

}  // namespace lutra
