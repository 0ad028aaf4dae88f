// vjp rules of views, scatters into views, gathering and scattering.
#include "ops/grad/emit.h"
#include "ops/grad/vjp.h"
#include "ops/meta/rules.h"

namespace lutra {

LUTRA_VJP(reshape, "") { ctx.give(0, reshape(ctx.grads[0], ctx.arg(0)->sizes)); }
LUTRA_VJP(transpose, "") { ctx.give(0, transpose(ctx.grads[0], ctx.args[1], ctx.args[2])); }
LUTRA_VJP(expand, "") { ctx.give(0, ctx.grads[0]); }  // give sums what was broadcast

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

LUTRA_VJP(gather, "0:a2") {
  Tensor x = ctx.arg(0), zeros = full(x->sizes, 0.0, x->dtype, x->device());
  ctx.give(0, scatter_add(zeros, ctx.args[1], ctx.arg(2), ctx.grads[0]));
}

LUTRA_VJP(scatter_add, "3:a2") {
  if (ctx.needs(0)) ctx.give(0, ctx.grads[0]);
  if (!ctx.needs(3)) return;
  if (!same_sizes(ctx.arg(2)->sizes, ctx.arg(3)->sizes)) {
    fail("scatter_add: the gradient of src needs an index of its shape ", to_string(ctx.arg(3)->sizes), ", got ",
         to_string(ctx.arg(2)->sizes));
  }
  ctx.give(3, gather(ctx.grads[0], ctx.args[1], ctx.args[2]));
}

LUTRA_VJP(index_select, "0:a2") {
  Tensor x = ctx.arg(0), zeros = full(x->sizes, 0.0, x->dtype, x->device());
  ctx.give(0, index_add(zeros, ctx.args[1], ctx.arg(2), ctx.grads[0]));
}

LUTRA_VJP(index_add, "3:a2") {
  if (ctx.needs(0)) ctx.give(0, ctx.grads[0]);
  if (ctx.needs(3)) ctx.give(3, reshape(index_select(ctx.grads[0], ctx.args[1], ctx.args[2]), ctx.arg(3)->sizes));
}

}  // namespace lutra
