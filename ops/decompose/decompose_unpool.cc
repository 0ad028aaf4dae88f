// Decomposes pools by a norm, pools of windows at random places, and unpooling, which puts the values of a pool back to
// where they came from.
#include <algorithm>

#include "ops/decompose/formula.h"
#include "ops/meta/rules.h"
#include "ops/meta/spatial.h"

namespace lutra {
namespace {

// (input, norm_type, kernel_size, stride, ceil_mode). Returns the p-th root of each window's sum of p-th powers.
Results power_pool(OpId op, OpId average, const Args& a, int dims) {
  const double p = pin(a[1].as<Scalar>()).to_double();
  const Pair kernel = pair_of(op, "kernel_size", a[2], dims, 1);
  const Tensor mean = op1(average, {pow(a[0], a[1]), a[2], a[3], Sizes{0}, a[4]});
  const Tensor size = mul(sign(mean), relu(abs(mean)));
  return {pow(mul(size, vdim(kernel[0] * kernel[1])), vnum(1 / p))};
}

// Returns {h, w} of the image that was pooled: the given size, or the least possible one.
Pair image_of(OpId op, const Args& a, int dims, const Tensor& x) {
  const Pair kernel = pair_of(op, "kernel_size", a[2], dims, 1);
  const bool own = !a[3].is_none() && !a[3].as<Sizes>().empty();
  const Pair stride = own ? pair_of(op, "stride", a[3], dims, 1) : kernel;
  const Pair padding = pair_of(op, "padding", a[4], dims, 0);
  Sizes wanted = a[5].is_none() ? Sizes() : a[5].as<Sizes>();
  if (wanted.size() == size_t(dims) + 2) wanted = Sizes(wanted.begin() + 2, wanted.end());
  if (!wanted.empty() && wanted.size() != size_t(dims)) {
    fail(name(op), ": output_size must have ", dims, " or ", dims + 2, " sizes, got ", to_string(a[5].as<Sizes>()));
  }
  Pair image = {1, 1};
  for (int d = 0; d < dims; d++) {
    const size_t at = size_t(2 - dims + d);
    const int64_t n = x->sizes[x->sizes.size() - size_t(dims - d)].guard();
    image[at] = (n - 1) * stride[at] + kernel[at] - 2 * padding[at];
    if (wanted.empty()) continue;
    const int64_t size = wanted[size_t(d)].guard();
    if (size <= image[at] - stride[at] || size >= image[at] + stride[at]) {
      fail(name(op), ": output_size ", to_string(wanted), " does not go with an input of shape ", to_string(x->sizes));
    }
    image[at] = size;
  }
  return image;
}

// (input, indices, kernel_size, stride, padding, output_size)
Results unpool(OpId op, const Args& a, int dims) {
  const Tensor x = a[0].tensor(), at = a[1].tensor();
  if (!is_index(at->dtype)) fail(name(op), ": indices must be int64 or int32, got ", name(at->dtype));
  if (x->dim() != dims + 1 && x->dim() != dims + 2) {
    fail(name(op), ": expects an input of ", dims + 1, " or ", dims + 2, " dimensions, got shape ",
         to_string(x->sizes));
  }
  if (!same_sizes(x->sizes, at->sizes)) {
    fail(name(op), ": indices of shape ", to_string(at->sizes), " do not go with an input of shape ",
         to_string(x->sizes));
  }
  const Pair image = image_of(op, a, dims, x);
  if (image[0] <= 0 || image[1] <= 0) fail(name(op), ": the image would have no elements");
  const size_t maps = x->sizes.size() - size_t(dims);
  Sizes flat(x->sizes.begin(), x->sizes.begin() + long(maps)), out = flat, places = flat;
  SymInt count = 1;
  for (size_t d = maps; d < x->sizes.size(); d++) count = count * x->sizes[d];
  flat.push_back(image[0] * image[1]), places.push_back(count);
  if (dims == 2) out.push_back(image[0]);
  out.push_back(image[1]);
  const Tensor empty = full(flat, 0.0, x->dtype, x->device());
  return {reshape(op1(OpId::scatter, {empty, vdim(-1), reshape(at, places), reshape(x, places)}), out)};
}

// -- fractional_max_pool2d

// Returns where the windows of one dimension begin, (N, C, count), by one sample a channel, (N, C).
Tensor starts(const Tensor& sample, int64_t size, int64_t count, int64_t kernel) {
  const bool wide = size_of(sample->dtype) == 8;
  const double most = double(size - kernel), steps = double(std::max<int64_t>(count - 1, 1));
  const double step = wide ? most / steps : double(float(most) / float(steps));
  const Tensor i = op1(OpId::arange, {vdim(0), vdim(count), vdim(1), sample->dtype, sample->device()});
  const Tensor s = unsqueeze(sample, int_arg(-1));
  const Tensor at = trunc((i + s) * step) - trunc(s * step);
  return to_dtype(where(eq(i, Scalar(double(count - 1))), Scalar(most), at), DType::kInt64);
}

// Reshapes t to `rank` dimensions: its first `keep` sizes, its last size at `at`, ones elsewhere.
Tensor spread(const Tensor& t, size_t keep, size_t at, size_t rank) {
  Sizes sizes(rank, SymInt(1));
  for (size_t d = 0; d < keep; d++) sizes[d] = t->sizes[d];
  sizes[at] = t->sizes.back();
  return reshape(t, sizes);
}

Tensor numbers(int64_t n, Device device) {
  return op1(OpId::arange, {vdim(0), vdim(n), vdim(1), DType::kInt64, device});
}

}  // namespace

// (input, kernel_size, output_size, random_samples). Gathers each window's elements and takes the largest.
Results decompose_fractional_max_pool2d(const Args& a) {
  constexpr OpId op = OpId::fractional_max_pool2d;
  Tensor x = a[0].tensor();
  const Tensor samples = a[3].tensor();
  const bool batched = x->dim() == 4;
  if (!batched && x->dim() != 3)
    fail("fractional_max_pool2d: expects an input of 3 or 4 dimensions, got shape ", to_string(x->sizes));
  if (!batched) x = unsqueeze(x, int_arg(0));
  const Pair kernel = pair_of(op, "kernel_size", a[1], 2, 1), out = pair_of(op, "output_size", a[2], 2, 1);
  const Pair image = {x->sizes[2].guard(), x->sizes[3].guard()};
  if (!same_sizes(samples->sizes, {x->sizes[0], x->sizes[1], 2}) || samples->dtype != x->dtype) {
    fail("fractional_max_pool2d: _random_samples must be ", name(x->dtype), " of shape ",
         to_string(Sizes{x->sizes[0], x->sizes[1], 2}), ", got ", describe(samples));
  }
  for (size_t d = 0; d < 2; d++) {
    if (kernel[d] > 0 && out[d] > 0 && out[d] + kernel[d] - 1 <= image[d]) continue;
    fail("fractional_max_pool2d: windows of ", kernel[d], " at ", out[d], " places do not fit into a size of ",
         image[d]);
  }
  const auto sample = [&](int64_t k) { return op1(OpId::select, {samples, int_arg(2), int_arg(k)}); };
  const Tensor top = spread(starts(sample(1), image[0], out[0], kernel[0]), 2, 2, 6);
  const Tensor left = spread(starts(sample(0), image[1], out[1], kernel[1]), 2, 3, 6);
  const Tensor y = top + spread(numbers(kernel[0], x->device()), 0, 4, 6);
  const Tensor z = left + spread(numbers(kernel[1], x->device()), 0, 5, 6);
  const Sizes lead = {x->sizes[0], x->sizes[1]};
  const auto with = [&](std::initializer_list<int64_t> more) {
    Sizes s = lead;
    for (int64_t n : more) s.push_back(n);
    return s;
  };
  const int64_t window = kernel[0] * kernel[1];
  const Tensor at = add(mul(y, int_arg(image[1])), z);
  const Tensor line = reshape(at, with({out[0] * out[1] * window}));
  const Tensor taken = gather(reshape(x, with({image[0] * image[1]})), int_arg(2), line);
  const Results best = call_op(OpId::max_dim, {reshape(taken, with({out[0], out[1], window})), int_arg(-1), false});
  Tensor where_taken =
      gather(reshape(line, with({out[0], out[1], window})), int_arg(4), unsqueeze(best[1], int_arg(-1)));
  where_taken = op1(OpId::squeeze, {where_taken, Sizes{-1}});
  if (batched) return {best[0], where_taken};
  return {op1(OpId::squeeze, {best[0], Sizes{0}}), op1(OpId::squeeze, {where_taken, Sizes{0}})};
}

Results decompose_lp_pool1d(const Args& a) { return power_pool(OpId::lp_pool1d, OpId::avg_pool1d, a, 1); }
Results decompose_lp_pool2d(const Args& a) { return power_pool(OpId::lp_pool2d, OpId::avg_pool2d, a, 2); }
Results decompose_max_unpool1d(const Args& a) { return unpool(OpId::max_unpool1d, a, 1); }
Results decompose_max_unpool2d(const Args& a) { return unpool(OpId::max_unpool2d, a, 2); }

}  // namespace lutra
