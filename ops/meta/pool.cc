// Meta rules of pools: PyTorch's conditions on sizes, and the results' sizes and memory formats.
#include "ops/meta/spatial.h"

namespace lutra {
namespace {

bool is_one_dim(OpId op) {
  return op == OpId::max_pool1d || op == OpId::max_pool1d_with_indices || op == OpId::avg_pool1d ||
         op == OpId::adaptive_avg_pool1d || op == OpId::adaptive_max_pool1d ||
         op == OpId::adaptive_max_pool1d_with_indices;
}
bool is_average(OpId op) { return op == OpId::avg_pool1d || op == OpId::avg_pool2d; }

// Checks the number of dimensions, which says whether there is a batch. No dimension from `first` on may be empty.
void check_input(OpId op, const Tensor& x, int dims, size_t first) {
  if (x->dim() != dims + 1 && x->dim() != dims + 2) {
    fail(name(op), ": the input must have ", dims + 1, " (unbatched) or ", dims + 2,
         " (batched) dimensions, got shape ", to_string(x->sizes));
  }
  for (size_t d = first; d < x->sizes.size(); d++) {
    if (x->sizes[d] == 0) {
      fail(name(op), ": only the batch may be empty, got an input of shape ", to_string(x->sizes));
    }
  }
}

void check_floating(OpId op, const Tensor& x) {
  if (!is_float(x->dtype)) fail(name(op), ": not defined for ", name(x->dtype), " tensors");
}

void check_window(OpId op, const PoolCall& c) {
  for (size_t i = 0; i < 2; i++) {
    if (c.kernel[i] <= 0) fail(name(op), ": kernel_size must be positive, got ", c.kernel[i]);
    if (c.stride[i] <= 0) fail(name(op), ": stride must be positive, got ", c.stride[i]);
    if (c.dilation[i] <= 0) fail(name(op), ": dilation must be positive, got ", c.dilation[i]);
    const int64_t spans = is_average(op) ? c.kernel[i] : (c.kernel[i] - 1) * c.dilation[i] + 1;
    if (c.padding[i] < 0 || c.padding[i] > spans / 2) {
      fail(name(op), ": padding must be from 0 to half of the kernel's size, got ", c.padding[i], " for a size of ",
           spans);
    }
  }
}

SymInt pool_size(OpId op, SymInt in, int64_t k, int64_t s, int64_t p, int64_t d, bool ceil) {
  const SymInt room = in + (2 * p - d * (k - 1) - 1);
  if (room < (ceil ? 1 - s : 0)) {
    fail(name(op), ": an input of size ", in.hint, " is too small for a kernel of size ", d * (k - 1) + 1);
  }
  SymInt out = floor_div(room + (ceil ? s - 1 : 0), s) + 1;
  // The last window must begin inside the image or the padding before it.
  if (ceil && (out - 1) * s >= in + p) out = out - 1;
  if (out < 1) fail(name(op), ": an input of size ", in.hint, " gives an empty result");
  return out;
}

}  // namespace

PoolCall pool_call(OpId op, const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  PoolCall c{};
  c.dims = is_one_dim(op) ? 1 : 2;
  check_input(op, x, c.dims, x->dim() == c.dims + 2);
  c.batched = x->dim() == c.dims + 2;
  c.kernel = pair_of(op, "kernel_size", args[1], c.dims, 1);
  const bool own_stride = !args[2].is_none() && !args[2].as<Sizes>().empty();
  c.stride = own_stride ? pair_of(op, "stride", args[2], c.dims, 1) : c.kernel;
  c.padding = pair_of(op, "padding", args[3], c.dims, 0);
  c.dilation = is_average(op) ? Pair{1, 1} : pair_of(op, "dilation", args[4], c.dims, 1);
  c.ceil = args[is_average(op) ? 4 : 5].as<bool>();
  check_window(op, c);
  c.h = c.dims == 1 ? SymInt(1) : x->sizes[x->sizes.size() - 2];
  c.w = x->sizes.back();
  c.oh = pool_size(op, c.h, c.kernel[0], c.stride[0], c.padding[0], c.dilation[0], c.ceil);
  c.ow = pool_size(op, c.w, c.kernel[1], c.stride[1], c.padding[1], c.dilation[1], c.ceil);
  return c;
}

namespace {
ResultSpec pooled_spec(const Tensor& x, int dims, bool batched, SymInt oh, SymInt ow, DType dtype) {
  const SymInt c = x->sizes[batched ? 1 : 0], n = batched ? x->sizes[0] : SymInt(1);
  const Sizes out = {n, c, oh, ow};
  if (dims == 2 && batched && is_channels_last(x)) return image_spec(out, true, dtype);
  return contiguous_spec(caller_sizes(out, dims, batched), dtype);
}
}  // namespace

ResultSpecs meta_max_pool(OpId op, const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  if (is_bool(x->dtype)) fail(name(op), ": not defined for bool tensors");
  const PoolCall c = pool_call(op, args);
  ResultSpecs specs = {pooled_spec(x, c.dims, c.batched, c.oh, c.ow, x->dtype)};
  if (info(op).results == 2) specs.push_back(pooled_spec(x, c.dims, c.batched, c.oh, c.ow, DType::kInt64));
  return specs;
}

ResultSpecs meta_avg_pool(OpId op, const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  if (!is_int64(x)) check_floating(op, x);
  const PoolCall c = pool_call(op, args);
  if (op == OpId::avg_pool2d && !args[6].is_none() && args[6].sym_int() == 0) {
    fail(name(op), ": divisor_override must not be zero");
  }
  return {pooled_spec(x, c.dims, c.batched, c.oh, c.ow, x->dtype)};
}

ResultSpecs meta_adaptive_pool(OpId op, const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  const int dims = is_one_dim(op) ? 1 : 2;
  check_floating(op, x);
  check_input(op, x, dims, 1);
  const Pair out = pair_of(op, "output_size", args[1], dims, 1);
  if (out[0] < 0 || out[1] < 0) fail(name(op), ": output_size must not be negative, got ", std::min(out[0], out[1]));
  const auto spec = [&](DType type) { return pooled_spec(x, dims, x->dim() == dims + 2, out[0], out[1], type); };
  ResultSpecs specs = {spec(x->dtype)};
  if (info(op).results == 2) specs.push_back(spec(DType::kInt64));
  return specs;
}

ResultSpecs meta_pool(OpId op, const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  const Sizes& size = args[1].as<Sizes>();
  return {image_spec({x->sizes[0], x->sizes[1], size[0], size[1]}, is_channels_last(x),
                     op == OpId::pool_tap ? DType::kInt32 : x->dtype)};
}

}  // namespace lutra
