// Decomposes dropout and draws from distributions into uniform and normal numbers. The numbers of element i of call c
// depend on (seed, c, i) alone.
#include <cmath>

#include "ops/decompose/emit.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

bool equals(const Scalar& s, double v) { return scalar_ask(SymCmp::kEq, s, Scalar(v)); }

Scalar times(const Scalar& a, const Scalar& b) { return scalar_binary(SymOp::kNMul, a, b); }
Scalar plus(const Scalar& a, const Scalar& b) { return scalar_binary(SymOp::kNAdd, a, b); }

bool is_finite(const Scalar& s) {
  return scalar_ask(SymCmp::kLt, -HUGE_VAL, s) && scalar_ask(SymCmp::kLt, s, HUGE_VAL);
}

void check_rate(OpId op, const Scalar& p) {
  // These questions make a NaN fail the guards, too.
  if (!scalar_ask(SymCmp::kLe, Scalar(0.0), p) || !scalar_ask(SymCmp::kLe, p, Scalar(1.0))) {
    fail(name(op), ": p must be between 0 and 1, got ", to_string(p));
  }
}

Tensor uniform(const Sizes& sizes, const Tensor& like) {
  DType type = at_least_float32(like->dtype);
  return op1(OpId::rand, {sizes, type, like->device()});
}

// Returns 1 / (1 - p) where an element is kept, 0 where it is dropped.
Tensor noise(const Tensor& x, const Sizes& sizes, const Scalar& p) {
  Tensor kept = to_dtype(ge(uniform(sizes, x), p), x->dtype);
  return mul(kept, scalar_binary(SymOp::kNDiv, Scalar(1.0), scalar_binary(SymOp::kNSub, Scalar(1.0), p)));
}

Results drop(OpId op, const Args& args, const Sizes& sizes) {
  Tensor x = args[0].tensor();
  const Scalar& p = args[1].as<Scalar>();
  check_rate(op, p);
  const bool inplace = args[3].as<bool>();
  if (!args[2].as<bool>() || equals(p, 0)) return {x};
  if (!is_float(x->dtype) && !equals(p, 1)) fail(name(op), ": expected a floating point input, got ", name(x->dtype));
  Value by = equals(p, 1) ? Value(Scalar(0.0)) : Value(noise(x, sizes, p));
  if (inplace) return {call_inplace(OpId::mul, {x, by})};
  return {mul(x, by)};
}

// Sizes of noise for whole channels: (batch, channel), then ones. `rank` is that of a batch. An input of rank - 1 is a
// single sample.
Sizes channels(OpId op, const Tensor& x, int64_t rank) {
  if (x->dim() != rank && x->dim() != rank - 1) {
    fail(name(op), ": expected an input of ", rank - 1, " or ", rank, " dimensions, got shape ", to_string(x->sizes));
  }
  Sizes sizes = x->sizes;
  for (size_t d = x->dim() == rank ? 2 : 1; d < sizes.size(); d++) sizes[d] = 1;
  return sizes;
}

// Sizes of noise for the first two dimensions. The others are ones.
Sizes features(OpId op, const Args& args) {
  const Tensor x = args[0].tensor();
  const bool draws = args[2].as<bool>() && !equals(args[1].as<Scalar>(), 0) && !equals(args[1].as<Scalar>(), 1);
  if (x->dim() < 2 && draws && x->numel() != 0) {
    fail(name(op), ": expected an input of 2 dimensions or more, got shape ", to_string(x->sizes));
  }
  Sizes sizes = x->sizes;
  for (size_t d = 2; d < sizes.size(); d++) sizes[d] = 1;
  return sizes;
}

}  // namespace

// (input, p, training, inplace)
Results decompose_dropout(const Args& args) { return drop(OpId::dropout, args, args[0].tensor()->sizes); }
Results decompose_dropout1d(const Args& args) {
  return drop(OpId::dropout1d, args, channels(OpId::dropout1d, args[0].tensor(), 3));
}
Results decompose_dropout2d(const Args& args) { return drop(OpId::dropout2d, args, features(OpId::dropout2d, args)); }
Results decompose_dropout3d(const Args& args) {
  return drop(OpId::dropout3d, args, channels(OpId::dropout3d, args[0].tensor(), 5));
}

