// Decomposes composite elementwise functions and activations.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/decompose/formula.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

Tensor constant_like(double v, const Tensor& t) { return full({}, v, t->dtype, t->device()); }
// Returns v for each element of t, which equal themselves, in t's layout.
Tensor everywhere(bool v, const Tensor& t) { return v ? eq(t, t) : ne(t, t); }
Tensor floating(const Tensor& t) { return to_dtype(t, to_float(t->dtype)); }
// Applies a formula to v, with integers converted to floats.
template <class F>
Results in_floats(const Value& v, F formula) {
  return {formula(floating(v.as<Tensor>()))};
}
Scalar negative(const Value& v) { return scalar_binary(SymOp::kNSub, Scalar(0.0), v.as<Scalar>()); }
Scalar one_minus(const Value& v) { return scalar_binary(SymOp::kNSub, Scalar(1.0), v.as<Scalar>()); }
// Returns an operand as a tensor of the dtype of op's meta rule.
Tensor promoted(const Value& v, DType type, const Tensor& other) {
  return v.is<Tensor>() ? to_dtype(v.as<Tensor>(), type) : full({}, v.as<Scalar>(), type, other->device());
}
DType result_dtype(OpId op, const Args& args) { return info(op).meta(op, args)[0].dtype; }

}  // namespace

// -- elementwise

namespace {
Tensor incomplete(const Args& args, bool upper) {
  Tensor a = args[0].tensor(), x = args[1].tensor();
  const Sizes sizes = broadcast(OpId::igamma, a->sizes, x->sizes);
  const DType type = result_type(args, {0, 1});
  const auto whole = [&](const Tensor& t) { return contiguous(expand(to_dtype(t, type), sizes)); };
  return op1(OpId::incomplete_gamma, {whole(a), whole(x), upper});
}
}  // namespace

Results decompose_igamma(const Args& args) { return {conform(OpId::igamma, args, incomplete(args, false))}; }
Results decompose_igammac(const Args& args) { return {conform(OpId::igammac, args, incomplete(args, true))}; }

