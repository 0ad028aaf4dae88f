// Decomposes losses and distances. It checks shapes that broadcasting would accept, because the meta rule of most of
// these ops is the decomposition itself.
#include <cmath>

#include "ops/core/closest.h"
#include "ops/decompose/formula.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

const std::string& text(const Value& v) { return v.as<std::string>(); }

void check_reduction(OpId op, const std::string& reduction) {
  if (reduction == "none" || reduction == "mean" || reduction == "sum") return;
  fail(name(op), ": reduction '", reduction, "' is unknown", KnownNames{"none", "mean", "sum"}.expected(reduction));
}
void check_float(OpId op, const Tensor& t, const char* argument) {
  if (!is_float(t->dtype)) fail(name(op), ": '", argument, "' must be a float tensor, got ", name(t->dtype));
}
void check_same_shape(OpId op, const Tensor& a, const Tensor& b) {
  if (same_sizes(a->sizes, b->sizes)) return;
  fail(name(op), ": expected input and target of one shape, got ", to_string(a->sizes), " and ", to_string(b->sizes));
}
Tensor clamp_min(const Tensor& t, double low) { return clamp(t, Scalar(low), {}); }
// Returns x * log(x), which is 0 at 0 and NaN below.
Tensor x_log_x(const Tensor& x) { return op1(OpId::xlogy, {x, x}); }

}  // namespace

Tensor reduced(const Tensor& loss, const std::string& reduction) {
  if (reduction == "none") return loss;
  return reduction == "sum" ? sum_all(loss) : op1(OpId::mean, {loss});
}

Results decompose_l1_loss(const Args& args) {
  check_reduction(OpId::l1_loss, text(args[2]));
  return {reduced(abs(sub(args[0], args[1])), text(args[2]))};
}

Results decompose_smooth_l1_loss(const Args& args) {
  const Scalar& beta = args[3].as<Scalar>();
  if (scalar_ask(SymCmp::kLt, beta, Scalar(0.0))) fail("smooth_l1_loss: beta must be at least 0");
  Tensor z = abs(sub(args[0], args[1]));
  if (scalar_ask(SymCmp::kEq, beta, Scalar(0.0))) return {reduced(z, text(args[2]))};
  Scalar half = scalar_binary(SymOp::kNMul, beta, Scalar(0.5));
  return {reduced(where(lt(z, beta), div(z * z * 0.5, beta), sub(z, half)), text(args[2]))};
}

Results decompose_huber_loss(const Args& args) {
  const Scalar& delta = args[3].as<Scalar>();
  if (!scalar_ask(SymCmp::kLt, Scalar(0.0), delta)) fail("huber_loss: delta must be greater than 0");
  Tensor z = abs(sub(args[0], args[1]));
  Scalar half = scalar_binary(SymOp::kNMul, delta, Scalar(0.5));
  return {reduced(where(le(z, delta), z * z * 0.5, mul(sub(z, half), delta)), text(args[2]))};
}

Results decompose_soft_margin_loss(const Args& args) {
  const Tensor z = mul(neg(args[1]), args[0]);
  if (!same_sizes(z->sizes, args[0].tensor()->sizes)) {
    fail("soft_margin_loss: a target of shape ", to_string(args[1].tensor()->sizes), " does not fit an input of shape ",
         to_string(args[0].tensor()->sizes));
  }
  return {reduced(log1p(exp(z)), text(args[2]))};
}

Results decompose_kl_div(const Args& args) {
  Tensor input = args[0].tensor(), target = args[1].tensor();
  const std::string& reduction = text(args[2]);
  if (reduction != "batchmean") check_reduction(OpId::kl_div, reduction);
  check_float(OpId::kl_div, input, "input");
  Tensor loss = args[3].as<bool>() ? exp(target) * (target - input) : x_log_x(target) - target * input;
  if (reduction != "batchmean" || input->sizes.empty()) {
    return {reduced(loss, reduction == "batchmean" ? "sum" : reduction)};
  }
  return {div(sum_all(loss), Scalar::of_sym(input->sizes[0]))};
}