// Dropped elements get SELU's least value. Mean and variance are kept.
namespace {

Results alpha_drop(OpId op, const Args& args, const Sizes& sizes) {
  constexpr double kAlpha = 1.7580993408473766;
  Tensor x = args[0].tensor();
  const Scalar rate = as_number(args[1].as<Scalar>());
  check_rate(op, rate);
  const bool inplace = args[3].as<bool>();
  if (!args[2].as<bool>() || equals(rate, 0)) return {x};
  if (equals(rate, 1)) {
    const Tensor zero = full({}, 0.0, x->dtype, x->device());
    return {inplace ? call_inplace(OpId::mul, {x, zero}) : mul(x, zero)};
  }
  if (!is_float(x->dtype)) fail(name(op), ": expected a floating point input, got ", name(x->dtype));
  const Scalar one = 1.0, alpha = kAlpha;
  const Scalar grown = plus(times(kAlpha * kAlpha, rate), one), rest = scalar_binary(SymOp::kNSub, one, rate);
  const Scalar a = scalar_binary(SymOp::kNDiv, one, scalar_binary(SymOp::kNSqrt, times(grown, rest), {}));
  Tensor kept = to_dtype(ge(uniform(sizes, x), args[1]), x->dtype);
  Tensor shift = add(mul(sub(kept, one), times(alpha, a)), times(times(alpha, a), rate));
  Tensor scale = mul(kept, a);
  if (inplace) return {call_inplace(OpId::add, {call_inplace(OpId::mul, {x, scale}), shift})};
  return {add(mul(x, scale), shift)};
}

}  // namespace

Results decompose_alpha_dropout(const Args& args) {
  return alpha_drop(OpId::alpha_dropout, args, args[0].tensor()->sizes);
}
Results decompose_feature_alpha_dropout(const Args& args) {
  return alpha_drop(OpId::feature_alpha_dropout, args, features(OpId::feature_alpha_dropout, args));
}

// (input, lower, upper, training)
Results decompose_rrelu(const Args& args) {
  const Tensor x = args[0].tensor();
  const Scalar low = as_number(args[1].as<Scalar>()), high = as_number(args[2].as<Scalar>());
  if (!is_finite(low) || !is_finite(high)) {
    fail("rrelu: lower and upper must be finite, got ", to_string(low), ", ", to_string(high));
  }
  if (!scalar_ask(SymCmp::kLe, low, high)) {
    fail("rrelu: lower must not be above upper, got ", to_string(low), " and ", to_string(high));
  }
  if (!is_float(x->dtype)) fail("rrelu: expected a floating point input, got ", name(x->dtype));
  if (!args[3].as<bool>()) return {op1(OpId::leaky_relu, {x, scalar_binary(SymOp::kNDiv, plus(low, high), 2.0)})};
  const Scalar width = scalar_binary(SymOp::kNSub, high, low);
  const Tensor slope = to_dtype(add(mul(uniform(x->sizes, x), width), low), x->dtype);
  return {where(le(x, Scalar(0.0)), mul(x, slope), x)};
}

// softmax((logits + Gumbel noise) / tau). hard: one-hot at the largest element, with the gradient of the soft result.
Results decompose_gumbel_softmax(const Args& args) {
  const Tensor logits = args[0].tensor();
  if (!is_float(logits->dtype)) fail("gumbel_softmax: expected floating point logits, got ", name(logits->dtype));
  const Tensor exponential = neg(log(sub(Scalar(1.0), uniform(logits->sizes, logits))));
  const Tensor noise = to_dtype(neg(log(op1(OpId::clamp, {exponential, Scalar(0x1p-100), Value()}))), logits->dtype);
  const Tensor soft = op1(OpId::softmax, {div(add(logits, noise), args[1]), args[4]});
  if (!args[2].as<bool>()) return {soft};
  const Tensor largest = op1(OpId::argmax, {soft, args[4], true});
  const Tensor ones = full(largest->sizes, 1.0, soft->dtype, soft->device());
  const Tensor hard = scatter_add(zeros_like(soft), args[4], largest, ones);
  return {add(sub(hard, op1(OpId::detach, {soft})), soft)};
}

