// Meta rules of elementwise ops.
#include "ops/core/closest.h"
#include "ops/meta/rules.h"
#include "ops/meta/spatial.h"

namespace lutra {
namespace {

bool is_bool_operand(const Value& v) {
  if (v.is<Tensor>()) return is_bool(v.as<Tensor>()->dtype);
  return v.is<Scalar>() && v.as<Scalar>().kind == Scalar::kBool;
}

// Refuses a negative exponent of an integer power, which has no integer result. Only a number can be refused in
// advance.
void check_pow(const Args& args, DType type) {
  if (is_bool(type)) fail("pow: not defined for bool tensors");
  if (is_float(type) || !args[1].is<Scalar>()) return;
  if (scalar_ask(SymCmp::kLt, args[1].as<Scalar>(), Scalar(0.0))) {
    fail("pow: integers to negative integer powers are not allowed");
  }
  check_converts(OpId::pow, 1, args[1], type);
}

}  // namespace

ResultSpecs meta_binary(OpId op, const Args& args) {
  DType type = result_type(args, {0, 1});
  if (op == OpId::pow) check_pow(args, type);
  if (is_bool(type) && (op == OpId::remainder || op == OpId::floor_divide || op == OpId::fmod)) {
    fail(name(op), ": not defined for bool tensors");
  }
  return {pointwise_spec(op, args, {0, 1}, type)};
}

ResultSpecs meta_add(OpId op, const Args& args) {
  DType type = result_type(args, {0, 1});
  if (op != OpId::add && (is_bool_operand(args[0]) || is_bool_operand(args[1]))) {
    fail(name(op), ": subtraction with a bool is not supported; use logical_xor or logical_not to invert a mask");
  }
  const Scalar& alpha = args[2].as<Scalar>();
  if (alpha.kind == Scalar::kBool && !is_bool(type)) {
    fail(name(op), ": a boolean alpha goes with bool tensors only, got ", name(type));
  }
  if (!is_float(type) && !alpha.is_whole()) {
    fail(name(op), ": alpha must not be a fraction for ", name(type), " tensors, got ", to_string(alpha));
  }
  // rsub is sub with its operands swapped.
  const bool turned = op == OpId::rsub;
  return {pointwise_spec(op, args, {size_t(turned), size_t(!turned)}, type)};
}

ResultSpecs meta_binary_float(OpId op, const Args& args) {
  return {pointwise_spec(op, args, {0, 1}, to_float(result_type(args, {0, 1})))};
}

ResultSpecs meta_compare(OpId op, const Args& args) {
  result_type(args, {0, 1});  // records the guards that the comparison's own type depends on
  return {pointwise_spec(op, args, {0, 1}, DType::kBool)};
}

ResultSpecs meta_unary(OpId op, const Args& args) {
  DType type = args[0].tensor()->dtype;
  if (is_bool(type) && op != OpId::sign) fail(name(op), ": not defined for bool tensors");
  return {like_spec(args[0].tensor(), type)};
}

ResultSpecs meta_unary_no_bool(OpId op, const Args& args) {
  DType type = args[0].tensor()->dtype;
  if (is_bool(type)) {
    // A power of two, and powers of bool tensors by numbers are int64.
    if (op == OpId::square) return {like_spec(args[0].tensor(), DType::kInt64)};
    fail(name(op), ": not defined for bool tensors", op == OpId::neg ? "; logical_not inverts a mask" : "");
  }
  return {like_spec(args[0].tensor(), type)};
}

ResultSpecs meta_unary_float(OpId, const Args& args) {
  return {like_spec(args[0].tensor(), to_float(args[0].tensor()->dtype))};
}

ResultSpecs meta_unary_bool(OpId, const Args& args) { return {like_spec(args[0].tensor(), DType::kBool)}; }

// The angle of complex elements has the type of their parts.
ResultSpecs meta_angle(OpId op, const Args& args) {
  const DType type = args[0].tensor()->dtype;
  if (is_stored(type) && !is_complex(type)) fail(name(op), ": not defined for ", name(type), " tensors");
  return {like_spec(args[0].tensor(), is_complex(type) ? info(type).carrier : to_float(type))};
}

ResultSpecs meta_to_dtype(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  DType type = args[1].as<DType>();
  ResultSpec spec = like_spec(t, type);
  if (type == t->dtype) spec.strides = t->strides;  // the tensor itself, with its own layout
  return {spec};
}

// Raises under capture, which ends the graph before the op.
ResultSpecs meta_to_device(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  if (t->is_fake()) throw NeedsData("to: a tensor moves to another device");
  return {};
}

ResultSpecs meta_clone(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  if (op == OpId::clone) {
    const std::string& format = args[1].as<std::string>();
    if (format == "contiguous_format") return {contiguous_spec(t->sizes, t->dtype)};
    if (format == "channels_last") {
      if (t->dim() != 4) fail("clone: memory_format 'channels_last' needs 4 dimensions, got ", t->dim());
      return {image_spec(t->sizes, true, t->dtype)};
    }
    if (format != "preserve_format") {
      const KnownNames known = {"preserve_format", "contiguous_format", "channels_last"};
      fail("clone: memory_format '", format, "' is unknown", known.expected(format));
    }
  }
  return {like_spec(t, t->dtype)};
}

ResultSpecs meta_clamp(OpId op, const Args& args) {
  if (args[1].is_none() && args[2].is_none()) fail("clamp: at least one of 'min' or 'max' must be given");
  const auto is_number = [&](size_t k) { return args[k].is<Scalar>() || args[k].tensor()->sizes.empty(); };
  if (!args[1].is_none() && !args[2].is_none() && args[1].is<Tensor>() != args[2].is<Tensor>() &&
      !(is_number(1) && is_number(2))) {
    fail("clamp: 'min' and 'max' are two numbers or two tensors");
  }
  DType type = result_type(args, {0, 1, 2});
  // With a single tensor bound, clamp is a minimum or a maximum, which bool has.
  const bool extreme = args[1].is_none() ? args[2].is<Tensor>() : args[2].is_none() && args[1].is<Tensor>();
  if (is_bool(type) && !extreme) fail("clamp: not defined for bool tensors");
  return {pointwise_spec(op, args, {0, 1, 2}, type)};
}

ResultSpecs meta_ternary(OpId op, const Args& args) {
  DType type = result_type(args, {0, 1, 2});
  if (is_bool(type)) fail(name(op), ": not defined for bool tensors");
  DType quotient = result_type(args, {1, 2});
  if (op == OpId::addcdiv && !is_float(quotient)) fail("addcdiv: integer division is not supported; convert to float");
  return {pointwise_spec(op, args, {0, 1, 2}, type)};
}

ResultSpecs meta_lerp(OpId op, const Args& args) {
  const Tensor &input = args[0].as<Tensor>(), &end = args[1].as<Tensor>();
  if (!is_float(input->dtype)) fail("lerp: not defined for ", name(input->dtype), " tensors");
  if (input->dtype != end->dtype) {
    fail("lerp: expected dtype ", name(input->dtype), " for 'end', got ", name(end->dtype));
  }
  if (args[2].is<Tensor>() && args[2].as<Tensor>()->dtype != input->dtype && !args[2].as<Tensor>()->sizes.empty()) {
    fail("lerp: expected dtype ", name(input->dtype), " for 'weight', got ", name(args[2].as<Tensor>()->dtype));
  }
  return {pointwise_spec(op, args, {0, 1, 2}, input->dtype)};
}

ResultSpecs meta_where(OpId op, const Args& args) {
  DType condition = args[0].tensor()->dtype;
  if (!is_bool(condition) && condition != DType::kUInt8) {
    fail("where: the condition must be a bool tensor, got ", name(condition));
  }
  const DType type = result_type(args, {1, 2});
  // Floats overflow to infinity here, as in PyTorch.
  for (size_t a : {1, 2}) {
    if (!is_float(type)) check_converts(op, a, args[a], type);
  }
  return {pointwise_spec(op, args, {0, 1, 2}, type)};
}

ResultSpecs meta_masked_fill(OpId op, const Args& args) {
  const Tensor &input = args[0].as<Tensor>(), &mask = args[1].as<Tensor>();
  if (!is_bool(mask->dtype)) fail("masked_fill: the mask must be a bool tensor, got ", name(mask->dtype));
  if (args[2].is<Tensor>()) {
    const Tensor& value = args[2].as<Tensor>();
    if (!value->sizes.empty()) {
      fail("masked_fill: value must be a number or a 0-dim tensor, got shape ", to_string(value->sizes));
    }
    if (is_complex(value->dtype) && !is_complex(input->dtype)) {
      fail("masked_fill: value of dtype ", name(value->dtype), " can't be cast to ", name(input->dtype));
    }
  }
  return {contiguous_spec(broadcast(op, input->sizes, mask->sizes), input->dtype)};
}

ResultSpecs meta_copy_(OpId op, const Args& args) {
  const Tensor &self = args[0].as<Tensor>(), &src = args[1].as<Tensor>();
  // Under capture this ends the graph before the op.
  if (self->device() != src->device() && (self->is_fake() || src->is_fake())) {
    throw NeedsData("copy_: a tensor moves to another device");
  }
  // src broadcasts to self, never the other way round.
  ResultSpec spec;
  spec.sizes = broadcast(op, self->sizes, src->sizes);
  spec.strides = self->strides;
  spec.dtype = self->dtype;
  return {spec};
}

}  // namespace lutra
