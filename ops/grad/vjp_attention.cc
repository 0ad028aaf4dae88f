// vjp rules of attention.
#include "ops/core/half.h"
#include "ops/decompose/emit.h"
#include "ops/grad/vjp.h"

namespace lutra {

// decompose_attention.cc
Tensor attention_weights(const Tensor& q, const Tensor& k, const Value& mask, bool causal, const Value& scale);
Tensor repeat_heads(const Tensor& t, SymInt heads);
Scalar attention_scale(const Tensor& q, const Value& scale);

namespace {

Tensor flipped(const Tensor& t) { return transpose(t, int_arg(-2), int_arg(-1)); }
Tensor product(const Tensor& a, const Tensor& b) { return op1(OpId::matmul, {a, b}); }

// Sums a gradient of repeated heads down to the heads of t.
Tensor sum_heads(const Tensor& g, const Tensor& t) {
  const Sizes& s = t->sizes;
  if (s[1].hint == g->sizes[1].hint && s[1] == g->sizes[1]) return g;
  Tensor groups = reshape(g, Sizes{s[0], s[1], floor_div(g->sizes[1], s[1]), s[2], s[3]});
  return sum(groups, {2}, false);
}

// Computes the gradients by the formula, in ops that can be differentiated again; in float32 for half types.
void by_formula(VjpContext& ctx) {
  const DType type = ctx.arg(0)->dtype;
  const auto wide = [&](const Tensor& t) { return to_dtype(t, opmath_type(type)); };
  Tensor q = wide(ctx.arg(0)), k = wide(ctx.arg(1)), v = wide(ctx.arg(2)), g = wide(ctx.grads[0]);
  Tensor keys = repeat_heads(k, q->sizes[1]), values = repeat_heads(v, q->sizes[1]);
  Tensor p = attention_weights(q, keys, ctx.args[3], ctx.args[4].as<bool>(), ctx.args[5]);
  Scalar scale = attention_scale(q, ctx.args[5]);
  Tensor dp = product(g, flipped(values));
  Tensor ds = mul(mul(p, sub(dp, sum(mul(dp, p), {-1}, true))), scale);
  if (ctx.needs(0)) ctx.give(0, to_dtype(product(ds, keys), type));
  if (ctx.needs(1)) ctx.give(1, to_dtype(sum_heads(product(flipped(ds), q), k), type));
  if (ctx.needs(2)) ctx.give(2, to_dtype(sum_heads(product(flipped(p), g), v), type));
}

}  // namespace

LUTRA_VJP(flash_attention,
          "0:a0 0:a1 0:a2 0:a3 0:r0 0:r1 1:a0 1:a1 1:a2 1:a3 1:r0 1:r1 2:a0 2:a1 2:a2 2:a3 2:r0 2:r1") {
  if (grad_enabled()) return by_formula(ctx);
  Results r =
      call_op(OpId::flash_attention_backward, {ctx.grads[0], ctx.args[0], ctx.args[1], ctx.args[2], ctx.results[0],
                                               ctx.results[1], ctx.args[3], ctx.args[4], ctx.args[5]});
  for (size_t i = 0; i < 3; i++) {
    if (ctx.needs(i)) ctx.give(i, r[i]);
  }
}

}  // namespace lutra
