// Decomposes layer_norm, rms_norm and embedding, and the gradients of layer_norm and embedding. These gradients are ops
// of their own, so that each is one kernel. Half types are computed in float32 and rounded once.
#include <limits>

#include "ops/core/half.h"
#include "ops/decompose/formula.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

Tensor widened(const Tensor& t) { return to_dtype(t, opmath_type(t->dtype)); }
Tensor widened(const Value& v) { return v.is_none() ? Tensor() : widened(v.as<Tensor>()); }

// Returns the last dims of x, or those before them.
Sizes dims_of(const Tensor& x, const Sizes& shape, bool last) {
  Sizes dims;
  const size_t lead = x->sizes.size() - shape.size();
  for (size_t d = last ? lead : 0; d < (last ? x->sizes.size() : lead); d++) dims.push_back(int64_t(d));
  return dims;
}

Tensor mean_of(const Tensor& x, const Sizes& dims) { return op1(OpId::mean, {x, dims, true}); }

}  // namespace

// Computes the mean first, then the mean square of the rest: as accurate as one pass by Welford's rule.
void norm_statistics(const Tensor& input, const Sizes& shape, const Scalar& eps, Tensor& centred, Tensor& mean,
                     Tensor& rstd) {
  Tensor x = widened(input);
  const Sizes dims = dims_of(x, shape, true);
  mean = mean_of(x, dims);
  centred = sub(x, mean);
  rstd = rsqrt(add(mean_of(mul(centred, centred), dims), eps));
}

Results decompose_layer_norm(const Args& args) { return {call_op(OpId::native_layer_norm, args)[0]}; }

Results decompose_native_layer_norm(const Args& args) {
  Tensor x = args[0].tensor(), centred, mean, rstd;
  norm_statistics(x, args[1].as<Sizes>(), args[4].as<Scalar>(), centred, mean, rstd);
  Tensor y = mul(centred, rstd);
  if (Tensor w = widened(args[2])) y = mul(y, w);
  if (Tensor b = widened(args[3])) y = add(y, b);
  return {contiguous(to_dtype(y, x->dtype)), contiguous(mean), contiguous(rstd)};
}

// Returns rstd * (h - mean(h) - n * mean(h * n)) with h = grad * weight and n the normalised input.
Results decompose_layer_norm_backward_input(const Args& args) {
  Tensor input = args[1].tensor(), mean = args[2].tensor(), rstd = args[3].tensor();
  const Sizes dims = dims_of(input, args[5].as<Sizes>(), true);
  Tensor h = widened(args[0].tensor()), normal = mul(sub(widened(input), mean), rstd);
  if (Tensor w = widened(args[4])) h = mul(h, w);
  Tensor shift = mean_of(h, dims), tilt = mean_of(mul(h, normal), dims);
  return {contiguous(to_dtype(mul(sub(sub(h, shift), mul(normal, tilt)), rstd), input->dtype))};
}

Results decompose_layer_norm_backward_weight(const Args& args) {
  Tensor input = args[1].tensor();
  Tensor normal = mul(sub(widened(input), args[2].tensor()), args[3].tensor());
  return {sum(mul(widened(args[0].tensor()), normal), dims_of(input, args[4].as<Sizes>(), false), false)};
}

Results decompose_rms_norm(const Args& args) {
  Tensor input = args[0].tensor(), x = widened(input);
  const double least = input->dtype == DType::kFloat64    ? std::numeric_limits<double>::epsilon()
                       : input->dtype == DType::kFloat16  ? 0.0009765625
                       : input->dtype == DType::kBFloat16 ? 0.0078125
                                                          : double(std::numeric_limits<float>::epsilon());
  const Scalar eps = args[3].is_none() ? Scalar(least) : args[3].as<Scalar>();
  Tensor y = mul(x, rsqrt(add(mean_of(mul(x, x), dims_of(x, args[1].as<Sizes>(), true)), eps)));
  if (Tensor w = widened(args[2])) y = mul(y, w);
  return {contiguous(to_dtype(y, input->dtype))};
}

// (input, size, alpha, beta, k): x / (k + alpha * the mean of squares over size neighbouring channels) ^ beta.
Results decompose_local_response_norm(const Args& args) {
  const Tensor x = args[0].tensor();
  const SymInt size = args[1].sym_int();
  if (x->dim() < 3) {
    fail("local_response_norm: the input must have at least 3 dimensions, got shape ", to_string(x->sizes));
  }
  if (size < 1) fail("local_response_norm: size must be positive, got ", size.hint);
  // Slides windows over the channels in steps of one, with zeros before and after them.
  const SymInt before = floor_div(size, 2), after = floor_div(size - 1, 2);
  Sizes pad(size_t(x->dim() - 2) * 2, SymInt(0));
  pad.push_back(before), pad.push_back(after);
  const Tensor squares = op1(OpId::constant_pad_nd, {mul(x, x), pad, int_arg(0)});
  const Tensor windows = op1(OpId::unfold, {squares, int_arg(1), Scalar::of_sym(size), int_arg(1)});
  const Tensor total = op1(OpId::sum, {windows, Sizes{SymInt(x->dim())}, false, x->dtype});
  // The average of integers is an integer, as in avg_pool2d.
  const Value rounding = is_float(x->dtype) ? Value() : Value(std::string("trunc"));
  const Tensor mean = op1(OpId::div, {total, Scalar::of_sym(size), rounding});
  return {div(x, pow(add(mul(mean, args[2]), args[4]), args[3]))};
}

}  // namespace lutra
