// vjp rules of gathering, scattering and sorting: the gradient of a gather is a scatter, and the other way round.
#include "ops/decompose/emit.h"
#include "ops/grad/vjp.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// Fails if index and src have different shapes. The gradient of src has elements only where index has a place.
void need_same_shape(const VjpContext& ctx, const Tensor& index, const Tensor& src) {
  if (same_sizes(index->sizes, src->sizes)) return;
  fail(name(ctx.op), ": the gradient of src needs an index of its shape ", to_string(src->sizes), ", got ",
       to_string(index->sizes));
}

Tensor index_fill(const Tensor& t, const Value& dim, const Value& index) {
  return op1(OpId::index_fill, {t, dim, index, Scalar(0.0)});
}

Tensor scatter_value(const Tensor& t, const Value& dim, const Value& index, Value src) {
  return op1(OpId::scatter, {t, dim, index, std::move(src)});
}

}  // namespace

// -- gathering

LUTRA_VJP(gather, "0:a2") { ctx.give(0, scatter_add(zeros_like(ctx.arg(0)), ctx.args[1], ctx.arg(2), ctx.grads[0])); }

LUTRA_VJP(index_select, "0:a2") {
  ctx.give(0, index_add(zeros_like(ctx.arg(0)), ctx.args[1], ctx.arg(2), ctx.grads[0]));
}

LUTRA_VJP(index, "0:a1") {
  ctx.give(0, op1(OpId::index_put, {zeros_like(ctx.arg(0)), ctx.args[1], ctx.args[2], ctx.grads[0], true}));
}

LUTRA_VJP(embedding, "1:a0") {
  const Value pad = ctx.args[2].is_none() ? Value(int_arg(-1)) : ctx.args[2];
  int64_t at = -1;
  const SymInt n = ctx.arg(1)->sizes[0];
  if (!ctx.args[2].is_none()) at = pad.sym_int().guard();
  // Converts a padding_idx counted from the end to one from the start. -1 stands for none.
  const bool from_end = !ctx.args[2].is_none() && at < 0;
  Scalar position = from_end ? Scalar::of_int(at + n.guard()) : int_arg(at);
  ctx.give(1,
           op1(OpId::embedding_dense_backward, {ctx.grads[0], ctx.arg(0), Scalar::of_sym(n), position, ctx.args[3]}));
}

LUTRA_VJP(embedding_dense_backward, "0:a1") {
  if (ctx.args[4].as<bool>()) fail("embedding: its second derivative with scale_grad_by_freq is not implemented");
  Tensor g = op1(OpId::embedding, {ctx.arg(1), ctx.grads[0]});
  const SymInt pad = ctx.args[3].sym_int();
  if (pad.hint >= 0) {
    Tensor padded = unsqueeze(eq(ctx.arg(1), Scalar::of_sym(pad)), int_arg(-1));
    g = op1(OpId::masked_fill, {g, padded, Scalar(0.0)});
  }
  ctx.give(0, g);
}

namespace {

// Returns g, which has a row for each bag, as a row for each id. Ids from the last offset on may be in no bag.
Tensor rows_of_bags(const Tensor& g, const Tensor& ids, const Value& offsets, bool include_last_offset) {
  const SymInt features = g->sizes[1];
  if (offsets.is_none()) return expand(unsqueeze(g, int_arg(1)), Sizes{ids->sizes[0], ids->sizes[1], features});
  // The bag of an id is the number of offsets at or before it, less 1. An offset may be the number of ids.
  const Tensor at = offsets.tensor();
  const auto filled = [&](SymInt n, int64_t value) { return full({n}, int_arg(value), DType::kInt64, g->device()); };
  const SymInt n = ids->sizes[0];
  const Tensor begun = index_add(filled(n + 1, 0), int_arg(0), at, filled(at->sizes[0], 1));
  const Tensor bag = part(op1(OpId::cumsum, {begun, int_arg(0), Value()}), 0, 0, n);
  Tensor rows = g;
  if (include_last_offset)
    rows = op1(OpId::cat, {std::vector{g, full({1, features}, 0.0, g->dtype, g->device())}, int_arg(0)});
  return index_select(rows, int_arg(0), sub(bag, int_arg(1)));
}

}  // namespace

