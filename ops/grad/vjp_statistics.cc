// vjp rules of statistics, norms, products and scans.
#include <cmath>

#include "ops/decompose/emit.h"
#include "ops/grad/vjp.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// Reshapes a result or gradient to have its reduced dims as ones, so that it broadcasts over the input.
Tensor with_dims(const VjpContext& ctx, const Tensor& t, size_t dim, size_t keepdim) {
  const Sizes& sizes = ctx.args[0].as<Tensor>()->sizes;
  if (ctx.args[keepdim].as<bool>()) return t;
  return reshape(t, reduced_sizes(sizes, reduced_dims(ctx.op, ctx.args[dim], sizes.size()), true));
}

Sizes dims_of(const VjpContext& ctx, size_t dim) {
  Sizes out;
  for (int64_t d : reduced_dims(ctx.op, ctx.args[dim], ctx.args[0].as<Tensor>()->sizes.size())) out.push_back(d);
  return out;
}

Tensor is_zero(const Tensor& x) { return eq(x, Scalar(0.0)); }

// Returns 2 g (x - mean(x)) / (n - correction), where g is the gradient of the variance.
Tensor var_grad(const VjpContext& ctx, const Tensor& g) {
  Tensor x = ctx.arg(0);
  SymInt n = 1;
  for (SymInt d : dims_of(ctx, 1)) n = n * x->sizes[size_t(d.hint)];
  Scalar left =
      scalar_binary(SymOp::kNSub, Scalar::of_sym(n), ctx.args[2].is_none() ? Scalar(1.0) : ctx.args[2].as<Scalar>());
  Tensor mean = op1(OpId::mean, {x, ctx.args[1], true});
  return mul(mul(with_dims(ctx, g, 1, 3), scalar_binary(SymOp::kNDiv, Scalar(2.0), left)), sub(x, mean));
}

}  // namespace

LUTRA_VJP(var, "0:a0") { ctx.give(0, var_grad(ctx, ctx.grads[0])); }

// If all elements are equal, the standard deviation's gradient is taken to be 0.
LUTRA_VJP(std, "0:a0 0:r0") {
  const Tensor& r = ctx.results[0];
  ctx.give(0, var_grad(ctx, where(is_zero(r), Scalar(0.0), div(ctx.grads[0], mul(r, Scalar(2.0))))));
}

namespace {

// The functions below compute gradients that will be differentiated again. They use every pair of elements of a line,
// which is exact at zeros too. Lines are the last dimension.
// Returns a mask that is true at [i, j] if `op` holds between i and j.
Tensor pairs(OpId op, const Tensor& line) {
  Tensor at = counting(line->sizes.back(), line);
  return op1(op, {unsqueeze(at, int_arg(1)), at});
}
// Returns a tensor with element j of the line at [.., i, j], or 1 if i = j.
Tensor others_of(const Tensor& line) { return where(pairs(OpId::eq, line), Scalar(1.0), unsqueeze(line, int_arg(-2))); }

Tensor last(const Tensor& t, const Value& dim) { return transpose(t, dim, int_arg(-1)); }

// g is the gradient of the product over dim, with that dim kept.
Tensor prod_grad_again(const Tensor& x, const Tensor& g, const Value& dim) {
  if (dim.is_none() || x->dim() == 0) {
    Tensor line = reshape(x, {x->numel()});
    Tensor rest = op1(OpId::prod, {others_of(line), int_arg(-1)});
    return mul(reshape(rest, x->sizes), g);
  }
  return mul(last(op1(OpId::prod, {others_of(last(x, dim)), int_arg(-1)}), dim), g);
}

// Returns, for each element i, the sum of g[j] times the product up to j of all but i, over the j whose product
// includes i.
Tensor cumprod_grad_again(const Tensor& x, const Tensor& g, const Value& dim, bool reverse) {
  Tensor line = last(x, dim);
  Tensor products = op1(OpId::scan_prod, {contiguous(others_of(line)), int_arg(line->dim()), reverse});
  Tensor in = pairs(reverse ? OpId::ge : OpId::le, line);
  Tensor terms = where(in, mul(unsqueeze(last(g, dim), int_arg(-2)), products), Scalar(0.0));
  return last(sum(terms, {-1}, false), dim);
}

// Returns, for each element i, the sum of g[j] exp(x[i] - r[j]), over the j whose sum includes i. Each term is at most
// g[j].
Tensor logcumsumexp_grad_again(const Tensor& x, const Tensor& r, const Tensor& g, const Value& dim, bool reverse) {
  Tensor share = exp(sub(unsqueeze(last(x, dim), int_arg(-1)), unsqueeze(last(r, dim), int_arg(-2))));
  Tensor in = pairs(reverse ? OpId::ge : OpId::le, last(x, dim));
  Tensor terms = where(in, mul(unsqueeze(last(g, dim), int_arg(-2)), share), Scalar(0.0));
  return last(sum(terms, {-1}, false), dim);
}

}  // namespace

// The gradient is the product of the other elements: the product over x, if no element is zero. If exactly one is zero,
// it gets the product of the rest.
LUTRA_VJP(prod, "0:a0") {
  Tensor x = ctx.arg(0), g = with_dims(ctx, ctx.grads[0], 1, 2);
  if (x->dtype != g->dtype) x = to_dtype(x, g->dtype);
  if (grad_enabled()) return ctx.give(0, prod_grad_again(x, g, ctx.args[1]));
  Tensor zero = is_zero(x), safe = where(zero, Scalar(1.0), x);
  Tensor zeros = sum(to_dtype(zero, DType::kInt64), dims_of(ctx, 1), true);
  Tensor rest = safe;
  for (SymInt d : dims_of(ctx, 1)) rest = op1(OpId::prod, {rest, int_arg(d.hint), true});
  Tensor only = eq(zeros, int_arg(1)), none = eq(zeros, int_arg(0));
  Tensor others = where(zero, where(only, rest, Scalar(0.0)), where(none, div(rest, safe), Scalar(0.0)));
  ctx.give(0, mul(g, others));
}

