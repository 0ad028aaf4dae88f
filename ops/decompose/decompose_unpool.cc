// Pools by a norm, and images in which the values of a pool stand where it took them.
#include "ops/decompose/formula.h"
#include "ops/meta/rules.h"
#include "ops/meta/spatial.h"

namespace lutra {
namespace {

// (input, norm_type, kernel_size, stride, ceil_mode): the sum of p-th powers of each window, its p-th root.
Results power_pool(OpId op, OpId average, const Args& a, int dims) {
  const double p = pin(a[1].as<Scalar>()).to_double();
  const Pair kernel = pair_of(op, "kernel_size", a[2], dims, 1);
  const Tensor mean = op1(average, {pow(a[0], a[1]), a[2], a[3], Sizes{0}, a[4]});
  const Tensor size = mul(sign(mean), relu(abs(mean)));
  return {pow(mul(size, vdim(kernel[0] * kernel[1])), vnum(1 / p))};
}

// {h, w} of the image that was pooled, asked for or the least one.
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

}  // namespace

Results decompose_lp_pool1d(const Args& a) { return power_pool(OpId::lp_pool1d, OpId::avg_pool1d, a, 1); }
Results decompose_lp_pool2d(const Args& a) { return power_pool(OpId::lp_pool2d, OpId::avg_pool2d, a, 2); }
Results decompose_max_unpool1d(const Args& a) { return unpool(OpId::max_unpool1d, a, 1); }
Results decompose_max_unpool2d(const Args& a) { return unpool(OpId::max_unpool2d, a, 2); }

}  // namespace lutra