LUTRA_VJP(embedding_bag_sum, "0:a1 0:a2 0:a3 0:r1 3:a0 3:a1 3:a2") {
  const Tensor ids = ctx.arg(1);
  Tensor g = ctx.grads[0];
  if (ctx.args[6].as<bool>()) {
    const Tensor counts = op1(OpId::clamp_min, {ctx.results[1], int_arg(1)});
    g = div(g, unsqueeze(to_dtype(counts, g->dtype), int_arg(1)));
  }
  const Tensor rows = rows_of_bags(g, ids, ctx.args[2], ctx.args[7].as<bool>());
  const Scalar padding = ctx.args[4].as<Scalar>();
  if (ctx.needs(0)) {
    Tensor weighted = rows;
    if (!ctx.args[3].is_none()) weighted = mul(rows, unsqueeze(to_dtype(ctx.arg(3), g->dtype), int_arg(-1)));
    const Scalar n = Scalar::of_sym(ctx.arg(0)->sizes[0]);
    ctx.give(0, op1(OpId::embedding_dense_backward, {weighted, ids, n, padding, ctx.args[5]}));
  }
  if (!ctx.args[3].is_none() && ctx.needs(3)) {
    const Tensor taken = op1(OpId::embedding, {ids, ctx.arg(0), Value(), false, false});
    const Tensor dots = sum(mul(to_dtype(taken, g->dtype), rows), Sizes{ids->dim()}, false);
    ctx.give(3, op1(OpId::masked_fill, {dots, eq(ids, padding), Scalar(0.0)}));
  }
}

// -- scattering along a dim

LUTRA_VJP(scatter_add, "3:a2") {
  if (ctx.needs(0)) ctx.give(0, ctx.grads[0]);
  if (!ctx.needs(3)) return;
  need_same_shape(ctx, ctx.arg(2), ctx.arg(3));
  ctx.give(3, gather(ctx.grads[0], ctx.args[1], ctx.args[2]));
}

LUTRA_VJP(scatter, "0:a2 3:a2") {
  if (!ctx.args[4].is_none()) fail("scatter: with reduce it is not differentiable; use scatter_reduce or scatter_add");
  const Tensor& g = ctx.grads[0];
  if (ctx.needs(0)) ctx.give(0, scatter_value(g, ctx.args[1], ctx.args[2], Scalar(0.0)));
  if (!ctx.needs(3)) return;
  need_same_shape(ctx, ctx.arg(2), ctx.arg(3));
  ctx.give(3, gather(g, ctx.args[1], ctx.args[2]));
}

namespace {

// The gradient of a reducing scatter, as in PyTorch. `spread` brings a value of the result's shape to src's. `collect`
// adds one of src's shape into one of the result's.
struct ReduceGrad {
  VjpContext& ctx;
  std::string reduce;
  bool include_self;
  std::function<Tensor(const Tensor&)> spread;
  std::function<Tensor(const Tensor& into, const Tensor&)> collect;
  std::function<Tensor(const Tensor&)> without_self;  // zeros where something was scattered
  std::function<Tensor(const Tensor&, const Tensor&, const char*)> reduce_with;
  Tensor self_grad = Tensor();

  void give(const Tensor& self, const Tensor& src) {
    if (!include_self && self) self_grad = without_self(self);
    if (ctx.needs(0)) ctx.give(0, self_grad);
    if (ctx.needs(3)) ctx.give(3, reshape(src, ctx.arg(3)->sizes));
  }