// Logarithms are no lower than -100, as in PyTorch.
Results decompose_binary_cross_entropy_each(const Args& args) {
  Tensor x = args[0].tensor(), target = args[1].tensor();
  Tensor loss = (target - 1.0) * clamp_min(log1p(neg(x)), -100) - target * clamp_min(log(x), -100);
  return {conform(OpId::binary_cross_entropy_each, args, loss)};
}

Results decompose_binary_cross_entropy(const Args& args) {
  Tensor x = args[0].tensor(), target = args[1].tensor();
  check_reduction(OpId::binary_cross_entropy, text(args[3]));
  check_float(OpId::binary_cross_entropy, x, "input");
  check_same_shape(OpId::binary_cross_entropy, x, target);
  for (const Tensor& other : {target, args[2].tensor()}) {
    if (other && other->dtype != x->dtype) {
      fail("binary_cross_entropy: expected input, target and weight of one dtype, got ", name(x->dtype), " and ",
           name(other->dtype));
    }
  }
  x = op1(OpId::check_values, {x, std::string("unit"), std::string("the input must be between 0 and 1")});
  Tensor loss = op1(OpId::binary_cross_entropy_each, {x, target});
  if (!args[2].is_none()) loss = mul(loss, args[2]);
  return {reduced(loss, text(args[3]))};
}

// (1 - target) x + w (log(1 + e^-|x|) + max(-x, 0)), which has no large exponential.
Results decompose_binary_cross_entropy_with_logits(const Args& args) {
  Tensor x = args[0].tensor(), target = args[1].tensor();
  const OpId op = OpId::binary_cross_entropy_with_logits;
  check_reduction(op, text(args[3]));
  check_float(op, x, "input");
  check_float(op, target, "target");
  check_same_shape(op, x, target);
  Tensor log_sigmoid = op1(OpId::logsigmoid, {x});
  if (!args[4].is_none()) {
    Tensor weight = mul(sub(args[4], Scalar(1.0)), target) + 1.0;
    log_sigmoid = log_sigmoid * weight;
  }
  Tensor loss = (1.0 - target) * x - log_sigmoid;
  if (!args[2].is_none()) loss = mul(loss, args[2]);
  return {reduced(loss, text(args[3]))};
}

Results decompose_gaussian_nll_loss(const Args& args) {
  Tensor x = args[0].tensor(), target = args[1].tensor();
  check_reduction(OpId::gaussian_nll_loss, text(args[5]));
  const std::string negative = "gaussian_nll_loss: var must not be negative";
  if (args[2].is<Scalar>() && scalar_ask(SymCmp::kLt, args[2].as<Scalar>(), Scalar(0.0))) fail(negative);
  Tensor var =
      args[2].is<Tensor>() ? args[2].as<Tensor>() : full(x->sizes, args[2].as<Scalar>(), x->dtype, x->device());
  if (!same_sizes(var->sizes, x->sizes)) {
    bool one_less = var->sizes.size() + 1 == x->sizes.size();
    for (size_t d = 0; one_less && d < var->sizes.size(); d++) one_less = var->sizes[d] == x->sizes[d];
    bool last_one = var->sizes.size() == x->sizes.size() && !x->sizes.empty() && var->sizes.back() == 1;
    for (size_t d = 0; last_one && d + 1 < x->sizes.size(); d++) last_one = var->sizes[d] == x->sizes[d];
    if (!one_less && !last_one) {
      fail("gaussian_nll_loss: var of shape ", to_string(var->sizes), " does not fit an input of shape ",
           to_string(x->sizes));
    }
    if (one_less) var = unsqueeze(var, int_arg(-1));
  }
  // Adds a constant instead of clamping, so that var keeps its gradient below eps.
  Tensor held;
  {
    GradModeScope off(false);
    const Tensor given = op1(OpId::detach, {var});
    held = sub(clamp(op1(OpId::check_values, {given, std::string("nonnegative"), negative}), args[4], {}), given);
  }
  var = var + held;
  Tensor d = x - target, loss = (log(var) + d * d / var) * 0.5;
  if (args[3].as<bool>()) loss = loss + 0.5 * std::log(2 * M_PI);
  return {reduced(loss, text(args[5]))};
}

