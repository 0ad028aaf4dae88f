// Meta rules of normalisations over batch, channels and groups.
#include "ops/meta/rules.h"

namespace lutra {
namespace {

void check_input(const char* op, const Tensor& x, int64_t least) {
  if (!is_float(x->dtype)) fail(op, ": not defined for ", name(x->dtype), " tensors");
  if (x->dim() < least) {
    fail(op, ": the input must have at least ", least, " dimensions, got shape ", to_string(x->sizes));
  }
}

void check_channel(const char* op, const char* argument, const Value& v, const Tensor& x) {
  if (v.is_none()) return;
  const Tensor& t = v.as<Tensor>();
  if (t->dim() != 1 || t->sizes[0] != x->sizes[1]) {
    fail(op, ": ", argument, " must have shape {", x->sizes[1].hint, "} (one a channel), got ", to_string(t->sizes));
  }
}

DType wide(DType t) { return at_least_float32(t); }

}  // namespace

ResultSpecs meta_batch_norm_train(OpId, const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  check_input("batch_norm", x, 2);
  check_channel("batch_norm", "weight", args[1], x), check_channel("batch_norm", "bias", args[2], x);
  if (elements_per_channel(x->sizes) == 1) {
    fail("batch_norm: expected more than 1 value per channel when training, got input size ", to_string(x->sizes));
  }
  const ResultSpec stat = contiguous_spec({x->sizes[1]}, wide(x->dtype));
  return {like_spec(x, x->dtype), stat, stat};
}

ResultSpecs meta_batch_norm_backward(OpId op, const Args& args) {
  const Tensor &g = args[0].as<Tensor>(), &x = args[1].as<Tensor>();
  check_internal(op, g->dim() == x->dim() && is_float(g->dtype), "grad has the input's sizes");
  const DType type = args[4].is_none() ? wide(x->dtype) : args[4].as<Tensor>()->dtype;
  const ResultSpec channel = contiguous_spec({x->sizes[1]}, type);
  return {like_spec(x, x->dtype), channel, channel};
}

ResultSpecs meta_moving_average(OpId op, const Args& args) {
  return {pointwise_spec(op, args, {0, 1}, result_type(args, {0, 1}))};
}

ResultSpecs meta_batch_norm_infer(OpId, const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  check_input("batch_norm", x, 2);
  check_channel("batch_norm", "running_mean", args[1], x), check_channel("batch_norm", "running_var", args[2], x);
  check_channel("batch_norm", "weight", args[3], x), check_channel("batch_norm", "bias", args[4], x);
  return {like_spec(x, x->dtype)};
}

ResultSpecs meta_group_norm(OpId, const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  check_input("group_norm", x, 2);
  const int64_t groups = args[1].sym_int().guard();
  if (groups <= 0) fail("group_norm: num_groups must be positive, got ", groups);
  if (floor_mod(x->sizes[1], groups) != 0) {
    fail("group_norm: the number of channels (", x->sizes[1].hint, ") must be divisible by num_groups (", groups, ")");
  }
  const SymInt count = floor_div(x->sizes[1], groups) * elements_per_channel(x->sizes);
  if (count == 1) fail("group_norm: expected more than 1 value per channel, got shape ", to_string(x->sizes));
  check_channel("group_norm", "weight", args[2], x), check_channel("group_norm", "bias", args[3], x);
  return {contiguous_spec(x->sizes, x->dtype)};
}

}  // namespace lutra