  void run() {
    const Tensor &g = ctx.grads[0], x = ctx.arg(0), src = ctx.arg(3), r = ctx.results[0];
    if (reduce == "sum") {
      self_grad = g;
      give(g, ctx.needs(3) ? spread(g) : Tensor());
    } else if (reduce == "mean") {
      Tensor start = full(x->sizes, include_self ? 1.0 : 0.0, x->dtype, x->device());
      Tensor count = collect(start, full(src->sizes, 1.0, x->dtype, x->device()));
      count = where(eq(count, Scalar(0.0)), Scalar(1.0), count);
      self_grad = div(g, to_dtype(count, g->dtype));
      give(self_grad, ctx.needs(3) ? spread(div(g, to_dtype(count, g->dtype))) : Tensor());
    } else if (reduce == "prod") {
      product(g, x, src, r);
    } else {
      extreme(g, x, src, r);
    }
  }

  // If there is no zero, the product of the other factors is result / factor. A single zero is left out of the product.
  void product(const Tensor& g, const Tensor& x, const Tensor& src, const Tensor& r) {
    if (ctx.needs(0)) {
      Tensor masked = where(eq(x, Scalar(0.0)), Scalar(1.0), x);
      self_grad = div(mul(g, reduce_with(masked, src, "prod")), masked);
    }
    Tensor to_src;
    if (ctx.needs(3)) {
      Tensor zero = eq(src, Scalar(0.0));
      Tensor zeros = spread(collect(zeros_like(x), to_dtype(zero, x->dtype)));
      Tensor single = logical_and(zero, eq(zeros, Scalar(1.0)));
      Tensor without = reduce_with(x, where(single, Scalar(1.0), src), "prod");
      to_src = where(single, spread(mul(g, without)), div(spread(mul(g, r)), where(zero, Scalar(1.0), src)));
    }
    give(self_grad, to_src);
  }

  // Elements equal to the result share the gradient evenly. self gets its share (and loses it) even if it is not
  // included, as in PyTorch.
  void extreme(const Tensor& g, const Tensor& x, const Tensor& src, const Tensor& r) {
    Tensor self_is = to_dtype(eq(x, r), g->dtype), src_is = to_dtype(eq(src, spread(r)), g->dtype);
    Tensor count = collect(self_is, src_is);
    count = where(eq(count, Scalar(0.0)), Scalar(1.0), count);
    Tensor share = div(g, count);
    self_grad = mul(self_is, share);
    give(self_grad, ctx.needs(3) ? mul(src_is, spread(share)) : Tensor());
  }
};

// Gives the gradients of op(self, dim, index, src, reduce, include_self). For the other arguments see ReduceGrad.
void reduce_grad(VjpContext& ctx, OpId op, std::function<Tensor(const Tensor&)> spread,
                 std::function<Tensor(const Tensor&, const Tensor&)> collect,
                 std::function<Tensor(const Tensor&)> without_self) {
  const auto reduce_with = [&](const Tensor& into, const Tensor& t, const char* reduce) {
    return op1(op, {into, ctx.args[1], ctx.args[2], t, std::string(reduce), ctx.args[5]});
  };
  ReduceGrad grad{ctx,
                  ctx.args[4].as<std::string>(),
                  ctx.args[5].as<bool>(),
                  std::move(spread),
                  std::move(collect),
                  std::move(without_self),
                  reduce_with};
  grad.run();
}

}  // namespace

LUTRA_VJP(scatter_reduce, "0:a0 0:a2 0:a3 0:r0 3:a0 3:a2 3:a3 3:r0") {
  need_same_shape(ctx, ctx.arg(2), ctx.arg(3));
  const Value dim = ctx.args[1], index = ctx.args[2];
  reduce_grad(
      ctx, OpId::scatter_reduce, [&](const Tensor& t) { return gather(t, dim, index); },
      [&](const Tensor& into, const Tensor& t) { return scatter_add(into, dim, ctx.arg(2), t); },
      [&](const Tensor& t) { return scatter_value(t, dim, index, Scalar(0.0)); });
}

// -- scattering slices

LUTRA_VJP(index_add, "3:a2") {
  if (ctx.needs(0)) ctx.give(0, ctx.grads[0]);
  if (!ctx.needs(3)) return;
  Tensor g = reshape(index_select(ctx.grads[0], ctx.args[1], ctx.args[2]), ctx.arg(3)->sizes);
  ctx.give(3, scaled(g, ctx.args[4].as<Scalar>()));
}