Results decompose_poisson_nll_loss(const Args& args) {
  Tensor x = args[0].tensor(), target = args[1].tensor();
  check_reduction(OpId::poisson_nll_loss, text(args[5]));
  Tensor loss = args[2].as<bool>() ? exp(x) - target * x : x - target * log(add(x, args[4]));
  if (args[3].as<bool>()) {
    Tensor stirling = target * log(target) - target + log(target * (2 * M_PI)) * 0.5;
    loss = to_dtype(loss + where(le(target, Scalar(1.0)), Scalar(0.0), stirling), loss->dtype);
  }
  return {reduced(loss, text(args[5]))};
}

Results decompose_margin_ranking_loss(const Args& args) {
  check_reduction(OpId::margin_ranking_loss, text(args[4]));
  if (args[0].tensor()->sizes.size() != args[1].tensor()->sizes.size() ||
      args[0].tensor()->sizes.size() != args[2].tensor()->sizes.size()) {
    fail("margin_ranking_loss: expected three tensors of one number of dimensions, got shapes ",
         to_string(args[0].tensor()->sizes), ", ", to_string(args[1].tensor()->sizes), " and ",
         to_string(args[2].tensor()->sizes));
  }
  // The margin is a float, beside integers too.
  const Tensor apart = mul(neg(args[2]), sub(args[0], args[1]));
  Tensor t = add(is_float(apart->dtype) ? apart : to_dtype(apart, DType::kFloat32), args[3]);
  return {reduced(clamp_min(t, 0), text(args[4]))};
}

Results decompose_hinge_embedding_loss(const Args& args) {
  Tensor x = args[0].tensor(), target = args[1].tensor();
  check_reduction(OpId::hinge_embedding_loss, text(args[3]));
  Tensor margin = clamp_min(sub(args[2], x), 0);
  Tensor loss = where(ne(target, Scalar(1.0)), margin, Scalar(0.0)) + where(ne(target, Scalar(-1.0)), x, Scalar(0.0));
  return {reduced(loss, text(args[3]))};
}

Results decompose_cosine_embedding_loss(const Args& args) {
  Tensor a = args[0].tensor(), b = args[1].tensor(), target = args[2].tensor();
  check_reduction(OpId::cosine_embedding_loss, text(args[4]));
  const size_t n = target->sizes.size();
  if (n > 1 || a->sizes.size() != n + 1 || b->sizes.size() != n + 1) {
    fail("cosine_embedding_loss: expected a target of 1 dimension and inputs of 2, or 0 and 1, got shapes ",
         to_string(target->sizes), ", ", to_string(a->sizes), " and ", to_string(b->sizes));
  }
  const Sizes last = {SymInt(-1)};
  Tensor prod = sum(a * b, last, false), u = sum(a * a, last, false) + 1e-12, v = sum(b * b, last, false) + 1e-12;
  Tensor cosine = prod / sqrt(u * v);
  Tensor apart = clamp_min(sub(cosine, args[3]), 0);
  Tensor loss =
      where(eq(target, Scalar(1.0)), 1.0 - cosine, Scalar(0.0)) + where(eq(target, Scalar(-1.0)), apart, Scalar(0.0));
  return {reduced(loss, text(args[4]))};
}

