// Decomposes convolutions and pools of any rank and batch into primitives on batched images.
#include <limits>

#include "ops/core/closest.h"
#include "ops/decompose/emit.h"
#include "ops/meta/spatial.h"

namespace lutra {
namespace {

// Convert a caller's input to {n, c, h, w} and back.
Tensor to_image(const Tensor& x, int dims, bool batched) {
  Tensor t = batched ? x : unsqueeze(x, int_arg(0));
  return dims == 2 ? t : unsqueeze(t, int_arg(2));
}
Tensor from_image(const Tensor& y, int dims, bool batched) {
  if (dims == 2 && batched) return y;
  return contiguous(reshape(contiguous(y), caller_sizes(y->sizes, dims, batched)));
}

// Convolves integers: multiplies the windows, as columns, with the weight, as one matrix a group. A transposed
// convolution adds the products up to an image.
Tensor convolve_integers(const Tensor& x, const Tensor& w, const ConvCall& c) {
  const SymInt n = x->sizes[0], per_group = w->sizes[1], groups = c.groups;
  const Sizes kernel = {w->sizes[2], w->sizes[3]}, none = {0};
  const SymInt taps = w->sizes[2] * w->sizes[3];
  const auto& p = c.padding;
  const Value dilation = sizes_of(c.dilation), stride = sizes_of(c.stride);
  const auto padded = [](const Tensor& t, int64_t top, int64_t left, int64_t bottom, int64_t right) {
    return op1(OpId::constant_pad_nd, {t, Sizes{left, right, top, bottom}, int_arg(0)});
  };
  if (!c.transposed) {
    const Tensor columns = op1(OpId::im2col, {padded(x, p[0], p[1], p[2], p[3]), kernel, dilation, none, stride});
    const Tensor of_groups = reshape(columns, Sizes{n, groups, per_group * taps, columns->sizes[2]});
    const Tensor filters = reshape(w, Sizes{groups, floor_div(w->sizes[0], groups), per_group * taps});
    return reshape(op1(OpId::matmul, {filters, of_groups}), c.out);
  }
  const SymInt channels = floor_div(w->sizes[0], groups), places = x->sizes[2] * x->sizes[3];
  const Tensor filters = transpose(reshape(w, Sizes{groups, channels, per_group * taps}), int_arg(1), int_arg(2));
  const Tensor products = op1(OpId::matmul, {filters, reshape(x, Sizes{n, groups, channels, places})});
  const Sizes whole = {c.out[2] + (p[0] + p[2]), c.out[3] + (p[1] + p[3])};
  const Tensor columns = reshape(products, Sizes{n, c.out[1] * taps, places});
  const Tensor image = op1(OpId::col2im, {columns, whole, kernel, dilation, none, stride});
  return padded(image, -p[0], -p[1], -p[2], -p[3]);
}

Results convolve(OpId op, const Args& args) {
  const ConvCall c = conv_call(op, args);
  const Tensor x = to_image(args[0].tensor(), c.dims, c.batched);
  const Tensor w = c.dims == 2 ? args[1].tensor() : unsqueeze(args[1], int_arg(2));
  Sizes padding;
  for (int64_t p : c.padding) padding.push_back(p);
  const Value stride = sizes_of(c.stride), dilation = sizes_of(c.dilation), groups = int_arg(c.groups);
  Tensor y;
  if (!is_float(x->dtype)) {
    y = convolve_integers(x, w, c);
    if (!args[2].is_none()) y = add(y, reshape(args[2].tensor(), Sizes{1, c.out[1], 1, 1}));
    return {conform(op, args, from_image(y, c.dims, c.batched))};
  }
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

// Returns the position h * W + w of each tap in the image.
Tensor tap_positions(const Args& pool, const PoolCall& c) {
  const Tensor tap = to_dtype(op1(OpId::pool_tap, pool), DType::kInt64);
  const Tensor kh = floor_divide(tap, int_arg(c.kernel[1])), kw = sub(tap, mul(kh, int_arg(c.kernel[1])));
  const auto origin = [&](SymInt n, int64_t stride, int64_t padding) {
    return sub(mul(counting(n, tap), int_arg(stride)), int_arg(padding));
  };
  const Tensor h = add(unsqueeze(origin(c.oh, c.stride[0], c.padding[0]), int_arg(1)), mul(kh, int_arg(c.dilation[0])));
  const Tensor w = add(mul(kw, int_arg(c.dilation[1])), origin(c.ow, c.stride[1], c.padding[1]));
  return add(mul(h, Scalar::of_sym(c.w)), w);
}

Results max_pool(OpId op, const Args& args) {
  const PoolCall c = pool_call(op, args);
  const Tensor x = to_image(args[0].tensor(), c.dims, c.batched);
  const Args pool = pool_args(x, c.oh, c.ow, c);
  Results results = {from_image(op1(OpId::pool_max, pool), c.dims, c.batched)};
  if (info(op).results == 1) return results;
  results.push_back(from_image(tap_positions(pool, c), c.dims, c.batched));
  return results;
}

Tensor quotient(const Tensor& sums, const Value& count) {
  return is_float(sums->dtype) ? div(sums, count) : op1(OpId::div, {sums, count, std::string("trunc")});
}

// Divides the sums of windows by the number of their elements.
Tensor average(const Tensor& x, const PoolCall& c, bool count_padding, const Value& divisor) {
  const Tensor sums = op1(OpId::pool_sum, pool_args(x, c.oh, c.ow, c));
  if (!divisor.is_none()) return quotient(sums, divisor);
  const bool padded = c.padding[0] || c.padding[1];
  if (!c.ceil && (count_padding || !padded)) return quotient(sums, int_arg(c.kernel[0] * c.kernel[1]));
  // Counts elements by pooling ones: ones in the image, and in the padding if that counts.
  PoolCall ones = c;
  SymInt h = c.h, w = c.w;
  if (count_padding) h = h + 2 * c.padding[0], w = w + 2 * c.padding[1], ones.padding = {0, 0};
  const Tensor one = full(Sizes{1, 1, h, w}, 1.0, x->dtype, x->device());
  return quotient(sums, op1(OpId::pool_sum, pool_args(one, c.oh, c.ow, ones)));
}

// Gives a pool's result the layout of its rule, channels innermost. Pointwise ops would lose it for an image of one
// pixel.
Tensor by_channels(const Tensor& t) {
  if (t->sizes[2] != 1 || t->sizes[3] != 1) return t;
  return permute(reshape(t, Sizes{t->sizes[0], 1, 1, t->sizes[1]}), Sizes{0, 3, 1, 2});
}

Results avg_pool(OpId op, const Args& args) {
  const PoolCall c = pool_call(op, args);
  const Tensor input = args[0].tensor(), x = to_image(input, c.dims, c.batched);
  const Value divisor = op == OpId::avg_pool2d ? args[6] : Value();
  const Tensor y = conform(op, args, from_image(average(x, c, args[5].as<bool>(), divisor), c.dims, c.batched));
  return {c.dims == 2 && c.batched && is_channels_last(input) ? by_channels(y) : y};
}

// The reduced windows of x's dimension `dim` (2 or 3), and the places of maxima along it.
struct Adapted {
  Tensor values, places;
};

// Reduces `size` windows [floor(i * n / size), ceil((i + 1) * n / size)). The first of equal maxima gets the gradient.
Adapted adapt(const Tensor& x, size_t dim, int64_t size, bool maximum) {
  const SymInt n = x->sizes[dim];
  const auto along = [&](const Tensor& t) { return dim == 2 ? unsqueeze(t, int_arg(-1)) : t; };
  if (n == size) return {x, maximum ? expand(along(counting(n, x)), x->sizes) : Tensor()};
  const Sizes reduced = {int64_t(dim) + 1};
  const Tensor i = counting(size, x), at = counting(n, x);
  const Tensor begin = floor_divide(mul(i, Scalar::of_sym(n)), int_arg(size));
  const Tensor end = floor_divide(add(mul(add(i, int_arg(1)), Scalar::of_sym(n)), int_arg(size - 1)), int_arg(size));
  const Tensor inside = along(logical_and(ge(at, unsqueeze(begin, int_arg(1))), lt(at, unsqueeze(end, int_arg(1)))));
  const Tensor spread = unsqueeze(x, int_arg(int64_t(dim)));
  if (!maximum) {
    const Tensor count = along(to_dtype(sub(end, begin), x->dtype));
    return {div(sum(where(inside, spread, Scalar(0.0)), reduced, false), count), {}};
  }
  const Tensor kept = where(inside, spread, Scalar(-std::numeric_limits<double>::infinity()));
  // If a window has only -inf, argmax finds the row's first place, which may lie before the window.
  const Tensor largest = op1(OpId::argmax, {kept, int_arg(int64_t(dim) + 1), true});
  const Tensor first = op1(OpId::maximum, {largest, along(unsqueeze(begin, int_arg(1)))});
  const Tensor values = sum(where(eq(along(at), first), spread, Scalar(0.0)), reduced, false);
  return {values, reshape(first, values->sizes)};
}

// Computes the means or the largest elements, and the positions h * W + w of the latter.
Adapted adaptive_windows(const Tensor& x, const Pair& size, bool maximum, bool positions) {
  PoolCall c{};
  c.dims = 2, c.h = x->sizes[2], c.w = x->sizes[3];
  c.oh = size[0], c.ow = size[1];
  c.padding = {0, 0}, c.dilation = {1, 1};
  if (size[0] == 0 || size[1] == 0 || x->numel() == 0) {
    const Sizes empty = {x->sizes[0], x->sizes[1], size[0], size[1]};
    // The sum over no elements, so that the result has a history.
    const Tensor values = add(full(empty, 0.0, x->dtype, x->device()), sum_all(x));
    return {values, full(empty, 0.0, DType::kInt64, x->device())};
  }
  if (!maximum && size[0] == 1 && size[1] == 1) return {op1(OpId::mean, {x, Sizes{2, 3}, true}), {}};
  if (floor_mod(c.h, size[0]) == 0 && floor_mod(c.w, size[1]) == 0) {
    c.kernel = c.stride = {floor_div(c.h, size[0]).guard(), floor_div(c.w, size[1]).guard()};
    if (!maximum) return {average(x, c, true, Value()), {}};
    const Args pool = pool_args(x, c.oh, c.ow, c);
    return {op1(OpId::pool_max, pool), positions ? tap_positions(pool, c) : Tensor()};
  }
  if (!maximum) return adapt(adapt(x, 2, size[0], false).values, 3, size[1], false);
  // The first maximum in row-major order is the first one of the first row that has it.
  const Adapted rows = adapt(x, 3, size[1], true), y = adapt(rows.values, 2, size[0], true);
  if (!positions) return y;
  return {y.values, add(mul(y.places, Scalar::of_sym(c.w)), gather(rows.places, int_arg(2), y.places))};
}

Results adaptive_pool(OpId op, const Args& args, int dims, bool maximum) {
  const Tensor input = args[0].tensor();
  const bool batched = input->dim() == dims + 2, two = info(op).results == 2;
  const Tensor x = to_image(input, dims, batched);
  const Adapted y = adaptive_windows(x, pair_of(op, "output_size", args[1], dims, 1), maximum, two);
  // Gives a result the layout of the meta rule.
  const bool last = dims == 2 && batched && is_channels_last(input);
  const auto laid_out = [&](const Tensor& t) {
    if (!last) return from_image(contiguous(t), dims, batched);
    return by_channels(permute(contiguous(permute(t, Sizes{0, 2, 3, 1})), Sizes{0, 3, 1, 2}));
  };
  Results results = {laid_out(y.values)};
  if (two) results.push_back(laid_out(y.places));
  return results;
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
LUTRA_DECOMPOSE(adaptive_avg_pool1d, adaptive_pool(OpId::adaptive_avg_pool1d, args, 1, false))
LUTRA_DECOMPOSE(adaptive_avg_pool2d, adaptive_pool(OpId::adaptive_avg_pool2d, args, 2, false))
LUTRA_DECOMPOSE(adaptive_max_pool1d, adaptive_pool(OpId::adaptive_max_pool1d, args, 1, true))
LUTRA_DECOMPOSE(adaptive_max_pool2d, adaptive_pool(OpId::adaptive_max_pool2d, args, 2, true))
LUTRA_DECOMPOSE(adaptive_max_pool1d_with_indices, adaptive_pool(OpId::adaptive_max_pool1d_with_indices, args, 1, true))
LUTRA_DECOMPOSE(adaptive_max_pool2d_with_indices, adaptive_pool(OpId::adaptive_max_pool2d_with_indices, args, 2, true))
#undef LUTRA_DECOMPOSE

// -- padding="same" | "valid"

namespace {

// Returns zeros before and after; an odd one comes after.
Value named_padding(const char* fn, const Args& args, int dims) {
  const std::string& text = args[4].as<std::string>();
  if (text == "valid") return Sizes{0};
  if (text != "same") {
    fail(fn, ": padding must be 'same', 'valid' or numbers, got '", text, "'",
         KnownNames{"same", "valid"}.question(text));
  }
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
