// Decomposes batch and instance normalisation with running statistics.
#include "ops/decompose/emit.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// Updates a statistic without recording it on the tape. count: the statistic is a variance of so many elements.
void update(const Value& running, const Tensor& value, const Scalar& momentum, Value count = {}) {
  GradModeScope no_grad(false);
  call_inplace(OpId::moving_average, {running, value, momentum, std::move(count)});
}

Tensor unbiased(const Tensor& var, SymInt n) { return op1(OpId::div, {op1(OpId::mul, {var, vint(n)}), vint(n - 1)}); }

void check_statistics(const char* fn, const Tensor& x, const Value& v, const char* argument) {
  if (v.is_none()) return;
  const Tensor& t = v.as<Tensor>();
  if (x->dim() < 2 || t->dim() != 1 || t->sizes[0] != x->sizes[1]) {
    fail(fn, ": ", argument, " must hold one value a channel, got shape ", to_string(t->sizes),
         " for an input of shape ", to_string(x->sizes));
  }
}

// Returns the input normalised by running statistics; null if it is to be normalised by its own. otherwise: ends the
// message for missing statistics.
Tensor by_running_statistics(const char* fn, const Args& args, const char* otherwise) {
  check_statistics(fn, args[0].as<Tensor>(), args[1], "running_mean");
  check_statistics(fn, args[0].as<Tensor>(), args[2], "running_var");
  if (args[5].as<bool>()) return {};
  if (args[1].is_none() || args[2].is_none()) fail(fn, ": running_mean and running_var are needed ", otherwise);
  return op1(OpId::batch_norm_infer, {args[0], args[1], args[2], args[3], args[4], args[7]});
}

// Fails if each channel has one element, whose variance means nothing.
void check_many(const char* fn, const char* what, const Tensor& x, bool batch) {
  const SymInt count = elements_per_channel(x->sizes, batch ? 0 : 2);
  if (count == 1) fail(fn, ": expected more than 1 ", what, " when training, got shape ", to_string(x->sizes));
}

}  // namespace

Results decompose_moving_average(const Args& args) {
  const Tensor kept = op1(OpId::mul, {args[0], scalar_binary(SymOp::kNSub, Scalar(1.0), args[2].as<Scalar>())});
  const Tensor value = args[3].is_none() ? args[1].tensor() : unbiased(args[1].tensor(), args[3].sym_int());
  return {op1(OpId::add, {op1(OpId::mul, {value, args[2]}), kept})};
}

// (input, running_mean, running_var, weight, bias, training, momentum, eps)
Results decompose_batch_norm(const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  if (args[5].as<bool>() && !scalar_ask(SymCmp::kLt, Scalar(0.0), args[7].as<Scalar>()))
    fail("batch_norm: eps must be positive, got ", to_string(args[7].as<Scalar>()));
  if (Tensor y = by_running_statistics("batch_norm", args, "when not training")) return {y};
  if (x->dim() >= 2) check_many("batch_norm", "value per channel", x, true);
  const Results r = call_op(OpId::batch_norm_train, {x, args[3], args[4], args[7]});
  const Scalar& momentum = args[6].as<Scalar>();
  const bool kept = !args[1].is_none() || !args[2].is_none();
  if (kept && x->numel() == 0) return {r[0]};  // no elements have no statistics
  if (!args[1].is_none()) update(args[1], r[1], momentum);
  if (!args[2].is_none()) update(args[2], r[2], momentum, vint(elements_per_channel(x->sizes)));
  return {r[0]};
}

namespace {

// Returns the mean over the batch of statistics of n * c channels.
Tensor over_batch(const Tensor& t, SymInt n, SymInt c) {
  return op1(OpId::mean, {reshape(t, Sizes{n, c}), Sizes{0}, false});
}

}  // namespace

// Normalises each image by itself, as a batch norm of one image with the channels of the whole batch.
Results decompose_instance_norm(const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  if (x->dim() < 3) {
    fail("instance_norm: the input must have at least 3 dimensions, got shape ", to_string(x->sizes));
  }
  if (Tensor y = by_running_statistics("instance_norm", args, "without use_input_stats")) return {y};
  check_many("instance_norm", "spatial element", x, false);
  const SymInt n = x->sizes[0], c = x->sizes[1];
  SymInt inner = 1;
  Sizes sizes = {1, n * c}, channel = {1, c};
  for (size_t d = 2; d < x->sizes.size(); d++) {
    sizes.push_back(x->sizes[d]), channel.push_back(1);
    inner = inner * x->sizes[d];
  }
  const Results r = call_op(OpId::batch_norm_train, {reshape(x, sizes), Value(), Value(), args[7]});
  Tensor y = reshape(r[0], x->sizes);
  for (size_t i : {3, 4}) {
    if (args[i].is_none()) continue;
    check_statistics("instance_norm", x, args[i], i == 3 ? "weight" : "bias");
    y = op1(i == 3 ? OpId::mul : OpId::add, {y, reshape(args[i].as<Tensor>(), channel)});
  }
  GradModeScope no_grad(false);
  const Scalar& momentum = args[6].as<Scalar>();
  if (!args[1].is_none()) update(args[1], over_batch(r[1], n, c), momentum);
  if (!args[2].is_none()) update(args[2], over_batch(unbiased(r[2], inner), n, c), momentum);
  return {op1(OpId::to_dtype, {y, x->dtype})};
}

}  // namespace lutra
