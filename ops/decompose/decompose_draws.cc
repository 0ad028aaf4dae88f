// Decomposes draws from distributions into uniform and normal numbers: the in-place ops, and normal, whose mean and std
// are tensors or numbers. A draw has no gradient.
#include <cmath>
#include <limits>

#include "ops/decompose/emit.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

Scalar number(const Value& v) { return as_number(v.as<Scalar>()); }

bool less(const Scalar& a, const Scalar& b) { return scalar_ask(SymCmp::kLt, a, b); }

bool at_most(const Scalar& a, const Scalar& b) { return scalar_ask(SymCmp::kLe, a, b); }

// Draws numbers of t's sizes, in float64 or float32.
Tensor draw(OpId op, const Tensor& t) { return op1(op, {t->sizes, at_least_float32(t->dtype), t->device()}); }

// Draws numbers of t's sizes, in t's dtype if that is floating, else in float32.
Tensor draw_scaled(OpId op, const Tensor& t, const Value& scale, const Value& shift) {
  GradModeScope off(false);
  return op1(op, {t->sizes, is_float(t->dtype) ? t->dtype : DType::kFloat32, t->device(), scale, shift});
}

Results fill(const Tensor& t, const Value& values) { return {call_inplace(OpId::copy_, {t, values})}; }

void check_float(const char* fn, const Tensor& t) {
  if (!is_float(t->dtype)) fail(fn, ": expected a floating point dtype, got ", name(t->dtype));
}

// Returns -log(1 - u) for uniform u: an exponential of rate 1.
Tensor exponential(const Tensor& t) { return neg(log(sub(vnum(1), draw(OpId::rand, t)))); }

// Returns the exclusive upper bound of the whole numbers that the dtype holds exactly.
int64_t most(DType dtype) {
  switch (dtype) {
    case DType::kBool: return 2;
    case DType::kFloat16: return (1 << 11) + 1;
    case DType::kBFloat16: return (1 << 8) + 1;
    case DType::kFloat32: return (1 << 24) + 1;
    case DType::kFloat64: return (int64_t(1) << 53) + 1;
    case DType::kInt64: return INT64_MAX;
    default: return greatest_integer(dtype) + 1;
  }
}

Results scaled_normal(const Tensor& like, const Value& mean, const Value& std) {
  check_float("normal", like);
  if (std.is<Scalar>() && !at_most(0.0, number(std)))
    fail("normal: std must not be negative, got ", to_string(std.as<Scalar>()));
  GradModeScope off(false);
  const Value scale = std.is<Scalar>() ? std : checked(std.tensor(), "nonnegative", "normal: std must not be negative");
  return {op1(OpId::to_dtype, {op1(OpId::add, {op1(OpId::mul, {draw(OpId::randn, like), scale}), mean}), like->dtype})};
}

}  // namespace

// All in-place ops take (input, ...) and return input.
Results decompose_uniform_(const Args& a) {
  const Tensor t = a[0].tensor();
  const Scalar from = number(a[1]), to = number(a[2]), width = scalar_binary(SymOp::kNSub, to, from);
  if (!at_most(from, to)) fail("uniform_: the range from ", to_string(from), " to ", to_string(to), " is empty");
  if (!less(width, HUGE_VAL)) {
    fail("uniform_: the range from ", to_string(from), " to ", to_string(to), " is not finite");
  }
  return fill(t, draw_scaled(OpId::rand_scaled, t, width, from));
}

Results decompose_normal_(const Args& a) {
  const Tensor t = a[0].tensor();
  const Scalar std = number(a[2]);
  if (less(std, 0.0)) fail("normal_: std must not be negative, got ", to_string(std));
  return fill(t, draw_scaled(OpId::randn_scaled, t, std, a[1]));
}

Results decompose_exponential_(const Args& a) {
  const Tensor t = a[0].tensor();
  check_float("exponential_", t);
  const Scalar rate = number(a[1]);
  if (!less(0.0, rate)) fail("exponential_: lambd must be positive, got ", to_string(rate));
  GradModeScope off(false);
  return fill(t, op1(OpId::div, {exponential(t), rate}));
}

