// vjp rules of views and of scatters into views.
#include "ops/decompose/emit.h"
#include "ops/grad/vjp.h"
#include "ops/meta/rules.h"

namespace lutra {

LUTRA_VJP(reshape, "") { ctx.give(0, reshape(ctx.grads[0], ctx.arg(0)->sizes)); }
LUTRA_VJP(transpose, "") { ctx.give(0, transpose(ctx.grads[0], ctx.args[1], ctx.args[2])); }
LUTRA_VJP(expand, "") { ctx.give(0, ctx.grads[0]); }  // give sums over the broadcast dimensions

LUTRA_VJP(permute, "") {
  const Sizes& dims = ctx.args[1].as<Sizes>();
  Sizes inverse;
  inverse.resize(dims.size());
  for (size_t i = 0; i < dims.size(); i++) {
    inverse[size_t(wrap_dim(ctx.op, dims[i].hint, dims.size()))] = int64_t(i);
  }
  ctx.give(0, permute(ctx.grads[0], inverse));
}

LUTRA_VJP(select, "") {
  Tensor x = ctx.arg(0), zeros = full(x->sizes, 0.0, x->dtype, x->device());
  ctx.give(0, op1(OpId::select_scatter, {zeros, ctx.grads[0], ctx.args[1], ctx.args[2]}));
}

LUTRA_VJP(slice, "") {
  Tensor x = ctx.arg(0), zeros = full(x->sizes, 0.0, x->dtype, x->device());
  ctx.give(0, op1(OpId::slice_scatter, {zeros, ctx.grads[0], ctx.args[1], ctx.args[2], ctx.args[3], ctx.args[4]}));
}

LUTRA_VJP(select_scatter, "") {
  const Tensor& g = ctx.grads[0];
  if (ctx.needs(0)) {
    Tensor zeros = full(ctx.arg(1)->sizes, 0.0, g->dtype, g->device());
    ctx.give(0, op1(OpId::select_scatter, {g, zeros, ctx.args[2], ctx.args[3]}));
  }
  if (ctx.needs(1)) ctx.give(1, op1(OpId::select, {g, ctx.args[2], ctx.args[3]}));
}

LUTRA_VJP(slice_scatter, "") {
  const Tensor& g = ctx.grads[0];
  if (ctx.needs(0)) {
    Tensor zeros = full(ctx.arg(1)->sizes, 0.0, g->dtype, g->device());
    ctx.give(0, op1(OpId::slice_scatter, {g, zeros, ctx.args[2], ctx.args[3], ctx.args[4], ctx.args[5]}));
  }
  if (ctx.needs(1)) ctx.give(1, op1(OpId::slice, {g, ctx.args[2], ctx.args[3], ctx.args[4], ctx.args[5]}));
}

}  // namespace lutra