Results decompose_deg2rad(const Args& args) {
  return in_floats(args[0], [](Tensor x) { return x * (M_PI / 180); });
}
Results decompose_rad2deg(const Args& args) {
  return in_floats(args[0], [](Tensor x) { return x * (180 / M_PI); });
}
Results decompose_frac(const Args& args) {
  Tensor x = args[0].tensor();
  return {x - trunc(x)};
}
Results decompose_frexp(const Args& args) {
  return {op1(OpId::frexp_mantissa, {args[0]}), op1(OpId::frexp_exponent, {args[0]})};
}
Results decompose_sgn(const Args& args) { return {sign(args[0])}; }
Results decompose_sinc(const Args& args) {
  return in_floats(args[0], [](Tensor x) {
    Tensor p = x * M_PI;
    return where(eq(x, Scalar(0.0)), Scalar(1.0), sin(p) / p);
  });
}
Results decompose_logit(const Args& args) {
  return in_floats(args[0], [&](Tensor x) {
    if (!args[1].is_none()) {
      const Tensor below = where(gt(x, one_minus(args[1])), one_minus(args[1]), x);
      x = where(lt(x, args[1]), args[1], below);
    }
    return log(x / (1.0 - x));
  });
}
// Replaces NaN, Inf and -Inf by numbers: by default 0, the greatest and the least.
Results decompose_nan_to_num(const Args& args) {
  Tensor x = args[0].tensor();
  if (!is_float(x->dtype)) return {op1(OpId::clone, {x})};
  const double most = std::min(info(x->dtype).most, std::numeric_limits<double>::max());
  auto given = [&](size_t k, double otherwise) { return args[k].is_none() ? Value(Scalar(otherwise)) : args[k]; };
  Tensor r = where(isnan(x), given(1, 0), x);
  r = where(eq(x, Scalar(INFINITY)), given(2, most), r);
  return {where(eq(x, Scalar(-INFINITY)), given(3, -most), r)};
}
Results decompose_isinf(const Args& args) {
  Tensor x = args[0].tensor();
  return {is_float(x->dtype) ? eq(abs(x), Scalar(INFINITY)) : everywhere(false, x)};
}
Results decompose_isfinite(const Args& args) {
  Tensor x = args[0].tensor();
  return {is_float(x->dtype) ? lt(abs(x), Scalar(INFINITY)) : everywhere(true, x)};
}
Results decompose_isposinf(const Args& args) {
  Tensor x = args[0].tensor();
  return {is_float(x->dtype) ? eq(x, Scalar(INFINITY)) : everywhere(false, x)};
}
Results decompose_isneginf(const Args& args) {
  Tensor x = args[0].tensor();
  return {is_float(x->dtype) ? eq(x, Scalar(-INFINITY)) : everywhere(false, x)};
}
// x - y| <= atol + rtol |y|. Infinities are compared by equality. Integers are computed in the default float dtype.
// Half types are rounded after each step.
Results decompose_isclose(const Args& args) {
  Tensor x = args[0].tensor(), y = args[1].tensor(), same = eq(x, y);
  for (size_t i : {2, 3}) {
    if (!scalar_ask(SymCmp::kLe, Scalar(0.0), args[i].as<Scalar>())) {
      fail("isclose: ", i == 2 ? "rtol" : "atol", " must not be negative, got ", to_string(args[i].as<Scalar>()));
    }
  }
  if (args[4].as<bool>() && !is_integral(x->dtype)) same = logical_or(same, logical_and(ne(x, x), ne(y, y)));
  const bool pairs = is_complex(x->dtype);
  const auto values = [&](const Tensor& t) {
    return pairs ? op1(OpId::view_as_real, {t}) : to_dtype(t, to_float(t->dtype));
  };
  const auto size = [&](const Tensor& t) {
    const auto part = [&](int64_t k) { return op1(OpId::select, {t, int_arg(-1), int_arg(k)}); };
    return pairs ? op1(OpId::hypot, {part(0), part(1)}) : abs(t);
  };
  Tensor v = values(y), apart = size(values(x) - v);
  Tensor allowed = add(mul(size(v), args[2]), args[3]);
  return {logical_or(same, logical_and(lt(apart, Scalar(INFINITY)), le(apart, allowed)))};
}
Results decompose_clamp_min(const Args& args) { return call_op(OpId::clamp, {args[0], args[1]}); }
Results decompose_clamp_max(const Args& args) { return call_op(OpId::clamp, {args[0], {}, args[1]}); }
Results decompose_rsub(const Args& args) { return call_op(OpId::sub, {args[1], args[0], args[2]}); }
Results decompose_float_power(const Args& args) {
  auto operand = [&](size_t k) -> Value {
    return args[k].is<Tensor>() ? Value(to_dtype(args[k].as<Tensor>(), DType::kFloat64)) : args[k];
  };
  return {pow(operand(0), operand(1))};
}
Results decompose_ldexp(const Args& args) {
  DType type = result_dtype(OpId::ldexp, args);
  return in_floats(to_dtype(args[0].tensor(), type),
                   [&](Tensor x) { return mul(x, pow(Scalar(2.0), to_dtype(args[1].tensor(), x->dtype))); });
}

namespace {
// Computes log(b^x + b^y) from the greater of the two. For equal infinities it returns that infinity.
Results log_add(const Args& args, OpId op, Tensor (*grow)(const Tensor&), Tensor (*shrink)(const Tensor&)) {
  DType type = result_dtype(op, args);
  return in_floats(to_dtype(args[0].tensor(), type), [&](Tensor a) {
    Tensor b = to_dtype(args[1].tensor(), a->dtype);
    Tensor sum = maximum(a, b) + shrink(grow(neg(abs(a - b))));
    return where(logical_and(eq(abs(a), Scalar(INFINITY)), eq(a, b)), a, sum);
  });
}
Tensor grow2(const Tensor& t) { return op1(OpId::exp2, {t}); }
Tensor shrink2(const Tensor& t) { return log1p(t) * (1 / M_LN2); }
Tensor grow_e(const Tensor& t) { return exp(t); }
}  // namespace
Results decompose_logaddexp(const Args& args) { return log_add(args, OpId::logaddexp, grow_e, log1p); }
Results decompose_logaddexp2(const Args& args) { return log_add(args, OpId::logaddexp2, grow2, shrink2); }

Results decompose_xlogy(const Args& args) {
  DType type = result_dtype(OpId::xlogy, args);
  const Tensor& any = args[0].is<Tensor>() ? args[0].as<Tensor>() : args[1].as<Tensor>();
  Tensor x = wide(promoted(args[0], type, any)), y = wide(promoted(args[1], type, any));
  return {to_dtype(where(eq(x, Scalar(0.0)), where(isnan(y), y, Scalar(0.0)), x * log(y)), type)};
}
Results decompose_heaviside(const Args& args) {
  Tensor x = args[0].tensor(), step = to_dtype(gt(x, Scalar(0.0)), x->dtype);
  if (is_bool(x->dtype)) return {logical_or(x, args[1].tensor())};
  return {where(eq(x, Scalar(0.0)), args[1], step)};
}

