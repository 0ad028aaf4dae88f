// Meta rules of layer_norm and rms_norm.
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// Checks that normalized_shape is the input's trailing sizes, and that weight and bias have these sizes.
void check_norm(OpId op, const Args& args, size_t last_parameter) {
  const Tensor& x = args[0].as<Tensor>();
  const Sizes& shape = args[1].as<Sizes>();
  if (!is_float(x->dtype)) fail(name(op), ": expected a floating point input, got ", name(x->dtype));
  if (shape.empty()) fail(name(op), ": normalized_shape must name at least 1 dimension");
  bool fits = shape.size() <= x->sizes.size();
  for (size_t d = 0; fits && d < shape.size(); d++) fits = shape[d] == x->sizes[x->sizes.size() - shape.size() + d];
  if (!fits) {
    fail(name(op), ": normalized_shape ", to_string(shape), " does not end the input's shape ", to_string(x->sizes));
  }
  for (size_t i = 2; i <= last_parameter; i++) {
    if (args[i].is_none()) continue;
    const Tensor& w = args[i].as<Tensor>();
    if (!same_sizes(w->sizes, shape)) {
      fail(name(op), ": ", info(op).args[i].name, " of shape ", to_string(w->sizes), " is not of normalized_shape ",
           to_string(shape));
    }
    if (w->dtype != x->dtype && w->dtype != DType::kFloat32) {
      fail(name(op), ": ", info(op).args[i].name, " must be ", name(x->dtype), ", got ", name(w->dtype));
    }
  }
}

}  // namespace

ResultSpecs meta_layer_norm(OpId op, const Args& args) {
  check_norm(op, args, 3);
  return {contiguous_spec(args[0].as<Tensor>()->sizes, args[0].as<Tensor>()->dtype)};
}

ResultSpecs meta_rms_norm(OpId op, const Args& args) {
  check_norm(op, args, 2);
  return {contiguous_spec(args[0].as<Tensor>()->sizes, args[0].as<Tensor>()->dtype)};
}

ResultSpecs meta_native_layer_norm(OpId op, const Args& args) {
  ResultSpecs specs = meta_layer_norm(op, args);
  const Tensor& x = args[0].as<Tensor>();
  Sizes rows = x->sizes;
  for (size_t d = 0; d < args[1].as<Sizes>().size(); d++) rows[rows.size() - 1 - d] = 1;
  const DType type = at_least_float32(x->dtype);
  for (int i = 0; i < 2; i++) specs.push_back(contiguous_spec(rows, type));
  return specs;
}

// A contiguous gradient of the second argument's sizes and dtype.
ResultSpecs meta_first_like_second(OpId, const Args& args) {
  return {contiguous_spec(args[1].as<Tensor>()->sizes, args[1].as<Tensor>()->dtype)};
}

ResultSpecs meta_norm_weight(OpId, const Args& args) {
  return {contiguous_spec(args[4].as<Sizes>(), args[2].as<Tensor>()->dtype)};
}

namespace {
// Checks log probabilities, targets and their lengths, from argument `at` on.
void check_ctc(OpId op, const Args& args, size_t at) {
  const Tensor &log_probs = args[at].as<Tensor>(), &targets = args[at + 1].as<Tensor>();
  check_internal(op, log_probs->dim() == 3 && is_float(log_probs->dtype), "log_probs are {steps, batch, classes}");
  const int64_t batch = log_probs->sizes[1].hint;
  check_internal(op, is_int64(targets) && (targets->dim() == 1 || targets->dim() == 2),
                 "targets are int64, in one row or a row each");
  check_internal(op, targets->dim() == 1 || targets->sizes[0].hint == batch, "targets are of another batch");
  for (size_t i = at + 2; i < at + 4; i++) {
    const Tensor& lengths = args[i].as<Tensor>();
    check_internal(op, is_int64(lengths) && lengths->dim() == 1 && lengths->sizes[0].hint == batch,
                   "lengths are int64, one for each of the batch");
  }
}
}  // namespace

ResultSpecs meta_ctc_nll(OpId op, const Args& args) {
  check_ctc(op, args, 0);
  const Tensor& log_probs = args[0].as<Tensor>();
  return {contiguous_spec({log_probs->sizes[1]}, log_probs->dtype)};
}
ResultSpecs meta_ctc_nll_backward(OpId op, const Args& args) {
  check_ctc(op, args, 1);
  const Tensor& log_probs = args[1].as<Tensor>();
  for (const size_t i : {0, 5}) {
    const Tensor& t = args[i].as<Tensor>();
    check_internal(op, t->dim() == 1 && t->sizes[0].hint == log_probs->sizes[1].hint && t->dtype == log_probs->dtype,
                   "grad and nll are one number for each of the batch");
  }
  return {contiguous_spec(log_probs->sizes, log_probs->dtype)};
}

}  // namespace lutra