LUTRA_VJP(logsumexp, "0:a0 0:r0") {
  Tensor shifted = sub(ctx.args[0], with_dims(ctx, ctx.results[0], 1, 2));
  ctx.give(0, mul(with_dims(ctx, ctx.grads[0], 1, 2), exp(shifted)));
}

// As in PyTorch, the gradient is 0 where the norm is 0.
LUTRA_VJP(vector_norm, "0:a0 0:r0") {
  Tensor x = ctx.arg(0), g = with_dims(ctx, ctx.grads[0], 2, 3), r = with_dims(ctx, ctx.results[0], 2, 3);
  g = to_dtype(g, x->dtype), r = to_dtype(r, x->dtype);
  const Scalar& p = ctx.args[1].as<Scalar>();
  if (scalar_equals(p, 0)) return ctx.give(0, zeros_like(x));
  if (scalar_equals(p, 1)) return ctx.give(0, mul(g, sign(x)));
  if (scalar_equals(p, 2)) return ctx.give(0, mul(x, where(is_zero(r), Scalar(0.0), div(g, r))));
  if (scalar_equals(p, HUGE_VAL) || scalar_equals(p, -HUGE_VAL)) {
    Tensor ties = logical_and(eq(abs(x), r), op1(OpId::logical_not, {is_zero(r)}));
    Tensor count = sum(to_dtype(ties, x->dtype), dims_of(ctx, 2), true);
    Tensor share = where(ties, div(g, count), Scalar(0.0));
    return ctx.give(0, mul(share, sign(x)));
  }
  const Scalar less = scalar_binary(SymOp::kNSub, p, Scalar(1.0));
  const Tensor power = mul(sign(x), pow(abs(x), less));
  // The reciprocal's power may overflow, because the norm may be too small.
  if (scalar_ask(SymCmp::kLt, p, Scalar(1.0))) {
    const Tensor grown = pow(r, scalar_binary(SymOp::kNSub, Scalar(1.0), p));
    return ctx.give(0, mul(mul(where(is_zero(x), Scalar(0.0), power), g), grown));
  }
  ctx.give(0, mul(power, where(is_zero(r), Scalar(0.0), div(g, pow(r, less)))));
}

// -- scans (input, dim, reverse)
namespace {

Tensor scan(OpId op, const Tensor& t, const VjpContext& ctx, bool backwards) {
  return op1(op, {contiguous(t), ctx.args[1], ctx.args[2].as<bool>() != backwards});
}

}  // namespace

LUTRA_VJP(scan_sum, "") { ctx.give(0, scan(OpId::scan_sum, ctx.grads[0], ctx, true)); }

// Before the first zero: the sum of g * result from there on, divided by x. At the first zero: the sum over the
// products that leave it out. After it: 0.
LUTRA_VJP(scan_prod, "0:a0 0:r0") {
  Tensor x = ctx.arg(0), g = ctx.grads[0];
  if (grad_enabled() && x->dim() > 0) {
    return ctx.give(0, cumprod_grad_again(x, g, ctx.args[1], ctx.args[2].as<bool>()));
  }
  Tensor zero = is_zero(x);
  Tensor zeros = scan(OpId::scan_sum, to_dtype(zero, DType::kInt64), ctx, false);
  Tensor before = eq(zeros, int_arg(0)), first = logical_and(zero, eq(zeros, int_arg(1)));
  Tensor without = scan(OpId::scan_prod, where(first, Scalar(1.0), x), ctx, false);
  Tensor at_first = scan(OpId::scan_sum, mul(g, without), ctx, true);
  Tensor ahead = scan(OpId::scan_sum, mul(g, ctx.results[0]), ctx, true);
  Tensor safe = where(zero, Scalar(1.0), x);
  ctx.give(0, where(first, at_first, where(before, div(ahead, safe), Scalar(0.0))));
}

// Computes each element's share of the sums that include it, in logarithms, separately for positive and negative
// gradients.
LUTRA_VJP(scan_logsumexp, "0:a0 0:r0") {
  if (ctx.arg(0)->sizes.empty()) return ctx.give(0, ctx.grads[0]);
  Tensor x = ctx.arg(0), g = ctx.grads[0];
  if (grad_enabled()) {
    return ctx.give(0, logcumsumexp_grad_again(x, ctx.results[0], g, ctx.args[1], ctx.args[2].as<bool>()));
  }
  Tensor size = log(abs(g));
  auto part = [&](const Tensor& chosen) {
    Tensor terms = sub(where(chosen, size, Scalar(-HUGE_VAL)), ctx.results[0]);
    return exp(add(scan(OpId::scan_logsumexp, terms, ctx, true), x));
  };
  ctx.give(0, sub(part(gt(g, Scalar(0.0))), part(lt(g, Scalar(0.0)))));
}

LUTRA_VJP(scan_extreme, "0:r1") {
  if (!ctx.grads[0]) return;
  Tensor x = ctx.arg(0);
  if (x->sizes.empty()) return ctx.give(0, ctx.grads[0]);
  ctx.give(0, scatter_add(full(x->sizes, 0.0, x->dtype, x->device()), ctx.args[1], ctx.results[1], ctx.grads[0]));
}

}  // namespace lutra
