// What convolutions and pools of any rank and batch mean: primitives on batched images.
#include <limits>

#include "ops/decompose/emit.h"
#include "ops/meta/spatial.h"

namespace lutra {
namespace {

// {n, c, h, w} from a caller's input, and back.
Tensor to_image(const Tensor& x, int dims, bool batched) {
  Tensor t = batched ? x : unsqueeze(x, int_arg(0));
  return dims == 2 ? t : unsqueeze(t, int_arg(2));
}
Tensor from_image(const Tensor& y, int dims, bool batched) {
  if (dims == 2 && batched) return y;
  return contiguous(reshape(contiguous(y), caller_sizes(y->sizes, dims, batched)));
}

Results convolve(OpId op, const Args& args) {
  const ConvCall c = conv_call(op, args);
  const Tensor x = to_image(args[0].tensor(), c.dims, c.batched);
  const Tensor w = c.dims == 2 ? args[1].tensor() : unsqueeze(args[1], int_arg(2));
  Sizes padding;
  for (int64_t p : c.padding) padding.push_back(p);
  const Value stride = sizes_of(c.stride), dilation = sizes_of(c.dilation), groups = int_arg(c.groups);
  Tensor y;
  if (!c.transposed) {
    y = op1(OpId::convolution, {x, w, args[2], stride, padding, dilation, groups});
  } else {
    y = op1(OpId::convolution_input, {x, w, c.out, stride, padding, dilation, groups});
    if (!args[2].is_none()) y = add(y, reshape(args[2].tensor(), Sizes{1, c.out[1], 1, 1}));
  }
  return {from_image(y, c.dims, c.batched)};
}

Args pool_args(const Tensor& x, SymInt h, SymInt w, const PoolCall& c) {
  return {x, Sizes{h, w}, sizes_of(c.kernel), sizes_of(c.stride), sizes_of(c.padding), sizes_of(c.dilation)};
}

Results max_pool(OpId op, const Args& args) {
  const PoolCall c = pool_call(op, args);
  const Tensor x = to_image(args[0].tensor(), c.dims, c.batched);
  const Args pool = pool_args(x, c.oh, c.ow, c);
  Results results = {from_image(op1(OpId::pool_max, pool), c.dims, c.batched)};
  if (info(op).results == 1) return results;
  // The position h * W + w of each tap.
  const Tensor tap = to_dtype(op1(OpId::pool_tap, pool), DType::kInt64);
  const Tensor kh = floor_divide(tap, int_arg(c.kernel[1])), kw = sub(tap, mul(kh, int_arg(c.kernel[1])));
  const auto origin = [&](SymInt n, int64_t stride, int64_t padding) {
    const Tensor i = op1(OpId::arange, {int_arg(0), Scalar::of_sym(n), int_arg(1), DType::kInt64, x->device()});
    return sub(mul(i, int_arg(stride)), int_arg(padding));
  };
  const Tensor h = add(unsqueeze(origin(c.oh, c.stride[0], c.padding[0]), int_arg(1)), mul(kh, int_arg(c.dilation[0])));
  const Tensor w = add(mul(kw, int_arg(c.dilation[1])), origin(c.ow, c.stride[1], c.padding[1]));
  results.push_back(from_image(add(mul(h, Scalar::of_sym(c.w)), w), c.dims, c.batched));
  return results;
}

// Sums of windows over the number of their elements.
Tensor average(const Tensor& x, const PoolCall& c, bool count_padding, const Value& divisor) {
  const Tensor sums = op1(OpId::pool_sum, pool_args(x, c.oh, c.ow, c));
  if (!divisor.is_none()) return div(sums, divisor);
  const bool padded = c.padding[0] || c.padding[1];
  if (!c.ceil && (count_padding || !padded)) return div(sums, int_arg(c.kernel[0] * c.kernel[1]));
  // Ones in the image, and in the padding where that counts.
  PoolCall ones = c;
  SymInt h = c.h, w = c.w;
  if (count_padding) h = h + 2 * c.padding[0], w = w + 2 * c.padding[1], ones.padding = {0, 0};
  const Tensor one = full(Sizes{1, 1, h, w}, 1.0, x->dtype, x->device());
  return div(sums, op1(OpId::pool_sum, pool_args(one, c.oh, c.ow, ones)));
}

Results avg_pool(OpId op, const Args& args) {
  const PoolCall c = pool_call(op, args);
  const Tensor x = to_image(args[0].tensor(), c.dims, c.batched);
  const Value divisor = op == OpId::avg_pool2d ? args[6] : Value();
  return {from_image(average(x, c, args[5].as<bool>(), divisor), c.dims, c.batched)};
}

// x's dimension `dim` (2 or 3) reduced to `size` windows [floor(i * n / size), ceil((i + 1) * n / size)). Of equal
// maxima the first has the gradient.
Tensor adapt(const Tensor& x, size_t dim, int64_t size, bool maximum) {
  const SymInt n = x->sizes[dim];
  if (n == size) return x;
  const Sizes reduced = {int64_t(dim) + 1};
  const auto range = [&](SymInt count) {
    return op1(OpId::arange, {int_arg(0), Scalar::of_sym(count), int_arg(1), DType::kInt64, x->device()});
  };
  const Tensor i = range(size);
  const Tensor begin = floor_divide(mul(i, Scalar::of_sym(n)), int_arg(size));
  const Tensor end = floor_divide(add(mul(add(i, int_arg(1)), Scalar::of_sym(n)), int_arg(size - 1)), int_arg(size));
  Tensor at = range(n);
  Tensor inside = logical_and(ge(at, unsqueeze(begin, int_arg(1))), lt(at, unsqueeze(end, int_arg(1))));
  Tensor count = to_dtype(sub(end, begin), x->dtype);
  if (dim == 2) {
    inside = unsqueeze(inside, int_arg(2)), count = unsqueeze(count, int_arg(1)), at = unsqueeze(at, int_arg(1));
  }
  const Tensor spread = unsqueeze(x, int_arg(int64_t(dim)));
  if (maximum) {
    const Tensor kept = where(inside, spread, Scalar(-std::numeric_limits<double>::infinity()));
    const Tensor first = op1(OpId::argmax, {kept, int_arg(int64_t(dim) + 1), true});
    return sum(where(op1(OpId::eq, {at, first}), spread, Scalar(0.0)), reduced, false);
  }
  return div(sum(where(inside, spread, Scalar(0.0)), reduced, false), count);
}

Results adaptive_pool(OpId op, const Args& args, bool maximum) {
  const int dims = op == OpId::adaptive_avg_pool1d || op == OpId::adaptive_max_pool1d ? 1 : 2;
  const Tensor input = args[0].tensor();
  const bool batched = input->dim() == dims + 2;
  const Tensor x = to_image(input, dims, batched);
  const Pair size = pair_of(op, "output_size", args[1], dims, 1);
  PoolCall c{};
  c.dims = 2, c.h = x->sizes[2], c.w = x->sizes[3];
  c.oh = size[0], c.ow = size[1];
  c.padding = {0, 0}, c.dilation = {1, 1};
  Tensor y;
  if (!maximum && size[0] == 1 && size[1] == 1) {
    y = op1(OpId::mean, {x, Sizes{2, 3}, true});
  } else if (floor_mod(c.h, size[0]) == 0 && floor_mod(c.w, size[1]) == 0) {
    c.kernel = c.stride = {floor_div(c.h, size[0]).guard(), floor_div(c.w, size[1]).guard()};
    y = maximum ? op1(OpId::pool_max, pool_args(x, c.oh, c.ow, c)) : average(x, c, true, Value());
  } else {
    // The first in row-major order is the first row's first.
    const size_t inner = maximum ? 3 : 2, outer = 5 - inner;
    y = adapt(adapt(x, inner, size[inner - 2], maximum), outer, size[outer - 2], maximum);
  }
  // Laid out as the rule says.
  const bool last = dims == 2 && batched && is_channels_last(input);
  if (last) {
    const Tensor inner = contiguous(permute(y, Sizes{0, 2, 3, 1}));
    return {permute(inner, Sizes{0, 3, 1, 2})};
  }
  return {from_image(contiguous(y), dims, batched)};
}

}  // namespace

#define LUTRA_DECOMPOSE(op, ...) \
  Results decompose_##op(const Args& args) { return __VA_ARGS__; }
LUTRA_DECOMPOSE(conv1d, convolve(OpId::conv1d, args))
LUTRA_DECOMPOSE(conv2d, convolve(OpId::conv2d, args))
LUTRA_DECOMPOSE(conv_transpose1d, convolve(OpId::conv_transpose1d, args))
LUTRA_DECOMPOSE(conv_transpose2d, convolve(OpId::conv_transpose2d, args))
LUTRA_DECOMPOSE(max_pool1d, max_pool(OpId::max_pool1d, args))
LUTRA_DECOMPOSE(max_pool2d, max_pool(OpId::max_pool2d, args))
LUTRA_DECOMPOSE(max_pool1d_with_indices, max_pool(OpId::max_pool1d_with_indices, args))
LUTRA_DECOMPOSE(max_pool2d_with_indices, max_pool(OpId::max_pool2d_with_indices, args))
LUTRA_DECOMPOSE(avg_pool1d, avg_pool(OpId::avg_pool1d, args))
LUTRA_DECOMPOSE(avg_pool2d, avg_pool(OpId::avg_pool2d, args))
LUTRA_DECOMPOSE(adaptive_avg_pool1d, adaptive_pool(OpId::adaptive_avg_pool1d, args, false))
LUTRA_DECOMPOSE(adaptive_avg_pool2d, adaptive_pool(OpId::adaptive_avg_pool2d, args, false))
LUTRA_DECOMPOSE(adaptive_max_pool1d, adaptive_pool(OpId::adaptive_max_pool1d, args, true))
LUTRA_DECOMPOSE(adaptive_max_pool2d, adaptive_pool(OpId::adaptive_max_pool2d, args, true))
#undef LUTRA_DECOMPOSE

// -- padding="same" | "valid"

namespace {

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

Results convolve_named(OpId plain, const Args& args, int dims) {
  Args numbers = args;
  numbers[4] = named_padding(name(plain), args, dims);
  return call_op(plain, numbers);
}

}  // namespace

Results decompose_conv1d_named(const Args& args) { return convolve_named(OpId::conv1d, args, 1); }
Results decompose_conv2d_named(const Args& args) { return convolve_named(OpId::conv2d, args, 2); }

}  // namespace lutra