Results decompose_triplet_margin_loss(const Args& args) {
  check_reduction(OpId::triplet_margin_loss, text(args[7]));
  const size_t n = args[0].tensor()->sizes.size();
  if (args[1].tensor()->sizes.size() != n || args[2].tensor()->sizes.size() != n) {
    fail("triplet_margin_loss: expected anchor, positive and negative of one number of dimensions, got shapes ",
         to_string(args[0].tensor()->sizes), ", ", to_string(args[1].tensor()->sizes), " and ",
         to_string(args[2].tensor()->sizes));
  }
  if (!scalar_ask(SymCmp::kLt, Scalar(0.0), args[3].as<Scalar>())) {
    fail("triplet_margin_loss: margin must be positive, got ", to_string(args[3].as<Scalar>()));
  }
  auto distance = [&](size_t a, size_t b) {
    return op1(OpId::pairwise_distance, {args[a], args[b], args[4], args[5]});
  };
  Tensor near = distance(0, 1), far = distance(0, 2);
  if (args[6].as<bool>()) far = minimum(far, distance(1, 2));
  return {reduced(clamp_min(sub(add(near, args[3]), far), 0), text(args[7]))};
}

// Sums, over the classes, how much each comes closer to the target's class than the margin allows.
Results decompose_multi_margin_loss(const Args& args) {
  Tensor x = args[0].tensor(), target = args[1].tensor();
  check_reduction(OpId::multi_margin_loss, text(args[5]));
  const double p = args[2].as<Scalar>().to_double();
  if (p != 1 && p != 2) fail("multi_margin_loss: p must be 1 or 2, got ", to_string(args[2].as<Scalar>()));
  if (target->dtype != DType::kInt64) {
    fail("multi_margin_loss: expected a target of class indices (int64), got ", name(target->dtype));
  }
  const bool single = x->sizes.size() < 2;
  if (single) x = reshape(x, Sizes{1, x->numel()}), target = reshape(target, Sizes{1});
  if (x->sizes.size() != 2 || target->sizes.size() != 1 || target->sizes[0] != x->sizes[0]) {
    fail("multi_margin_loss: a target of shape ", to_string(target->sizes), " does not fit an input of shape ",
         to_string(x->sizes));
  }
  Tensor index = unsqueeze(target, int_arg(1)), own = gather(x, int_arg(1), index);
  const Tensor beyond = add(x - own, args[3]);
  Tensor z = where(gt(beyond, Scalar(0.0)), beyond, Scalar(0.0));  // a NaN adds nothing
  if (p == 2) z = z * z;
  if (!args[4].is_none()) z = z * unsqueeze(index_select(args[4], int_arg(0), target), int_arg(1));
  Tensor classes = counting(x->sizes[1], x);
  z = where(eq(index, classes), Scalar(0.0), z);
  Tensor loss = div(sum(z, {SymInt(1)}, false), Scalar::of_sym(x->sizes[1]));
  return {reduced(single && text(args[5]) == "none" ? reshape(loss, {}) : loss, text(args[5]))};
}

namespace {
// Returns the lengths of a batch as int64, one for each element.
Tensor batch_lengths(const Tensor& t, const char* argument, SymInt batch) {
  if (!is_int(t->dtype)) fail("ctc_loss: ", argument, " must be integral, got ", name(t->dtype));
  const Tensor lengths = to_dtype(reshape(t, Sizes{numel(t->sizes)}), DType::kInt64);
  if (lengths->sizes[0] != batch) {
    fail("ctc_loss: ", argument, " must be of size batch_size, ", batch.hint, ", got shape ", to_string(t->sizes));
  }
  return lengths;
}
}  // namespace

