// Meta rules of elementwise functions, activations and the losses made of them.
#include "ops/core/closest.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

[[noreturn]] void undefined(OpId op, DType type) { fail(name(op), ": not defined for ", name(type), " tensors"); }

void need_float(OpId op, const Value& v) {
  if (v.is<Tensor>() && !is_float(v.as<Tensor>()->dtype)) undefined(op, v.as<Tensor>()->dtype);
}

}  // namespace

ResultSpecs meta_decomposed(OpId op, const Args& args);  // decomposed.cc

// -- one tensor

ResultSpecs meta_unary_real(OpId op, const Args& args) {
  need_float(op, args[0]);
  return {like_spec(args[0].tensor(), args[0].tensor()->dtype)};
}
ResultSpecs meta_frexp_exponent(OpId, const Args& args) { return {like_spec(args[0].tensor(), DType::kInt32)}; }
ResultSpecs meta_frexp(OpId op, const Args& args) {
  need_float(op, args[0]);
  const Tensor& t = args[0].as<Tensor>();
  return {like_spec(t, t->dtype), like_spec(t, DType::kInt32)};
}
ResultSpecs meta_activation(OpId op, const Args& args) {
  if (op == OpId::gelu) {
    const std::string& form = args[1].as<std::string>();
    const KnownNames forms = {"none", "tanh"};
    if (!forms.have(form)) fail("gelu: approximate '", form, "' is unknown", forms.expected(form));
  }
  if (op == OpId::softshrink && scalar_ask(SymCmp::kLt, args[1].as<Scalar>(), Scalar(0.0))) {
    fail("softshrink: lambd must be at least 0, got ", to_string(args[1].as<Scalar>()));
  }
  if (op == OpId::celu && scalar_ask(SymCmp::kEq, args[1].as<Scalar>(), Scalar(0.0))) {
    fail("celu: alpha must not be zero");
  }
  return meta_unary_real(op, args);
}
ResultSpecs meta_activation_backward(OpId op, const Args& args) {
  return {pointwise_spec(op, args, {0, 1}, args[1].tensor()->dtype)};
}
ResultSpecs meta_unary_any(OpId, const Args& args) { return {like_spec(args[0].tensor(), args[0].tensor()->dtype)}; }
ResultSpecs meta_threshold(OpId op, const Args& args) {
  if (is_bool(args[0].tensor()->dtype)) undefined(op, DType::kBool);
  return meta_unary_any(op, args);
}
ResultSpecs meta_round(OpId op, const Args& args) {
  DType type = args[0].tensor()->dtype;
  bool digits = args[1].as<Scalar>().to_int() != 0;
  if (is_bool(type) || (digits && !is_float(type))) undefined(op, type);
  return {like_spec(args[0].tensor(), type)};
}
// Returns the spec of the tensor itself.
ResultSpecs meta_positive(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  if (is_bool(t->dtype)) undefined(op, t->dtype);
  ResultSpec spec = like_spec(t, t->dtype);
  spec.strides = t->strides;
  return {spec};
}
ResultSpecs meta_bitwise_not(OpId op, const Args& args) {
  if (is_float(args[0].tensor()->dtype)) undefined(op, args[0].tensor()->dtype);
  return {like_spec(args[0].tensor(), args[0].tensor()->dtype)};
}
ResultSpecs meta_glu(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  need_float(op, args[0]);
  if (t->sizes.empty()) fail("glu: expected an input of 1 dimension or more, got a number");
  int64_t d = wrap_dim(op, args[1].sym_int().guard(), t->sizes.size());
  if (floor_mod(t->sizes[size_t(d)], 2) != 0) {
    fail("glu: the size of dim ", d, " must be even, got ", t->sizes[size_t(d)].hint);
  }
  return meta_decomposed(op, args);
}
ResultSpecs meta_prelu(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &w = args[1].as<Tensor>();
  need_float(op, args[0]);
  if (t->dtype != w->dtype) fail("prelu: expected weight of dtype ", name(t->dtype), ", got ", name(w->dtype));
  if (w->sizes.size() > 1) fail("prelu: weight must have at most 1 dimension, got shape ", to_string(w->sizes));
  if (w->numel() != 1) {
    SymInt channels = t->sizes.size() >= 2 ? t->sizes[1] : SymInt(1);
    if (w->numel() != channels) {
      fail("prelu: weight must have 1 or ", channels.hint, " elements (one a channel), got ", w->numel().hint);
    }
  }
  return {like_spec(t, t->dtype)};
}

