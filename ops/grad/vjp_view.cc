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

LUTRA_VJP(diagonal, "") {
  ctx.give(0,
           op1(OpId::diagonal_scatter, {zeros_like(ctx.arg(0)), ctx.grads[0], ctx.args[1], ctx.args[2], ctx.args[3]}));
}

namespace {

// Gives the gradients of scatter(input, src, attributes...), which writes src over the elements of view(input,
// attributes...): the input's is 0 in these elements, and src's has the gradient of these elements.
void view_scatter_grad(VjpContext& ctx, OpId scatter, OpId view) {
  const Tensor& g = ctx.grads[0];
  Args args = ctx.args;
  args[0] = g;
  if (ctx.needs(0)) {
    args[1] = full(ctx.arg(1)->sizes, 0.0, g->dtype, g->device());
    ctx.give(0, op1(scatter, args));
  }
  args.erase(args.begin() + 1);
  if (ctx.needs(1)) ctx.give(1, op1(view, args));
}

}  // namespace

LUTRA_VJP(select_scatter, "") { view_scatter_grad(ctx, OpId::select_scatter, OpId::select); }
LUTRA_VJP(slice_scatter, "") { view_scatter_grad(ctx, OpId::slice_scatter, OpId::slice); }
LUTRA_VJP(diagonal_scatter, "") { view_scatter_grad(ctx, OpId::diagonal_scatter, OpId::diagonal); }

}  // namespace lutra