LUTRA_VJP(index_copy, "0:a2 3:a2") {
  if (ctx.needs(0)) ctx.give(0, index_fill(ctx.grads[0], ctx.args[1], ctx.args[2]));
  if (ctx.needs(3)) ctx.give(3, reshape(index_select(ctx.grads[0], ctx.args[1], ctx.args[2]), ctx.arg(3)->sizes));
}

LUTRA_VJP(index_fill, "0:a2 3:a2") {
  if (ctx.needs(0)) ctx.give(0, index_fill(ctx.grads[0], ctx.args[1], ctx.args[2]));
  if (!ctx.needs(3)) return;
  // Each place counts once, however often index names it.
  const Tensor& g = ctx.grads[0];
  ctx.give(3, sum_all(sub(g, index_fill(g, ctx.args[1], ctx.args[2]))));
}

LUTRA_VJP(index_reduce, "0:a0 0:a2 0:a3 0:r0 3:a0 3:a2 3:a3 3:r0") {
  const Value dim = ctx.args[1], index = ctx.args[2];
  reduce_grad(
      ctx, OpId::index_reduce, [&](const Tensor& t) { return index_select(t, dim, index); },
      [&](const Tensor& into, const Tensor& t) { return index_add(into, dim, ctx.arg(2), t); },
      [&](const Tensor& t) { return index_fill(t, dim, index); });
}

LUTRA_VJP(index_put, "0:a1 3:a1") {
  const Tensor& g = ctx.grads[0];
  const bool accumulate = ctx.args[4].as<bool>();
  if (ctx.needs(0)) {
    Tensor zero = full({}, 0.0, g->dtype, g->device());
    ctx.give(0, accumulate ? g : op1(OpId::index_put, {g, ctx.args[1], ctx.args[2], zero, false}));
  }
  if (ctx.needs(3)) ctx.give(3, op1(OpId::index, {g, ctx.args[1], ctx.args[2]}));
}

// -- masks

LUTRA_VJP(masked_scatter, "0:a1 2:a1") {
  const Tensor &g = ctx.grads[0], mask = ctx.arg(1);
  if (ctx.needs(0)) ctx.give(0, op1(OpId::masked_fill, {g, mask, Scalar(0.0)}));
  if (!ctx.needs(2)) return;
  // Element i of source went to the i-th true place, so gathers it back by the running count of the mask.
  const Tensor src = ctx.arg(2);
  ctx.give(2, op1(OpId::masked_gather, {g, mask, src->sizes}));
}

LUTRA_VJP(masked_gather, "0:a1") {
  Tensor zeros = zeros_like(ctx.arg(0));
  ctx.give(0, op1(OpId::masked_scatter, {zeros, ctx.args[1], ctx.grads[0]}));
}

LUTRA_VJP(masked_select, "0:a1") {
  Tensor zeros = zeros_like(ctx.arg(0));
  ctx.give(0, op1(OpId::masked_scatter, {zeros, ctx.args[1], ctx.grads[0]}));
}

// Elements equal to the median share the gradient evenly.
LUTRA_VJP(median_all, "0:a0 0:r0") {
  const Tensor x = ctx.arg(0), r = ctx.results[0];
  Tensor is = op1(OpId::logical_or, {eq(x, r), logical_and(op1(OpId::isnan, {x}), op1(OpId::isnan, {r}))});
  Tensor hits = to_dtype(is, x->dtype);
  ctx.give(0, mul(div(ctx.grads[0], sum_all(hits)), hits));
}

// -- sorting: dim is argument 1 of sort, argument 2 of topk

LUTRA_VJP(sort, "0:r1") {
  if (!ctx.grads[0]) return;
  const Tensor x = ctx.arg(0);
  const Value& dim = ctx.args[ctx.op == OpId::topk ? 2 : 1];
  ctx.give(0, x->sizes.empty() ? ctx.grads[0] : scatter_value(zeros_like(x), dim, ctx.results[1], ctx.grads[0]));
}

}  // namespace lutra
