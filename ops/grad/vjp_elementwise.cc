// vjp rules of elementwise functions and activations.
#include <cmath>

#include "ops/decompose/formula.h"
#include "ops/grad/vjp.h"

namespace lutra {

// LUTRA_OF_X(rule, formula of g and the argument x), LUTRA_OF_R(rule, formula of g and the result r), in wide() types.
#define LUTRA_OF_X(rule, formula)                        \
  LUTRA_VJP(rule, "0:a0") {                              \
    Tensor g = wide(ctx.grads[0]), x = wide(ctx.arg(0)); \
    ctx.give(0, formula);                                \
  }
#define LUTRA_OF_R(rule, formula)                            \
  LUTRA_VJP(rule, "0:r0") {                                  \
    Tensor g = wide(ctx.grads[0]), r = wide(ctx.results[0]); \
    ctx.give(0, formula);                                    \
  }

LUTRA_OF_X(sin, g* cos(x))
LUTRA_OF_X(cos, g* neg(sin(x)))
LUTRA_OF_R(tan, g*(r* r + 1.0))
LUTRA_OF_X(asin, g* rsqrt(1.0 - x * x))
LUTRA_OF_X(acos, neg(g* rsqrt(1.0 - x * x)))
LUTRA_OF_X(atan, g / (x * x + 1.0))
LUTRA_OF_X(sinh, g* cosh(x))
LUTRA_OF_X(cosh, g* sinh(x))
LUTRA_OF_X(asinh, g* rsqrt(x* x + 1.0))
LUTRA_OF_X(acosh, g* rsqrt(x* x - 1.0))
LUTRA_OF_X(atanh, g / (1.0 - x * x))
LUTRA_OF_X(normal_cdf, g* exp(x* x * -0.5) * (M_2_SQRTPI * M_SQRT1_2 * 0.5))
LUTRA_OF_R(exp2, g* r* M_LN2)
LUTRA_OF_R(expm1, g*(r + 1.0))
LUTRA_OF_X(log2, g / (x * M_LN2))
LUTRA_OF_X(log10, g / (x * M_LN10))
LUTRA_OF_X(log1p, g / (x + 1.0))
LUTRA_OF_X(erf, exp(neg(x* x)) * M_2_SQRTPI * g)
LUTRA_OF_X(erfc, exp(neg(x* x)) * -M_2_SQRTPI * g)
LUTRA_OF_X(erfinv, exp(square(erfinv(x))) * (1 / M_2_SQRTPI) * g)
LUTRA_OF_X(lgamma, g* digamma(x))
LUTRA_OF_X(digamma, g* op1(OpId::polygamma, {x, int_arg(1)}))
LUTRA_OF_X(polygamma, g* op1(OpId::polygamma, {x, Scalar::of_sym(ctx.args[1].sym_int() + 1)}))
LUTRA_OF_X(i0, g* op1(OpId::i1, {x}))
LUTRA_OF_X(entr, neg(g*(log(x) + 1.0)))
LUTRA_OF_X(silu, op1(OpId::silu_backward, {g, x}))
LUTRA_OF_X(hardswish, where(le(x, Scalar(-3.0)), Scalar(0.0), where(lt(x, Scalar(3.0)), g*(x / 3.0 + 0.5), g)))
LUTRA_OF_X(hardsigmoid, where(logical_and(gt(x, Scalar(-3.0)), lt(x, Scalar(3.0))), g*(1.0 / 6), Scalar(0.0)))
LUTRA_OF_X(logsigmoid, g* sigmoid(neg(x)))

LUTRA_VJP(gelu, "0:a0") { ctx.give(0, op1(OpId::gelu_backward, {ctx.grads[0], ctx.args[0], ctx.args[1]})); }

// PyTorch has no derivative with respect to input, either.
LUTRA_VJP(igamma, "1:a0 1:a1") {
  const std::string op = name(ctx.op);
  if (ctx.needs(0)) fail(op, ": the derivative with respect to input is not implemented");
  if (!ctx.needs(1)) return;
  const Tensor a = wide(ctx.arg(0)), x = wide(ctx.arg(1)), g = wide(ctx.grads[0]);
  const Tensor slope = g * exp((a - 1.0) * log(x) - x - lgamma(a));
  ctx.give(1, ctx.op == OpId::igammac ? neg(slope) : slope);
}

// exp(-|x|) I0(x): its derivative includes that of the exponential factor.
LUTRA_VJP(i0e, "0:a0 0:r0") {
  const Tensor x = wide(ctx.arg(0)), r = wide(ctx.results[0]);
  ctx.give(0, wide(ctx.grads[0]) * (op1(OpId::i1e, {x}) - sign(x) * r));
}

// I1' = I0 - I1 / x, which is 1/2 at 0.
LUTRA_VJP(i1, "0:a0") {
  const bool scaled = ctx.op == OpId::i1e;
  const Tensor x = wide(ctx.arg(0)), zero = le(abs(x), Scalar(1e-30)), safe = where(zero, Scalar(1.0), x);
  const Tensor size = op1(scaled ? OpId::i0e : OpId::i0, {safe}), r = op1(ctx.op, {safe});
  const Tensor slope = size - r * (scaled ? sign(safe) + 1.0 / safe : 1.0 / safe);
  ctx.give(0, wide(ctx.grads[0]) * where(zero, Scalar(0.5), slope));
}

// Denominators are never 0, so that the second derivative is no NaN there.
LUTRA_VJP(sinc, "0:a0") {
  Tensor x = wide(ctx.arg(0)), zero = eq(x, Scalar(0.0)), safe = where(zero, Scalar(1.0), x), p = safe * M_PI;
  ctx.give(0, where(zero, Scalar(0.0), wide(ctx.grads[0]) * ((cos(p) * p - sin(p)) / (p * safe))));
}

LUTRA_VJP(logit, "0:a0") {
  Tensor x = wide(ctx.arg(0)), g = wide(ctx.grads[0]) / (x * (1.0 - x));
  if (ctx.args[1].is_none()) {
    Tensor inside = logical_and(ge(x, Scalar(0.0)), le(x, Scalar(1.0)));
    return ctx.give(0, where(inside, g, Scalar(NAN)));
  }
  Scalar eps = ctx.args[1].as<Scalar>(), high = scalar_binary(SymOp::kNSub, Scalar(1.0), eps);
  ctx.give(0, where(logical_and(ge(x, eps), le(x, high)), g, Scalar(0.0)));
}

LUTRA_VJP(mish, "0:a0") {
  Tensor x = wide(ctx.arg(0)), s = sigmoid(x), t = tanh(op1(OpId::softplus, {x}));
  ctx.give(0, wide(ctx.grads[0]) * (t + x * s * (1.0 - t * t)));
}

namespace {

// If a result's sign differs from its input's, the input cannot be recovered from the result.
void refuse_negative(const VjpContext& ctx, const Scalar& slope, const char* what) {
  if (!scalar_ask(SymCmp::kLt, slope, Scalar(0.0))) return;
  fail(name(ctx.op), "_: the in-place form has no gradient for a negative ", what, "; leave out inplace");
}

// The gradient of scale * (x or alpha * (exp(x * input_scale) - 1)).
void elu_grad(VjpContext& ctx, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale) {
  Tensor g = wide(ctx.grads[0]), above = mul(g, scale);
  if (!ctx.in_place) {
    Tensor x = wide(ctx.arg(0));
    Tensor below = mul(mul(mul(g, input_scale), mul(exp(mul(x, input_scale)), alpha)), scale);
    return ctx.give(0, where(le(x, Scalar(0.0)), below, above));
  }
  refuse_negative(ctx, alpha, "alpha");
  Tensor r = wide(ctx.results[0]);
  Tensor below = mul(mul(g, input_scale), add(r, scalar_binary(SymOp::kNMul, alpha, scale)));
  ctx.give(0, where(le(r, Scalar(0.0)), below, above));
}

}  // namespace

LUTRA_VJP(elu, "0:a0|r0") {
  elu_grad(ctx, ctx.args[1].as<Scalar>(), ctx.args[2].as<Scalar>(), ctx.args[3].as<Scalar>());
}

LUTRA_VJP(selu, "0:a0|r0") { elu_grad(ctx, kSeluAlpha, kSeluScale, Scalar(1.0)); }

LUTRA_VJP(celu, "0:a0|r0") {
  const Scalar& alpha = ctx.args[1].as<Scalar>();
  elu_grad(ctx, alpha, Scalar(1.0), scalar_binary(SymOp::kNDiv, Scalar(1.0), alpha));
}

LUTRA_VJP(leaky_relu, "0:a0|r0") {
  if (ctx.in_place) refuse_negative(ctx, ctx.args[1].as<Scalar>(), "negative_slope");
  const Tensor x = ctx.in_place ? ctx.results[0] : ctx.arg(0);
  ctx.give(0, where(gt(x, Scalar(0.0)), ctx.grads[0], mul(ctx.grads[0], ctx.args[1])));
}

// Bounds are not rounded to half types, here and in threshold.
namespace {
void hardtanh_grad(VjpContext& ctx, const Value& low, const Value& high) {
  Tensor x = wide(ctx.arg(0)), outside = logical_or(le(x, low), ge(x, high));
  ctx.give(0, where(outside, Scalar(0.0), ctx.grads[0]));
}
}  // namespace
LUTRA_VJP(hardtanh, "0:a0") { hardtanh_grad(ctx, ctx.args[1], ctx.args[2]); }
LUTRA_VJP(relu6, "0:a0") { hardtanh_grad(ctx, Scalar(0.0), Scalar(6.0)); }

namespace {
// No gradient flows within [-lambd, lambd].
void shrink_grad(VjpContext& ctx) {
  Scalar low = scalar_binary(SymOp::kNSub, Scalar(0.0), ctx.args[1].as<Scalar>());
  Tensor inside = logical_and(ge(ctx.args[0], low), le(ctx.args[0], ctx.args[1]));
  ctx.give(0, where(inside, Scalar(0.0), ctx.grads[0]));
}
}  // namespace
LUTRA_VJP(hardshrink, "0:a0") { shrink_grad(ctx); }
LUTRA_VJP(softshrink, "0:a0") { shrink_grad(ctx); }

LUTRA_VJP(softplus, "0:a0") {
  Tensor x = wide(ctx.arg(0)), g = wide(ctx.grads[0]), z = mul(x, ctx.args[1]);
  ctx.give(0, where(gt(z, ctx.args[2]), g, g * sigmoid(z)));
}

LUTRA_VJP(threshold, "0:a0") { ctx.give(0, where(le(wide(ctx.arg(0)), ctx.args[1]), Scalar(0.0), ctx.grads[0])); }

// In x = mantissa * 2^exponent the exponent is piecewise constant.
LUTRA_VJP(frexp_mantissa, "0:a0") {
  Tensor e = op1(OpId::frexp_exponent, {ctx.args[0]});
  ctx.give(0, ctx.grads[0] / to_dtype(pow(Scalar(2.0), to_dtype(e, DType::kFloat64)), ctx.grads[0]->dtype));
}

// -- functions of two tensors

LUTRA_VJP(atan2, "0:a0 0:a1 1:a0 1:a1") {
  Tensor y = wide(ctx.arg(0)), x = wide(ctx.arg(1)), length = y * y + x * x;
  Tensor g = where(eq(length, Scalar(0.0)), Scalar(0.0), wide(ctx.grads[0]) / length);
  if (ctx.needs(0)) ctx.give(0, g * x);
  if (ctx.needs(1)) ctx.give(1, g * neg(y));
}

LUTRA_VJP(hypot, "0:a0 0:r0 1:a1 1:r0") {
  for (size_t k = 0; k < 2; k++) {
    if (ctx.needs(k)) ctx.give(k, ctx.grads[0] * (ctx.arg(k) / ctx.results[0]));
  }
}

LUTRA_VJP(copysign, "0:a0 0:r0") {
  if (ctx.needs(0)) {
    Tensor x = ctx.arg(0);
    ctx.give(0, ctx.grads[0] * where(eq(x, Scalar(0.0)), Scalar(0.0), ctx.results[0] / x));
  }
  if (ctx.needs(1)) ctx.give(1, zeros_like(ctx.grads[0]));
}

// The slope's denominator has PyTorch's lower bound (also a float there). So the slope is finite at 0 and 1, and 0
// where the input equals the target.
LUTRA_VJP(binary_cross_entropy, "0:a0 0:a1 1:a0") {
  Tensor x = ctx.arg(0), g = ctx.grads[0];
  if (ctx.needs(0)) ctx.give(0, g * (x - ctx.arg(1)) / clamp((1.0 - x) * x, Scalar(double(1e-12f)), {}));
  if (ctx.needs(1)) ctx.give(1, g * (log1p(neg(x)) - log(x)));
}

LUTRA_VJP(fmod, "1:a0 1:a1") {
  if (ctx.needs(0)) ctx.give(0, ctx.grads[0]);
  if (ctx.needs(1)) ctx.give(1, mul(neg(ctx.grads[0]), trunc(div(ctx.args[0], ctx.args[1]))));
}

// The first argument wins ties.
LUTRA_VJP(fmaxmin, "0:a0 0:a1 1:a0 1:a1") {
  Tensor a = ctx.arg(0), b = ctx.arg(1);
  Tensor first = logical_or(ctx.op == OpId::fmax ? ge(a, b) : le(a, b), isnan(b));
  if (ctx.needs(0)) ctx.give(0, where(first, ctx.grads[0], Scalar(0.0)));
  if (ctx.needs(1)) ctx.give(1, where(first, Scalar(0.0), ctx.grads[0]));
}

// Uses the difference of the two, which rounds less than the difference from the result and handles infinities.
LUTRA_VJP(logaddexp, "0:a0 0:a1 1:a0 1:a1") {
  Tensor a = wide(ctx.arg(0)), b = wide(ctx.arg(1));
  if (ctx.needs(0)) ctx.give(0, ctx.grads[0] * sigmoid(a - b));
  if (ctx.needs(1)) ctx.give(1, ctx.grads[0] * sigmoid(b - a));
}
LUTRA_VJP(logaddexp2, "0:a0 0:a1 1:a0 1:a1") {
  Tensor a = wide(ctx.arg(0)), b = wide(ctx.arg(1));
  if (ctx.needs(0)) ctx.give(0, ctx.grads[0] * sigmoid((a - b) * M_LN2));
  if (ctx.needs(1)) ctx.give(1, ctx.grads[0] * sigmoid((b - a) * M_LN2));
}

// 0 * log(y) is 0 with gradient 0, unless y is NaN or not positive. The same holds for 0 * log1p(y), with y + 1.
LUTRA_VJP(xlogy, "0:a0 0:a1 1:a0 1:a1") {
  const bool shifted = ctx.op == OpId::xlog1py;
  Tensor g = ctx.grads[0];
  auto full_of = [&](const Value& v) {
    return v.is<Tensor>() ? v.as<Tensor>() : full({}, v.as<Scalar>(), g->dtype, g->device());
  };
  if (ctx.needs(0)) {
    Tensor y = full_of(ctx.args[1]);
    Tensor constant = logical_and(eq(ctx.args[0], Scalar(0.0)), le(y, Scalar(shifted ? -1.0 : 0.0)));
    ctx.give(0, mul(g, where(constant, Scalar(0.0), shifted ? log1p(y) : log(y))));
  }
  if (ctx.needs(1)) ctx.give(1, mul(g, div(ctx.args[0], shifted ? ctx.arg(1) + 1.0 : ctx.arg(1))));
}

// The Euclidean length along a dim. Its gradient is 0 where the length is 0.
LUTRA_VJP(norm_along, "0:a0 0:r0") {
  Tensor g = ctx.grads[0], r = ctx.results[0];
  if (!ctx.args[2].as<bool>()) g = unsqueeze(g, ctx.args[1]), r = unsqueeze(r, ctx.args[1]);
  Tensor zero = eq(r, Scalar(0.0));
  ctx.give(0, where(zero, Scalar(0.0), ctx.arg(0) * (g / where(zero, Scalar(1.0), r))));
}

}  // namespace lutra