// -- activations

namespace {
constexpr double kGeluBeta = M_SQRT2 * M_2_SQRTPI * 0.5, kGeluCubic = 0.044715;

Tensor softplus(const Tensor& x) { return where(gt(x, Scalar(20.0)), x, log1p(exp(x))); }
}  // namespace

Results decompose_gelu(const Args& args) {
  return in_floats(args[0], [&](Tensor x) {
    if (args[1].as<std::string>() == "none") return x * op1(OpId::normal_cdf, {x});
    Tensor inner = (x * x * x * kGeluCubic + x) * kGeluBeta;
    return x * 0.5 * (tanh(inner) + 1.0);
  });
}
Results decompose_gelu_backward(const Args& args) {
  Tensor given = args[0].tensor();
  return in_floats(args[1], [&](Tensor x) {
    Tensor g = to_dtype(given, x->dtype);
    if (args[2].as<std::string>() == "none") {
      Tensor cdf = op1(OpId::normal_cdf, {x}), pdf = exp(x * x * -0.5) * (M_2_SQRTPI * M_SQRT1_2 * 0.5);
      return g * (cdf + x * pdf);
    }
    Tensor squared = x * x, t = tanh((squared * x * kGeluCubic + x) * kGeluBeta), half = x * 0.5;
    Tensor slope = (squared * (3 * kGeluCubic) + 1.0) * kGeluBeta;
    return g * ((t + 1.0) * 0.5 + half * (1.0 - t * t) * slope);
  });
}
Results decompose_silu(const Args& args) {
  return in_floats(args[0], [](Tensor x) { return x / (exp(neg(x)) + 1.0); });
}
Results decompose_silu_backward(const Args& args) {
  Tensor given = args[0].tensor();
  return in_floats(args[1], [&](Tensor x) {
    Tensor s = sigmoid(x);
    return to_dtype(given, x->dtype) * s * (x * (1.0 - s) + 1.0);
  });
}
Results decompose_mish(const Args& args) {
  return in_floats(args[0], [](Tensor x) { return x * tanh(softplus(x)); });
}
Results decompose_elu(const Args& args) {
  return in_floats(args[0], [&](Tensor x) {
    Tensor below = mul(mul(expm1(mul(x, args[3])), args[1]), args[2]);
    return where(le(x, Scalar(0.0)), below, mul(x, args[2]));
  });
}
Results decompose_selu(const Args& args) { return call_op(OpId::elu, {args[0], kSeluAlpha, kSeluScale}); }
Results decompose_celu(const Args& args) {
  Scalar inverse = scalar_binary(SymOp::kNDiv, Scalar(1.0), args[1].as<Scalar>());
  return call_op(OpId::elu, {args[0], args[1], Scalar(1.0), inverse});
}
Results decompose_leaky_relu(const Args& args) {
  Tensor x = args[0].tensor();
  return {where(gt(x, Scalar(0.0)), x, mul(x, args[1]))};
}
Results decompose_hardtanh(const Args& args) {
  if (scalar_ask(SymCmp::kLt, args[2].as<Scalar>(), args[1].as<Scalar>())) {
    fail("hardtanh: min_val ", to_string(args[1].as<Scalar>()), " is greater than max_val ",
         to_string(args[2].as<Scalar>()));
  }
  const DType type = args[0].tensor()->dtype;
  const bool is_unsigned = is_int(type) && info(type).least >= -info(type).most;
  if (is_unsigned && scalar_ask(SymCmp::kLt, args[1].as<Scalar>(), Scalar(0.0))) {
    fail("hardtanh: min_val must not be negative for ", name(type), ", got ", to_string(args[1].as<Scalar>()));
  }
  return {to_dtype(op1(OpId::clamp, {args[0], args[1], args[2]}), type)};
}
Results decompose_relu6(const Args& args) { return call_op(OpId::hardtanh, {args[0], Scalar(0.0), Scalar(6.0)}); }
Results decompose_hardswish(const Args& args) {
  return in_floats(args[0], [](Tensor x) { return x * clamp(x + 3.0, Scalar(0.0), Scalar(6.0)) / 6.0; });
}
Results decompose_hardsigmoid(const Args& args) {
  return in_floats(args[0], [](Tensor x) { return clamp(x + 3.0, Scalar(0.0), Scalar(6.0)) / 6.0; });
}
// Not computed in float32, because lambd has x's dtype.
Results decompose_hardshrink(const Args& args) {
  Tensor x = args[0].tensor(), inside = logical_and(ge(x, negative(args[1])), le(x, args[1]));
  return {where(inside, Scalar(0.0), x)};
}
Results decompose_softshrink(const Args& args) {
  return in_floats(args[0], [&](Tensor x) {
    Tensor r = where(gt(x, args[1]), sub(x, args[1]), where(lt(x, negative(args[1])), add(x, args[1]), Scalar(0.0)));
    return where(isnan(x), x, r);
  });
}
Results decompose_tanhshrink(const Args& args) {
  Tensor x = args[0].tensor();
  return {x - tanh(x)};
}
Results decompose_softsign(const Args& args) {
  Tensor x = args[0].tensor();
  return {x / (abs(x) + 1.0)};
}
Results decompose_softplus(const Args& args) {
  return in_floats(args[0], [&](Tensor x) {
    Tensor z = mul(x, args[1]);
    return where(gt(z, args[2]), x, div(log1p(exp(z)), args[1]));
  });
}
Results decompose_logsigmoid(const Args& args) {
  return in_floats(args[0], [](Tensor x) { return minimum(x, constant_like(0, x)) - log1p(exp(neg(abs(x)))); });
}
Results decompose_threshold(const Args& args) {
  Tensor x = args[0].tensor();
  return {to_dtype(where(le(wide(x), args[1]), args[2], x), x->dtype)};
}
// The weights belong to channels, dim 1.
Results decompose_prelu(const Args& args) {
  Tensor x = args[0].tensor(), w = args[1].tensor();
  Sizes shape;
  if (w->sizes.size() == 1 && !x->sizes.empty()) {
    shape = Sizes(x->sizes.size(), SymInt(1));
    if (x->sizes.size() >= 2) shape[1] = w->sizes[0];
  }
  return {where(gt(x, Scalar(0.0)), x, reshape(w, shape) * x)};
}
Results decompose_glu(const Args& args) {
  Tensor x = args[0].tensor();
  int64_t d = wrap_dim(OpId::glu, args[1].sym_int().guard(), x->sizes.size());
  Scalar half = Scalar::of_sym(floor_div(x->sizes[size_t(d)], 2));
  Tensor a = op1(OpId::slice, {x, int_arg(d), int_arg(0), half}), b = op1(OpId::slice, {x, int_arg(d), half});
  return {to_dtype(wide(a) * sigmoid(wide(b)), x->dtype)};
}
// (input, scale, zero_point, quant_min, quant_max). The gradient passes where the rounded value is within the bounds.
Results decompose_fake_quantize_per_tensor_affine(const Args& args) {
  const Tensor x = args[0].tensor();
  const int64_t low = args[3].sym_int().guard(), high = args[4].sym_int().guard();
  if (!is_float(x->dtype)) {
    fail("fake_quantize_per_tensor_affine: expected a floating point input, got ", name(x->dtype));
  }
  if (low > high) fail("fake_quantize_per_tensor_affine: quant_min ", low, " is larger than quant_max ", high);
  const bool outside = args[2].is<Scalar>() && !(args[2].as<Scalar>().to_double() >= double(low) &&
                                                 args[2].as<Scalar>().to_double() <= double(high));
  if (outside) fail("fake_quantize_per_tensor_affine: zero_point must lie between quant_min and quant_max");
  const Tensor plain = op1(OpId::detach, {x});
  const Value inverse = args[1].is<Tensor>()
                            ? Value(div(Scalar(1.0), args[1]))
                            : Value(Scalar(double(1.0f / float(pin(args[1].as<Scalar>()).to_double()))));
  const Tensor steps = add(op1(OpId::round, {mul(wide(plain), inverse)}), args[2]);
  const Tensor kept = clamp(steps, int_arg(low), int_arg(high));
  const Tensor inside = logical_and(ge(steps, int_arg(low)), le(steps, int_arg(high)));
  const Tensor rounded = to_dtype(mul(sub(kept, args[2]), args[1]), x->dtype);
  return {add(rounded, where(inside, sub(x, plain), Scalar(0.0)))};
}
Results decompose_softmin(const Args& args) { return call_op(OpId::softmax, {neg(args[0]), args[1], args[2]}); }

}  // namespace lutra