Results decompose_ctc_loss(const Args& args) {
  Tensor log_probs = args[0].tensor(), targets = args[1].tensor();
  const std::string& reduction = text(args[5]);
  check_reduction(OpId::ctc_loss, reduction);
  if (!is_float(log_probs->dtype) || is_half(log_probs->dtype)) {
    fail("ctc_loss: log_probs must be float32 or float64, got ", name(log_probs->dtype));
  }
  const bool batched = log_probs->dim() == 3;
  if (!batched && log_probs->dim() != 2) {
    fail("ctc_loss: log_probs must have 2 or 3 dimensions, got shape ", to_string(log_probs->sizes));
  }
  if (!batched) log_probs = unsqueeze(log_probs, int_arg(1));
  const SymInt batch = log_probs->sizes[1];
  if (targets->dim() != 1 && !(targets->dim() == 2 && targets->sizes[0] == batch)) {
    fail("ctc_loss: targets of shape ", to_string(targets->sizes), " do not fit log_probs of shape ",
         to_string(args[0].tensor()->sizes));
  }
  const SymInt blank = args[4].sym_int();
  if (blank < 0 || blank >= log_probs->sizes[2]) {
    fail("ctc_loss: blank must be in label range, 0 to ", log_probs->sizes[2].hint - 1, ", got ", blank.hint);
  }
  const Tensor input_lengths = batch_lengths(args[2].tensor(), "input_lengths", batch);
  const Tensor target_lengths = batch_lengths(args[3].tensor(), "target_lengths", batch);
  Tensor loss = op1(OpId::ctc_nll,
                    {log_probs, to_dtype(targets, DType::kInt64), input_lengths, target_lengths, args[4], args[6]});
  if (args[6].as<bool>()) loss = where(eq(loss, Scalar(INFINITY)), Scalar(0.0), loss);
  if (reduction == "mean") loss = div(loss, to_dtype(clamp_min(target_lengths, 1), loss->dtype));
  if (reduction == "none" && !batched) return {reshape(loss, {})};
  return {reduced(loss, reduction)};
}

// -- distances

// Divides each vector by its own length, which is at least eps. The gradient is that of the length without this bound.
Results decompose_cosine_similarity(const Args& args) {
  Tensor a = args[0].tensor(), b = args[1].tensor();
  DType type = result_type(args, {0, 1});
  if (!is_float(type)) fail("cosine_similarity: expected float tensors, got ", name(type));
  a = to_dtype(a, type), b = to_dtype(b, type);
  Sizes sizes = broadcast(OpId::cosine_similarity, a->sizes, b->sizes);
  SymInt dim = wrap_dim(OpId::cosine_similarity, args[2].sym_int().guard(), sizes.size());
  auto fitted = [&](const Tensor& t) { return same_sizes(t->sizes, sizes) ? t : expand(t, sizes); };
  a = fitted(a), b = fitted(b);
  auto length = [&](const Tensor& t) {
    const Tensor n = sizes.empty() ? abs(t) : op1(OpId::norm_along, {t, Scalar::of_sym(dim), true});
    return where(lt(n, args[3]), add(sub(n, op1(OpId::detach, {n})), args[3]), n);
  };
  if (sizes.empty()) return {(a / length(a)) * (b / length(b))};
  return {sum((a / length(a)) * (b / length(b)), {dim}, false)};
}

namespace {
// Returns the p-norm along dim.
Tensor norm_along(const Tensor& t, const Scalar& p, SymInt dim, bool keepdim) {
  if (t->sizes.empty()) return abs(t);
  if (scalar_equals(p, 2)) return op1(OpId::norm_along, {t, Scalar::of_sym(dim), keepdim});
  if (scalar_equals(p, 1)) return sum(abs(t), {dim}, keepdim);
  if (scalar_equals(p, INFINITY)) return op1(OpId::amax, {abs(t), Sizes{dim}, keepdim});
  if (scalar_equals(p, -INFINITY)) return op1(OpId::amin, {abs(t), Sizes{dim}, keepdim});
  if (scalar_equals(p, 0)) return sum(to_dtype(ne(t, Scalar(0.0)), t->dtype), {dim}, keepdim);
  return pow(sum(pow(abs(t), p), {dim}, keepdim), scalar_binary(SymOp::kNDiv, Scalar(1.0), p));
}
}  // namespace

