// Meta rules of reductions, softmax and losses.
#include "ops/core/closest.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

DType optional_dtype(const Value& v, DType otherwise) { return v.is_none() ? otherwise : v.as<DType>(); }

ResultSpec reduce_spec(OpId op, const Args& args, DType type, bool empty_is_none = true) {
  const Tensor& t = args[0].as<Tensor>();
  Dims dims = reduced_dims(op, args[1], t->sizes.size(), empty_is_none);
  return contiguous_spec(reduced_sizes(t->sizes, dims, args[2].as<bool>()), type);
}

// A maximum over nothing does not exist.
void check_not_empty(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  for (int64_t d : reduced_dims(op, args[1], t->sizes.size())) {
    if (t->sizes[d] == 0) {
      fail(name(op), ": expected reduction dim ", d, " to have non-zero size, got shape ", to_string(t->sizes));
    }
  }
}

// Describes a loss: all elements or a single one, by its reduction.
ResultSpec loss_spec(OpId op, const std::string& reduction, const Sizes& sizes, DType type) {
  if (reduction == "none") return contiguous_spec(sizes, type);
  if (reduction != "mean" && reduction != "sum") {
    fail(name(op), ": reduction '", reduction, "' is unknown", KnownNames{"none", "mean", "sum"}.expected(reduction));
  }
  return contiguous_spec({}, type);
}

}  // namespace

ResultSpecs meta_sum(OpId op, const Args& args) {
  DType own = args[0].tensor()->dtype;
  return {reduce_spec(op, args, optional_dtype(args[3], is_float(own) ? own : DType::kInt64))};
}

ResultSpecs meta_mean(OpId op, const Args& args) {
  DType type = optional_dtype(args[3], args[0].tensor()->dtype);
  if (!is_float(type)) fail(name(op), ": expected a floating point dtype, got ", name(type), " (give dtype='float32')");
  return {reduce_spec(op, args, type)};
}

ResultSpecs meta_reduce_same(OpId op, const Args& args) {
  check_not_empty(op, args);
  return {reduce_spec(op, args, args[0].tensor()->dtype)};
}

ResultSpecs meta_arg_reduce(OpId op, const Args& args) {
  if (is_bool(args[0].tensor()->dtype)) fail(name(op), ": not defined for bool tensors");
  check_not_empty(op, args);
  return {reduce_spec(op, args, DType::kInt64)};
}

ResultSpecs meta_reduce_bool(OpId op, const Args& args) {
  // As in PyTorch, uint8 stays uint8, and {} means "over no dimension" here.
  DType type = args[0].tensor()->dtype == DType::kUInt8 ? DType::kUInt8 : DType::kBool;
  return {reduce_spec(op, args, type, false)};
}

ResultSpecs meta_max_dim(OpId op, const Args& args) {
  check_not_empty(op, args);
  ResultSpec values = reduce_spec(op, args, args[0].tensor()->dtype);
  ResultSpec indices = values;
  indices.dtype = DType::kInt64;
  return {values, indices};
}

ResultSpecs meta_softmax(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  DType type = optional_dtype(args[2], t->dtype);
  if (!is_float(type)) fail(name(op), ": not defined for ", name(type), " tensors (give dtype='float32')");
  wrap_dim(op, args[1].sym_int().guard(), t->sizes.size());
  return {contiguous_spec(t->sizes, type)};
}

namespace {

// Returns the target's sizes: the input's without the class dim.
Sizes target_sizes(OpId op, const Tensor& input) {
  size_t n = input->sizes.size();
  if (n == 0) fail(name(op), ": expected an input of 1 dimension or more, got a number");
  Sizes sizes;
  for (size_t d = 0; d < n; d++) {
    if (d != (n == 1 ? 0u : 1u)) sizes.push_back(input->sizes[d]);
  }
  return sizes;
}

void check_weight(OpId op, const Value& weight, const Tensor& input) {
  if (weight.is_none()) return;
  const Tensor& w = weight.as<Tensor>();
  SymInt classes = input->sizes[input->sizes.size() == 1 ? 0 : 1];
  if (w->sizes.size() != 1 || w->sizes[0] != classes) {
    fail(name(op), ": weight must have shape {", classes.hint, "} (one a class), got ", to_string(w->sizes));
  }
  if (w->dtype != input->dtype) {
    fail(name(op), ": expected weight of dtype ", name(input->dtype), ", got ", name(w->dtype));
  }
}

ResultSpec class_loss(OpId op, const Args& args) {
  const Tensor &input = args[0].as<Tensor>(), &target = args[1].as<Tensor>();
  if (!is_float(input->dtype)) fail(name(op), ": not defined for an input of dtype ", name(input->dtype));
  Sizes expected = target_sizes(op, input);
  if (target->dtype != DType::kInt64 && target->dtype != DType::kUInt8) {
    fail(name(op), ": expected a target of class indices (int64), got ", name(target->dtype));
  }
  if (!same_sizes(target->sizes, expected)) {
    fail(name(op), ": expected a target of shape ", to_string(expected), " for an input of shape ",
         to_string(input->sizes), ", got ", to_string(target->sizes));
  }
  check_weight(op, args[2], input);
  return loss_spec(op, args[4].as<std::string>(), expected, input->dtype);
}

}  // namespace

ResultSpecs meta_nll_loss(OpId op, const Args& args) { return {class_loss(op, args)}; }

ResultSpecs meta_cross_entropy(OpId op, const Args& args) {
  const Tensor &input = args[0].as<Tensor>(), &target = args[1].as<Tensor>();
  const Scalar& smooth = args[5].as<Scalar>();
  if (scalar_ask(SymCmp::kLt, smooth, Scalar(0.0)) || scalar_ask(SymCmp::kLt, Scalar(1.0), smooth)) {
    fail("cross_entropy: label_smoothing must be between 0 and 1, got ", to_string(smooth));
  }
  // A target of the input's shape holds class probabilities.
  if (is_float(target->dtype) && !input->sizes.empty() && same_sizes(input->sizes, target->sizes)) {
    if (!is_float(input->dtype)) fail(name(op), ": not defined for an input of dtype ", name(input->dtype));
    check_weight(op, args[2], input);
    return {loss_spec(op, args[4].as<std::string>(), target_sizes(op, input), input->dtype)};
  }
  return {class_loss(op, args)};
}

ResultSpecs meta_mse_loss(OpId op, const Args& args) {
  DType type = result_type(args, {0, 1});
  if (!is_float(type)) fail("mse_loss: not defined for ", name(type), " tensors");
  ResultSpec full = pointwise_spec(op, args, {0, 1}, type);
  const std::string& reduction = args[2].as<std::string>();
  if (reduction == "none") return {full};
  return {loss_spec(op, reduction, full.sizes, type)};
}

}  // namespace lutra
