// Convolutions, pools and normalisations as Lua calls them: what their op rows do not say - padding by name, indices on
// demand, running statistics.
#include "ops/core/error.h"
#include "vm/bind/composite.h"

namespace lutra {
namespace {

LuaResults lua_results(const Results& results) { return LuaResults(results.begin(), results.end()); }

// -- padding="same" | "valid"

// Zeros before and after, the odd one after.
Value named_padding(const char* fn, const Args& args, int dims) {
  const std::string& text = args[4].as<std::string>();
  if (text == "valid") return Sizes{0};
  if (text != "same") fail(fn, ": padding must be 'same', 'valid' or numbers, got '", text, "'");
  const Tensor& weight = args[1].as<Tensor>();
  if (weight->dim() != dims + 2) return Sizes{0};  // the op's own error
  for (SymInt s : args[3].as<Sizes>()) {
    if (s.guard() != 1) fail(fn, ": padding='same' is not supported for strided convolutions");
  }
  const Sizes& dilation = args[5].as<Sizes>();
  Sizes before, after;
  for (int d = 0; d < dims; d++) {
    const int64_t step = dilation[dilation.size() == 1 ? 0 : size_t(d)].guard();
    const int64_t total = step * (weight->sizes[size_t(d) + 2].guard() - 1);
    before.push_back(total / 2), after.push_back(total - total / 2);
  }
  for (SymInt a : after) before.push_back(a);
  return before;
}

template <OpId op>
LuaResults conv(Args& args) {
  return lua_results(call_op(op, args));
}

template <OpId op>
LuaResults conv_named(Args& args) {
  args[4] = named_padding(name(op), args, op == OpId::conv1d ? 1 : 2);
  return lua_results(call_op(op, args));
}

template <OpId plain, OpId with_indices>
LuaResults max_pool(Args& args) {
  const bool indices = args[6].as<bool>();
  args.pop_back();
  return lua_results(call_op(indices ? with_indices : plain, args));
}

// -- normalisation with running statistics

// running = (1 - momentum) * running + momentum * value, unrecorded.
void update(const Value& running, const Tensor& value, const Scalar& momentum) {
  GradModeScope no_grad(false);
  const Tensor& r = running.as<Tensor>();
  const Tensor kept = op1(OpId::mul, {r, scalar_binary(SymOp::kNSub, Scalar(1.0), momentum)});
  call_inplace(OpId::copy_, {r, op1(OpId::add, {op1(OpId::mul, {value, momentum}), kept})});
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

// Their variance would be that of a single number.
void check_many(const char* fn, const char* what, const Tensor& x, bool batch) {
  bool one = true;
  for (size_t d = batch ? 0 : 2; d < x->sizes.size(); ++d) {
    one = one && (d == 1 || (x->sizes[d].hint == 1 && x->sizes[d] == 1));
  }
  if (one) fail(fn, ": expected more than 1 ", what, " when training, got shape ", to_string(x->sizes));
}

// input, running_mean, running_var, weight, bias, training, momentum, eps
LuaResults batch_norm(Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  check_statistics("batch_norm", x, args[1], "running_mean");
  check_statistics("batch_norm", x, args[2], "running_var");
  if (!args[5].as<bool>()) {
    if (args[1].is_none() || args[2].is_none()) {
      fail("batch_norm: running_mean and running_var are needed when not training");
    }
    return {op1(OpId::batch_norm_infer, {x, args[1], args[2], args[3], args[4], args[7]})};
  }
  if (x->dim() >= 2) check_many("batch_norm", "value per channel", x, true);
  const Results r = call_op(OpId::batch_norm_train, {x, args[3], args[4], args[7]});
  const Scalar& momentum = args[6].as<Scalar>();
  if (!args[1].is_none()) update(args[1], r[1], momentum);
  if (!args[2].is_none()) {
    GradModeScope no_grad(false);
    SymInt n = x->sizes[0];
    for (int64_t d = 2; d < x->dim(); ++d) n = n * x->sizes[size_t(d)];
    update(args[2], unbiased(r[2], n), momentum);
  }
  return {r[0]};
}

Tensor reshaped(const Tensor& t, const Sizes& sizes) { return op1(OpId::reshape, {t, sizes}); }

// The mean over the batch of statistics of n * c channels.
Tensor over_batch(const Tensor& t, SymInt n, SymInt c) {
  return op1(OpId::mean, {reshaped(t, Sizes{n, c}), Sizes{0}, false});
}

// Each image by itself: the batch's channels side by side.
LuaResults instance_norm(Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  if (x->dim() < 3) {
    fail("instance_norm: the input must have at least 3 dimensions, got shape ", to_string(x->sizes));
  }
  check_statistics("instance_norm", x, args[1], "running_mean");
  check_statistics("instance_norm", x, args[2], "running_var");
  if (!args[5].as<bool>()) {
    if (args[1].is_none() || args[2].is_none()) {
      fail("instance_norm: running_mean and running_var are needed without use_input_stats");
    }
    return {op1(OpId::batch_norm_infer, {x, args[1], args[2], args[3], args[4], args[7]})};
  }
  check_many("instance_norm", "spatial element", x, false);
  const SymInt n = x->sizes[0], c = x->sizes[1];
  SymInt inner = 1;
  Sizes sizes = {1, n * c}, channel = {1, c};
  for (size_t d = 2; d < x->sizes.size(); ++d) {
    sizes.push_back(x->sizes[d]), channel.push_back(1);
    inner = inner * x->sizes[d];
  }
  const Results r = call_op(OpId::batch_norm_train, {reshaped(x, sizes), Value(), Value(), args[7]});
  Tensor y = reshaped(r[0], x->sizes);
  for (size_t i : {3, 4}) {
    if (args[i].is_none()) continue;
    check_statistics("instance_norm", x, args[i], i == 3 ? "weight" : "bias");
    y = op1(i == 3 ? OpId::mul : OpId::add, {y, reshaped(args[i].as<Tensor>(), channel)});
  }
  GradModeScope no_grad(false);
  const Scalar& momentum = args[6].as<Scalar>();
  if (!args[1].is_none()) update(args[1], over_batch(r[1], n, c), momentum);
  if (!args[2].is_none()) update(args[2], over_batch(unbiased(r[2], inner), n, c), momentum);
  return {op1(OpId::to_dtype, {y, x->dtype})};
}

constexpr char kConv[] =
    "Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, int[] dilation=1, int groups=1";
constexpr char kConvNamed[] =
    "Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, str padding='valid', int[] dilation=1, int "
    "groups=1";
constexpr char kMaxPool[] =
    "Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, int[] dilation=1, bool ceil_mode=False, "
    "bool return_indices=False";
constexpr char kBatchNorm[] =
    "Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, Tensor? bias=None, bool "
    "training=False, float momentum=0.1, float eps=1e-05";
constexpr char kInstanceNorm[] =
    "Tensor input, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, Tensor? bias=None, bool "
    "use_input_stats=True, float momentum=0.1, float eps=1e-05";

const Composite kRows[] = {
    {"conv1d", kConv, kFunctionOf, conv<OpId::conv1d>},
    {"conv1d", kConvNamed, kFunctionOf, conv_named<OpId::conv1d>},
    {"conv2d", kConv, kFunctionOf, conv<OpId::conv2d>},
    {"conv2d", kConvNamed, kFunctionOf, conv_named<OpId::conv2d>},
    {"max_pool1d", kMaxPool, kFunctionOf, max_pool<OpId::max_pool1d, OpId::max_pool1d_with_indices>},
    {"max_pool2d", kMaxPool, kFunctionOf, max_pool<OpId::max_pool2d, OpId::max_pool2d_with_indices>},
    {"batch_norm", kBatchNorm, kFunctionOf, batch_norm},
    {"instance_norm", kInstanceNorm, kFunctionOf, instance_norm},
};

}  // namespace

std::span<const Composite> network_rows() { return kRows; }

}  // namespace lutra