// Draws 1 with the probability given by the element, or by p.
Results decompose_bernoulli(const Args& args) {
  Tensor x = op1(OpId::detach, {args[0]});
  if (args[1].is_none()) {
    if (!is_float(x->dtype)) fail("bernoulli: expected a floating point input, got ", name(x->dtype));
    Tensor p = checked(x, "unit", "probabilities must be between 0 and 1");
    return {to_dtype(lt(uniform(x->sizes, x), p), x->dtype)};
  }
  check_rate(OpId::bernoulli, args[1].as<Scalar>());
  return {to_dtype(lt(uniform(x->sizes, x), args[1]), x->dtype)};
}

// -- multinomial
namespace {

const char kNoWeight[] = "the probabilities of a row must not sum to zero";

// Draws `samples` places from each row, with replacement: the places where the running sum passes a uniform number.
Tensor with_replacement(const Tensor& p, const Scalar& samples) {
  Tensor sums = op1(OpId::cumsum, {p, int_arg(-1)});
  SymInt n = p->sizes.back(), count = Value(samples).sym_int();
  Tensor total = op1(OpId::slice, {sums, int_arg(-1), Scalar::of_sym(n - 1), Scalar::of_sym(n), int_arg(1)});
  total = checked(total, "positive", kNoWeight);
  Sizes sizes(p->sizes.begin(), p->sizes.end() - 1);
  sizes.push_back(count);
  Tensor u = mul(uniform(sizes, p), total);
  u = where(ge(u, total), Scalar(0.0), u);  // u may have been rounded up to the total
  Tensor place = op1(OpId::searchsorted, {sums, u, false, true, Value(), Value()});
  return op1(OpId::clamp, {place, Value(), Scalar::of_sym(n - 1)});  // a row without weight has no right answer
}

// Returns the places of the largest p / exponential of each row.
Tensor without_replacement(const Tensor& p, const Scalar& samples) {
  checked(op1(OpId::amax, {p, Sizes{-1}}), "positive", kNoWeight);
  Tensor q = neg(log(sub(Scalar(1.0), uniform(p->sizes, p))));
  q = op1(OpId::clamp, {q, Scalar(0x1p-100), Value()});  // a uniform 0 gives q = 0, and p / 0 would always win
  return call_op(OpId::topk, {div(p, q), samples, int_arg(-1)})[1];
}

}  // namespace

Results decompose_multinomial(const Args& args) {
  Tensor p = op1(OpId::detach, {args[0]});
  const SymInt samples = args[1].sym_int();
  if (p->dim() != 1 && p->dim() != 2) {
    fail("multinomial: expected probabilities of 1 or 2 dimensions, got shape ", to_string(p->sizes));
  }
  if (!is_float(p->dtype)) fail("multinomial: expected a floating point dtype, got ", name(p->dtype));
  if (samples <= 0) fail("multinomial: num_samples must be positive, got ", samples.hint);
  if (p->sizes.back() == 0) fail("multinomial: no categories in shape ", to_string(p->sizes));
  if (p->dtype != DType::kFloat64) p = to_dtype(p, DType::kFloat32);
  p = checked(p, "weight", "probabilities must be finite and not negative");
  if (args[2].as<bool>()) return {with_replacement(p, args[1].as<Scalar>())};
  if (samples > p->sizes.back()) {
    fail("multinomial: cannot draw ", samples.hint, " of ", p->sizes.back().hint, " without replacement");
  }
  return {without_replacement(p, args[1].as<Scalar>())};
}

}  // namespace lutra