// -- two tensors

ResultSpecs meta_div(OpId op, const Args& args) {
  DType type = result_type(args, {0, 1});
  if (args[2].is_none()) return {pointwise_spec(op, args, {0, 1}, to_float(type))};
  const std::string& mode = args[2].as<std::string>();
  if (mode != "trunc" && mode != "floor") {
    fail("div: rounding_mode '", mode, "' is unknown (expected nil, 'trunc' or 'floor')",
         KnownNames{"trunc", "floor"}.question(mode));
  }
  if (is_bool(type)) fail("div: not defined for bool tensors with a rounding_mode");
  return {pointwise_spec(op, args, {0, 1}, type)};
}
ResultSpecs meta_binary_real(OpId op, const Args& args) {
  DType type = result_type(args, {0, 1});
  if (!is_float(type)) undefined(op, type);
  return {pointwise_spec(op, args, {0, 1}, type)};
}
ResultSpecs meta_polygamma(OpId, const Args& args) {
  const SymInt n = args[1].sym_int();
  if (n < 0) fail("polygamma: n must not be negative, got ", n.hint);
  return {like_spec(args[0].tensor(), to_float(args[0].tensor()->dtype))};
}
ResultSpecs meta_incomplete_gamma(OpId, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &x = args[1].as<Tensor>();
  if (!same_sizes(t->sizes, x->sizes) || t->dtype != x->dtype) {
    fail("incomplete_gamma: a is ", describe(t), ", but x is ", describe(x));
  }
  return {contiguous_spec(t->sizes, t->dtype)};
}
ResultSpecs meta_bitwise(OpId op, const Args& args) {
  DType type = result_type(args, {0, 1});
  if (is_float(type)) undefined(op, type);
  return {pointwise_spec(op, args, {0, 1}, type)};
}
ResultSpecs meta_shift(OpId op, const Args& args) {
  DType type = result_type(args, {0, 1});
  if (is_float(type) || is_bool(type)) undefined(op, type);
  return {pointwise_spec(op, args, {0, 1}, type)};
}
ResultSpecs meta_isclose(OpId op, const Args& args) {
  const Tensor &a = args[0].as<Tensor>(), &b = args[1].as<Tensor>();
  if (a->dtype != b->dtype) fail("isclose: dtypes ", name(a->dtype), " and ", name(b->dtype), " differ");
  for (size_t i : {2, 3}) {
    if (scalar_ask(SymCmp::kLt, args[i].as<Scalar>(), Scalar(0.0))) {
      fail("isclose: ", info(op).args[i].name, " must be at least 0, got ", to_string(args[i].as<Scalar>()));
    }
  }
  return {pointwise_spec(op, args, {0, 1}, DType::kBool)};
}
ResultSpecs meta_clamp_one(OpId op, const Args& args) {
  DType type = result_type(args, {0, 1});
  if (is_bool(type) && !args[1].is<Tensor>()) undefined(op, type);
  return {pointwise_spec(op, args, {0, 1}, type)};
}
ResultSpecs meta_float_power(OpId op, const Args& args) { return {pointwise_spec(op, args, {0, 1}, DType::kFloat64)}; }
ResultSpecs meta_heaviside(OpId op, const Args& args) {
  const Tensor &a = args[0].as<Tensor>(), &b = args[1].as<Tensor>();
  if (a->dtype != b->dtype) fail("heaviside: dtypes ", name(a->dtype), " and ", name(b->dtype), " differ");
  return {pointwise_spec(op, args, {0, 1}, a->dtype)};
}

}  // namespace lutra