// Returns -log(1 - p). The quotient makes up for the rounding of 1 - p.
Scalar log_of_rest(const Scalar& p) {
  const Scalar rest = scalar_binary(SymOp::kNSub, 1.0, p), taken = scalar_binary(SymOp::kNSub, 1.0, rest);
  if (scalar_equals(taken, 0)) return p;
  const Scalar log = scalar_binary(SymOp::kNLog, rest, {});
  return scalar_binary(SymOp::kNDiv, scalar_binary(SymOp::kNMul, scalar_binary(SymOp::kNSub, 0.0, log), p), taken);
}

// Draws the number of tries until an event of probability p happens.
Results decompose_geometric_(const Args& a) {
  const Tensor t = a[0].tensor();
  const Scalar p = number(a[1]);
  if (!less(0.0, p) || !less(p, 1.0)) fail("geometric_: p must be between 0 and 1, got ", to_string(p));
  GradModeScope off(false);
  const Tensor tries = op1(OpId::ceil, {op1(OpId::div, {exponential(t), log_of_rest(p)})});
  return fill(t, op1(OpId::clamp, {tries, vnum(1), Value()}));
}

Results decompose_log_normal_(const Args& a) {
  const Tensor t = a[0].tensor();
  check_float("log_normal_", t);
  const Scalar std = number(a[2]);
  if (!less(0.0, std)) fail("log_normal_: std must be positive, got ", to_string(std));
  GradModeScope off(false);
  const Tensor normal = op1(OpId::add, {op1(OpId::mul, {draw(OpId::randn, t), std}), a[1]});
  return fill(t, op1(OpId::exp, {normal}));
}

// Draws median + sigma * tan(pi (u - 1/2)) for uniform u.
Results decompose_cauchy_(const Args& a) {
  const Tensor t = a[0].tensor();
  check_float("cauchy_", t);
  const Scalar sigma = number(a[2]);
  if (!less(0.0, sigma)) fail("cauchy_: sigma must be positive, got ", to_string(sigma));
  GradModeScope off(false);
  const Tensor turn = mul(sub(draw(OpId::rand, t), vnum(0.5)), vnum(M_PI));
  return fill(t, add(mul(op1(OpId::tan, {turn}), sigma), a[1]));
}

Results decompose_bernoulli_(const Args& a) {
  const Tensor t = a[0].tensor();
  GradModeScope off(false);
  if (!a[1].is<Tensor>()) return fill(t, op1(OpId::bernoulli, {t, a[1]}));
  const Tensor p = a[1].tensor();
  check_float("bernoulli_", p);
  return fill(
      t, op1(OpId::lt, {draw(OpId::rand, t), checked(p, "unit", "bernoulli_: probabilities must be between 0 and 1")}));
}

// (input, from, to). Without `to`, draws whole numbers up to the largest that the dtype holds exactly.
Results decompose_random_(const Args& a) {
  const Tensor t = a[0].tensor();
  const SymInt from = a[1].is_none() ? SymInt(0) : a[1].sym_int();
  const SymInt to = a[2].is_none() ? SymInt(most(t->dtype)) : a[2].sym_int();
  const auto fits = [&] { return SymInt(least_integer(t->dtype)) <= from && to <= SymInt(most(t->dtype)); };
  if (!a[2].is_none() && !is_float(t->dtype) && !fits()) {
    fail("random_: the range from ", from.hint, " to ", to.hint - 1, " does not fit ", name(t->dtype));
  }
  if (from >= to) fail("random_: expected from < to, got ", from.hint, " and ", to.hint);
  GradModeScope off(false);
  return fill(t, op1(OpId::randint, {vint(from), vint(to), t->sizes, DType::kInt64, t->device()}));
}

// (mean, std)
Results decompose_normal(const Args& a) {
  GradModeScope off(false);
  if (!a[0].is<Tensor>() && !a[1].is<Tensor>()) fail("normal: mean or std must be a Tensor, else size is needed");
  if (!a[0].is<Tensor>()) return scaled_normal(a[1].tensor(), a[0], a[1]);
  if (!a[1].is<Tensor>()) return scaled_normal(a[0].tensor(), a[0], a[1]);
  const Tensor like = add(a[0], mul(a[1], vnum(0)));
  return scaled_normal(to_dtype(like, a[0].tensor()->dtype), a[0], a[1]);
}

// (mean, std, size, dtype, device)
Results decompose_normal_size(const Args& a) {
  const Value dtype = a[3].is_none() ? Value(DType::kFloat32) : a[3];
  return scaled_normal(op1(OpId::empty, {a[2], dtype, a[4]}), a[0], a[1]);
}

}  // namespace lutra
