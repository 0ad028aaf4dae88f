// vjp rules of matrix products.
#include "ops/decompose/emit.h"
#include "ops/grad/vjp.h"

namespace lutra {
namespace {
Tensor flipped(const Value& t) { return transpose(t, int_arg(-2), int_arg(-1)); }
}  // namespace

LUTRA_VJP(mm, "0:a1 1:a0") {
  if (ctx.needs(0)) ctx.give(0, mm(ctx.grads[0], flipped(ctx.args[1])));
  if (ctx.needs(1)) ctx.give(1, mm(flipped(ctx.args[0]), ctx.grads[0]));
}

LUTRA_VJP(bmm, "0:a1 1:a0") {
  if (ctx.needs(0)) ctx.give(0, bmm(ctx.grads[0], flipped(ctx.args[1])));
  if (ctx.needs(1)) ctx.give(1, bmm(flipped(ctx.args[0]), ctx.grads[0]));
}

LUTRA_VJP(linear, "0:a1 1:a0") {
  const Tensor x = ctx.arg(0), weight = ctx.arg(1);  // weight may have sizes only, so no op may take it
  const bool vector = weight->dim() == 1;
  const SymInt width = weight->sizes.back();
  SymInt rows = 1;
  for (size_t d = 0; d + 1 < x->sizes.size(); d++) rows = rows * x->sizes[d];
  const Tensor g = reshape(ctx.grads[0], Sizes{rows, vector ? SymInt(1) : weight->sizes[0]});
  if (ctx.needs(0)) ctx.give(0, reshape(mm(g, vector ? unsqueeze(weight, int_arg(0)) : weight), x->sizes));
  if (ctx.needs(1)) ctx.give(1, reshape(mm(flipped(g), reshape(x, Sizes{rows, width})), weight->sizes));
  if (ctx.needs(2)) ctx.give(2, reshape(sum(g, {0}, false), ctx.arg(2)->sizes));
}

}  // namespace lutra
