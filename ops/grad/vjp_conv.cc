// vjp rules of convolutions and pools: each family of primitives is closed under differentiation.
#include "ops/decompose/emit.h"
#include "ops/grad/vjp.h"

namespace lutra {
namespace {

// Appends arguments [first, last) of a primitive: its attributes.
Args with_attributes(Args args, const Args& from, size_t first, size_t last) {
  for (size_t i = first; i < last; i++) args.push_back(from[i]);
  return args;
}

Tensor convolve(const Value& x, const Value& w, const Value& bias, const Args& from) {
  return op1(OpId::convolution, with_attributes({x, w, bias}, from, 3, 7));
}

Tensor convolve_input(const Value& g, const Value& w, const Sizes& size, const Args& from) {
  return op1(OpId::convolution_input, with_attributes({g, w, size}, from, 3, 7));
}

Results convolve_weight(const Value& g, const Value& x, const Sizes& size, const Args& from, bool bias) {
  Args args = with_attributes({g, x, size}, from, 3, 7);
  args.push_back(bias);
  return call_op(OpId::convolution_weight, args);
}

Tensor pooled(OpId op, const Value& x, SymInt h, SymInt w, const Args& from) {
  return op1(op, with_attributes({x, Sizes{h, w}}, from, 2, from.size()));
}

}  // namespace

LUTRA_VJP(convolution, "0:a1 1:a0") {
  const Tensor &g = ctx.grads[0], x = ctx.arg(0), w = ctx.arg(1);
  if (ctx.needs(0)) ctx.give(0, convolve_input(g, w, x->sizes, ctx.args));
  if (ctx.needs(1)) {
    const Results both = convolve_weight(g, x, w->sizes, ctx.args, ctx.needs(2));
    ctx.give(1, both[0]);
    if (ctx.needs(2)) ctx.give(2, both[1]);
  } else if (ctx.needs(2)) {
    ctx.give(2, sum(g, {0, 2, 3}, false));
  }
}

LUTRA_VJP(convolution_input, "0:a1 1:a0") {
  const Tensor &gg = ctx.grads[0], g = ctx.arg(0), w = ctx.arg(1);
  if (ctx.needs(0)) ctx.give(0, convolve(gg, w, Value(), ctx.args));
  if (ctx.needs(1)) ctx.give(1, convolve_weight(g, gg, w->sizes, ctx.args, false)[0]);
}

LUTRA_VJP(convolution_weight, "0:a1 1:a0") {
  const Tensor &gw = ctx.grads[0], g = ctx.arg(0), x = ctx.arg(1);
  const Tensor gb = ctx.args[7].as<bool>() ? ctx.grads[1] : Tensor();
  if (ctx.needs(0) && gw) {
    ctx.give(0, convolve(x, gw, gb ? Value(gb) : Value(), ctx.args));
  } else if (ctx.needs(0) && gb) {
    ctx.give(0, expand(reshape(gb, Sizes{1, g->sizes[1], 1, 1}), g->sizes));
  }
  if (ctx.needs(1) && gw) ctx.give(1, convolve_input(g, gw, x->sizes, ctx.args));
}

LUTRA_VJP(pool_max, "0:a0") {
  const Tensor x = ctx.arg(0);
  Args args = ctx.args;
  args.push_back(op1(OpId::pool_tap, ctx.args));
  ctx.give(0, pooled(OpId::pool_put, ctx.grads[0], x->sizes[2], x->sizes[3], args));
}

LUTRA_VJP(pool_put, "0:a6") {
  const OpId back = ctx.op == OpId::pool_put ? OpId::pool_take : OpId::pool_put;
  const Sizes& s = ctx.arg(0)->sizes;
  ctx.give(0, pooled(back, ctx.grads[0], s[2], s[3], ctx.args));
}

LUTRA_VJP(pool_sum, "") {
  const OpId back = ctx.op == OpId::pool_sum ? OpId::pool_spread : OpId::pool_sum;
  const Sizes& s = ctx.arg(0)->sizes;
  ctx.give(0, pooled(back, ctx.grads[0], s[2], s[3], ctx.args));
}

}  // namespace lutra