// Half types are rounded after each step. The norm is one step.
Results decompose_pairwise_distance(const Args& args) {
  const Tensor apart = sub(args[0], args[1]);
  const Tensor d = add(is_float(apart->dtype) ? apart : to_dtype(apart, DType::kFloat32), args[3]);
  return {to_dtype(norm_along(wide(d), args[2].as<Scalar>(), -1, args[4].as<bool>()), d->dtype)};
}

Results decompose_normalize(const Args& args) {
  Tensor x = args[0].tensor();
  check_float(OpId::normalize, x, "input");
  SymInt dim = wrap_dim(OpId::normalize, args[2].sym_int().guard(), x->sizes.size());
  Tensor length = clamp(norm_along(x, args[1].as<Scalar>(), dim, true), args[3], {});
  return {x / length};
}

// Returns the Euclidean length along a dim. Its gradient at 0 is 0.
Results decompose_norm_along(const Args& args) {
  Tensor x = args[0].tensor();
  return {sqrt(sum(x * x, {args[1].sym_int()}, args[2].as<bool>()))};
}

// (input, target, weight, reduction): the mean over classes of binary losses against 0 and 1.
Results decompose_multilabel_soft_margin_loss(const Args& args) {
  const Tensor x = args[0].tensor(), target = args[1].tensor();
  check_reduction(OpId::multilabel_soft_margin_loss, text(args[3]));
  if (x->dim() == 0) fail("multilabel_soft_margin_loss: expects an input of 1 dimension or more, got a number");
  const auto log_sigmoid = [](const Tensor& t) { return op1(OpId::logsigmoid, {t}); };
  Tensor loss = neg(target * log_sigmoid(x) + (1.0 - target) * log_sigmoid(neg(x)));
  if (!args[2].is_none()) loss = mul(loss, args[2]);
  return {reduced(div(sum(loss, {-1}, false), vint(x->sizes.back())), text(args[3]))};
}

// (input, target, reduction). A row of the target lists classes up to its first negative number. The loss is how far
// each of these is from being 1 above each other class.
Results decompose_multilabel_margin_loss(const Args& args) {
  const Tensor given = args[0].tensor(), classes = args[1].tensor();
  check_reduction(OpId::multilabel_margin_loss, text(args[2]));
  const bool single = given->dim() < 2 && classes->dim() < 2 && given->numel() == classes->numel();
  if (given->dim() > 2 || (!single && !same_sizes(given->sizes, classes->sizes))) {
    fail("multilabel_margin_loss: expects input and target of one shape of at most 2 dimensions, got ",
         to_string(given->sizes), " and ", to_string(classes->sizes));
  }
  if (!is_index(classes->dtype)) {
    fail("multilabel_margin_loss: target must be int64 or int32, got ", name(classes->dtype));
  }
  const bool one = given->dim() < 2;
  const Sizes row = {1, given->numel()};
  const Tensor x = one ? reshape(given, row) : given, target = one ? reshape(classes, row) : classes;
  const Tensor counts = op1(OpId::cumprod, {to_dtype(ge(target, vdim(0)), DType::kInt64), vdim(1)});
  const Tensor wanted = to_dtype(counts, x->dtype), at = mul(target, counts);
  const Tensor is_target = scatter_add(zeros_like(x), vdim(1), at, wanted);
  const Tensor apart = 1.0 - (unsqueeze(gather(x, vdim(1), at), vdim(2)) - unsqueeze(x, vdim(1)));
  const Tensor pairs = logical_and(unsqueeze(ne(counts, vnum(0)), vdim(2)), unsqueeze(eq(is_target, vnum(0)), vdim(1)));
  const Tensor each = where(logical_and(pairs, gt(apart, vnum(0))), apart, vnum(0));  // a NaN adds nothing
  const Tensor loss = div(sum(each, {1, 2}, false), vint(x->sizes[1]));
  return {reduced(one ? reshape(loss, {}) : loss, text(args[2]))};
}

}  // namespace lutra
