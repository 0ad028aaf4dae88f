// Decomposes batch_norm and group_norm. Half types are normalised in float32 and rounded once.
#include "ops/decompose/emit.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

DType wide(DType t) { return at_least_float32(t); }

// Reshapes one value a channel so that it broadcasts over x.
Tensor by_channel(const Tensor& t, const Tensor& x) {
  Sizes sizes(x->sizes.size(), SymInt(1));
  sizes[1] = x->sizes[1];
  return to_dtype(reshape(t, sizes), wide(x->dtype));
}

Sizes all_but_channels(const Tensor& x) {
  Sizes dims;
  for (int64_t d = 0; d < x->dim(); d++) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

Tensor affine(Tensor y, const Value& weight, const Value& bias, const Tensor& x) {
  if (!weight.is_none()) y = mul(y, by_channel(weight.tensor(), x));
  if (!bias.is_none()) y = add(y, by_channel(bias.tensor(), x));
  return to_dtype(y, x->dtype);
}

struct Moments {
  Tensor centred, var;  // var with the reduced dims as ones
  Tensor mean;
};
Moments moments(const Tensor& x, const Sizes& dims) {
  SymInt n = 1;
  for (SymInt d : dims) n = n * x->sizes[size_t(d.hint)];
  const Scalar count = Scalar::of_sym(n);
  Moments m;
  m.mean = div(sum(x, dims, true), count);
  m.centred = sub(x, m.mean);
  m.var = div(sum(mul(m.centred, m.centred), dims, true), count);
  return m;
}

Tensor normalised(const Tensor& centred, const Tensor& var, const Value& eps) {
  return mul(centred, op1(OpId::rsqrt, {add(var, eps)}));
}

}  // namespace

// Computes the means and variances of the channels.
void batch_statistics(const Tensor& x, Tensor& mean, Tensor& var) {
  const Moments m = moments(to_dtype(x, wide(x->dtype)), all_but_channels(x));
  mean = reshape(m.mean, {x->sizes[1]}), var = reshape(m.var, {x->sizes[1]});
}

Results decompose_batch_norm_train(const Args& args) {
  const Tensor x = args[0].tensor();
  const Moments m = moments(to_dtype(x, wide(x->dtype)), all_but_channels(x));
  const Tensor y = affine(normalised(m.centred, m.var, args[3]), args[1], args[2], x);
  const Sizes channels = {x->sizes[1]};
  return {y, reshape(m.mean, channels), reshape(m.var, channels)};
}

// Let n be the normalised input, and let means and sums be over all but the channels. Returns
// (grad - mean(grad) - n * mean(grad * n)) * weight / deviation, sum(grad * n), sum(grad).
Results decompose_batch_norm_backward(const Args& args) {
  const Tensor x = args[1].tensor(), g = to_dtype(args[0].tensor(), wide(x->dtype));
  const Tensor rstd = op1(OpId::rsqrt, {add(by_channel(args[3].tensor(), x), args[5])});
  const Tensor normal = mul(sub(to_dtype(x, wide(x->dtype)), by_channel(args[2].tensor(), x)), rstd);
  const Sizes dims = all_but_channels(x), channels = {x->sizes[1]};
  const Tensor shift = sum(g, dims, true), tilt = sum(mul(g, normal), dims, true);
  SymInt n = 1;
  for (SymInt d : dims) n = n * x->sizes[size_t(d.hint)];
  const Scalar count = Scalar::of_sym(n);
  const bool scaled = !args[4].is_none();
  const Tensor scale = scaled ? mul(rstd, by_channel(args[4].tensor(), x)) : rstd;
  // The first operand has the input's layout. So the result has it too, whatever the layout of grad.
  const Tensor dx = mul(add(mul(normal, neg(div(tilt, count))), sub(g, div(shift, count))), scale);
  const DType type = scaled ? args[4].tensor()->dtype : wide(x->dtype);
  return {to_dtype(dx, x->dtype), to_dtype(reshape(tilt, channels), type), to_dtype(reshape(shift, channels), type)};
}

Results decompose_batch_norm_infer(const Args& args) {
  const Tensor x = args[0].tensor();
  const Tensor centred = sub(to_dtype(x, wide(x->dtype)), by_channel(args[1].tensor(), x));
  return {affine(normalised(centred, by_channel(args[2].tensor(), x), args[5]), args[3], args[4], x)};
}

Results decompose_group_norm(const Args& args) {
  const Tensor x = args[0].tensor();
  const int64_t groups = args[1].sym_int().guard();
  SymInt inner = floor_div(x->sizes[1], groups);
  for (int64_t d = 2; d < x->dim(); d++) inner = inner * x->sizes[size_t(d)];
  const Tensor grouped = to_dtype(reshape(contiguous(x), Sizes{x->sizes[0], groups, inner}), wide(x->dtype));
  const Tensor y = reshape(op1(OpId::layer_norm, {grouped, Sizes{inner}, Value(), Value(), args[4]}), x->sizes);
  return {contiguous(affine(y, args[2], args[3], x))};
}

}  // namespace lutra
