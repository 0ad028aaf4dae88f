// vjp rules of joins, windows and padding.
#include <algorithm>

#include "ops/decompose/emit.h"
#include "ops/decompose/windows.h"
#include "ops/grad/vjp.h"
#include "ops/meta/rules.h"

namespace lutra {
LUTRA_VJP(cat, "") {
  const auto& list = ctx.args[0].as<std::vector<Tensor>>();
  const Tensor& g = ctx.grads[0];
  const auto dim = size_t(wrap_dim(ctx.op, ctx.args[1].sym_int().hint, g->sizes.size()));
  SymInt start = 0;
  for (size_t i = 0; i < list.size(); i++) {
    if (list[i]->sizes.size() != g->sizes.size()) {
      if (ctx.needs(0, i)) ctx.give(0, i, zeros_like(list[i]));
      continue;
    }
    SymInt end = start + list[i]->sizes[dim];
    if (ctx.needs(0, i)) {
      Value at = Scalar::of_sym(start), stop = Scalar::of_sym(end);
      ctx.give(0, i, op1(OpId::slice, {g, int_arg(int64_t(dim)), at, stop, int_arg(1)}));
    }
    start = end;
  }
}

LUTRA_VJP(flip, "") { ctx.give(0, op1(OpId::flip, {ctx.grads[0], ctx.args[1]})); }

// Windows may overlap, so each element sums the gradients of all windows that have it.
LUTRA_VJP(unfold, "") {
  Tensor x = ctx.arg(0), g = ctx.grads[0];
  const size_t rank = x->sizes.size();
  if (rank == 0) return ctx.give(0, reshape(sum_all(g), {}));
  const int64_t dim = wrap_dim(ctx.op, ctx.args[1].sym_int().hint, rank);
  Sizes order;
  for (size_t d = 0; d < rank; d++) {
    if (int64_t(d) == dim) order.push_back(int64_t(rank));
    order.push_back(int64_t(d));
  }
  ctx.give(0, add_windows(permute(g, order), dim, dim + 1, ctx.args[3].sym_int(), 1, x->sizes[size_t(dim)]));
}

namespace {

// A layout over a storage's memory.
struct Layout {
  const Sizes &sizes, &strides;
  SymInt offset;

  SymInt end() const {
    SymInt last = offset;
    for (size_t d = 0; d < sizes.size(); d++) last = last + (sizes[d] - 1) * strides[d];
    return last + 1;
  }
  // Returns whether two elements may have the same place.
  bool may_overlap() const {
    std::vector<size_t> order;
    for (size_t d = 0; d < sizes.size(); d++) {
      if (sizes[d] != 1) order.push_back(d);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t k) { return strides[i].hint < strides[k].hint; });
    SymInt reached = 0;
    for (size_t d : order) {
      if (strides[d] <= reached) return true;
      reached = reached + (sizes[d] - 1) * strides[d];
    }
    return false;
  }
  // Returns the place of each element as one row, counted from element `start` of the storage.
  Tensor places(SymInt start, Device device) const {
    Tensor index = full({}, Scalar::of_sym(offset - start), DType::kInt64, device);
    for (size_t d = 0; d < sizes.size(); d++) {
      Tensor along = op1(OpId::arange, {int_arg(0), Scalar::of_sym(sizes[d]), int_arg(1), DType::kInt64, device});
      index = add(unsqueeze(index, int_arg(-1)), mul(along, Scalar::of_sym(strides[d])));
    }
    return reshape(index, {numel(sizes)});
  }
};

}  // namespace

// The gradient of a place in memory is the sum over the result's elements there. The argument's elements at that place
// share it. Places without an element of the argument drop it.
LUTRA_VJP(as_strided, "") {
  Tensor x = ctx.arg(0), g = ctx.grads[0];
  const SymInt offset = ctx.args[3].is_none() ? x->offset : ctx.args[3].sym_int();
  const Layout from{x->sizes, x->strides, x->offset}, to{ctx.args[1].as<Sizes>(), ctx.args[2].as<Sizes>(), offset};
  if (numel(from.sizes) == 0 || numel(to.sizes) == 0) return ctx.give(0, zeros_like(x));
  const SymInt start = from.offset <= to.offset ? from.offset : to.offset;
  const SymInt end = from.end() >= to.end() ? from.end() : to.end();
  const Tensor nothing = full({end - start}, 0.0, g->dtype, g->device());
  const Tensor flat = reshape(g, {numel(to.sizes)});
  Tensor memory = index_add(nothing, int_arg(0), to.places(start, g->device()), flat);
  if (from.may_overlap()) {
    const Tensor ones = full({numel(from.sizes)}, 1.0, g->dtype, g->device());
    Tensor shown = index_add(nothing, int_arg(0), from.places(start, g->device()), ones);
    memory = div(memory, op1(OpId::clamp, {shown, Scalar(1.0), Value()}));
  }
  ctx.give(0, op1(OpId::as_strided, {memory, x->sizes, x->strides, Scalar::of_sym(from.offset - start)}));
}

LUTRA_VJP(triangle, "") { ctx.give(0, op1(ctx.op, {ctx.grads[0], ctx.args[1]})); }

LUTRA_VJP(constant_pad_nd, "") {
  Sizes back;
  for (SymInt p : ctx.args[1].as<Sizes>()) back.push_back(SymInt(0) - p);
  ctx.give(0, op1(OpId::constant_pad_nd, {ctx.grads[0], back, Scalar(0.0)}));
}

}  // namespace lutra
