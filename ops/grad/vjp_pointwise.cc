// vjp rules of elementwise ops.
#include "ops/decompose/emit.h"
#include "ops/grad/vjp.h"

namespace lutra {

LUTRA_VJP(add, "") {
  if (ctx.needs(0)) ctx.give(0, ctx.grads[0]);
  if (ctx.needs(1)) ctx.give(1, scaled(ctx.grads[0], ctx.args[2].as<Scalar>()));
}

LUTRA_VJP(sub, "") {
  if (ctx.needs(0)) ctx.give(0, ctx.grads[0]);
  if (ctx.needs(1)) ctx.give(1, scaled(neg(ctx.grads[0]), ctx.args[2].as<Scalar>()));
}

LUTRA_VJP(mul, "0:a1 1:a0") {
  if (ctx.needs(0)) ctx.give(0, mul(ctx.grads[0], ctx.args[1]));
  if (ctx.needs(1)) ctx.give(1, mul(ctx.grads[0], ctx.args[0]));
}

LUTRA_VJP(div, "0:a1 1:a0 1:a1") {
  const bool rounds = !ctx.args[2].is_none();
  if (rounds) {
    for (size_t k = 0; k < 2; k++) {
      if (ctx.needs(k)) ctx.give(k, zeros_like(ctx.grads[0]));
    }
    return;
  }
  if (ctx.needs(0)) ctx.give(0, div(ctx.grads[0], ctx.args[1]));
  if (ctx.needs(1)) ctx.give(1, mul(neg(ctx.grads[0]), div(div(ctx.args[0], ctx.args[1]), ctx.args[1])));
}

LUTRA_VJP(remainder, "1:a0 1:a1") {
  if (ctx.needs(0)) ctx.give(0, ctx.grads[0]);
  if (ctx.needs(1)) ctx.give(1, mul(neg(ctx.grads[0]), floor_divide(ctx.args[0], ctx.args[1])));
}

namespace {

// The gradient of the base is 0 where the exponent is zero, also at 0 and Inf: the power is constant there.
Tensor pow_base_grad(const Tensor& g, const Value& base, const Value& exponent) {
  if (exponent.is<Scalar>()) {
    const Scalar& e = exponent.as<Scalar>();
    if (scalar_ask(SymCmp::kEq, e, Scalar(0.0))) return zeros_like(g);
    return mul(g, mul(pow(base, scalar_binary(SymOp::kNSub, e, Scalar(1.0))), e));
  }
  return where(eq(exponent, Scalar(0.0)), Scalar(0.0), mul(g, mul(exponent, pow(base, sub(exponent, Scalar(1.0))))));
}

}  // namespace

LUTRA_VJP(pow, "0:a0 0:a1 1:a0 1:a1 1:r0") {
  const Tensor& g = ctx.grads[0];
  if (ctx.needs(0)) ctx.give(0, pow_base_grad(g, ctx.args[0], ctx.args[1]));
  if (!ctx.needs(1)) return;
  Tensor base = ctx.args[0].is<Tensor>() ? ctx.arg(0) : full({}, ctx.args[0].as<Scalar>(), g->dtype, g->device());
  Tensor constant = logical_and(eq(base, Scalar(0.0)), ge(ctx.args[1], Scalar(0.0)));
  ctx.give(1, mul(g, where(constant, Scalar(0.0), mul(ctx.results[0], log(base)))));
}

// Equal elements share the gradient.
LUTRA_VJP(minmax, "0:a0 0:a1 1:a0 1:a1") {
  Tensor a = ctx.arg(0), b = ctx.arg(1), g = ctx.grads[0];
  Tensor shared = where(eq(a, b), mul(g, Scalar(0.5)), g);
  OpId loses = ctx.op == OpId::maximum ? OpId::lt : OpId::gt;
  if (ctx.needs(0)) ctx.give(0, where(op1(loses, {a, b}), Scalar(0.0), shared));
  if (ctx.needs(1)) ctx.give(1, where(op1(loses, {b, a}), Scalar(0.0), shared));
}

// An element outside the bounds passes its gradient to the bound that it meets. If the bounds cross, the upper one gets
// it.
LUTRA_VJP(clamp, "0:a0 0:a1 0:a2 1:a0 1:a1 1:a2 2:a0 2:a1 2:a2") {
  const Value &x = ctx.args[0], &low = ctx.args[1], &high = ctx.args[2];
  const Tensor& g = ctx.grads[0];
  if (ctx.needs(0)) {
    Tensor inside;
    if (!low.is_none()) inside = ge(x, low);
    if (!high.is_none()) {
      Tensor below = le(x, high);
      inside = inside ? logical_and(inside, below) : below;
    }
    ctx.give(0, where(inside, g, Scalar(0.0)));
  }
  if (ctx.needs(1)) {
    Tensor taken = lt(x, low);
    if (!high.is_none()) taken = logical_and(taken, lt(low, high));
    ctx.give(1, where(taken, g, Scalar(0.0)));
  }
  if (ctx.needs(2)) {
    Tensor taken = gt(x, high);
    if (!low.is_none()) taken = op1(OpId::logical_or, {taken, gt(low, high)});
    ctx.give(2, where(taken, g, Scalar(0.0)));
  }
}

LUTRA_VJP(neg, "") { ctx.give(0, neg(ctx.grads[0])); }
LUTRA_VJP(abs, "0:a0") { ctx.give(0, mul(ctx.grads[0], sign(ctx.args[0]))); }
LUTRA_VJP(exp, "0:r0") { ctx.give(0, mul(ctx.grads[0], ctx.results[0])); }
LUTRA_VJP(log, "0:a0") { ctx.give(0, div(ctx.grads[0], ctx.args[0])); }

LUTRA_VJP(tanh, "0:r0") {
  const Tensor& r = ctx.results[0];
  ctx.give(0, mul(ctx.grads[0], sub(Scalar(1.0), mul(r, r))));
}

LUTRA_VJP(sigmoid, "0:r0") {
  const Tensor& r = ctx.results[0];
  ctx.give(0, mul(mul(ctx.grads[0], sub(Scalar(1.0), r)), r));
}

LUTRA_VJP(sqrt, "0:r0") { ctx.give(0, div(ctx.grads[0], mul(ctx.results[0], Scalar(2.0)))); }

LUTRA_VJP(rsqrt, "0:r0") {
  const Tensor& r = ctx.results[0];
  ctx.give(0, mul(mul(ctx.grads[0], Scalar(-0.5)), mul(mul(r, r), r)));
}

LUTRA_VJP(reciprocal, "0:r0") {
  const Tensor& r = ctx.results[0];
  ctx.give(0, mul(neg(ctx.grads[0]), mul(r, r)));
}

// The gradient of piecewise constant functions.
LUTRA_VJP(zero, "") { ctx.give(0, zeros_like(ctx.grads[0])); }

// The gradient passes where the result is NaN, as in PyTorch's threshold.
LUTRA_VJP(relu, "0:r0") { ctx.give(0, where(le(ctx.results[0], Scalar(0.0)), Scalar(0.0), ctx.grads[0])); }

LUTRA_VJP(where, "1:a0 2:a0") {
  if (ctx.needs(1)) ctx.give(1, where(ctx.args[0], ctx.grads[0], Scalar(0.0)));
  if (ctx.needs(2)) ctx.give(2, where(ctx.args[0], Scalar(0.0), ctx.grads[0]));
}

LUTRA_VJP(to_dtype, "") { ctx.give(0, ctx.grads[0]); }
LUTRA_VJP(identity, "") { ctx.give(0, ctx.grads[0]); }

LUTRA_VJP(to_device, "") { ctx.give(0, on_device(ctx.grads[0], ctx.arg(0)->device())); }

// The first argument is overwritten, so its old elements get zeros.
LUTRA_VJP(copy_, "") {
  if (ctx.needs(0)) ctx.give(0, zeros_like(ctx.grads[0]));
  if (ctx.needs(1)) ctx.give(1, on_device(ctx.grads[0], ctx.arg(1)->device()));
}

}  // namespace lutra
