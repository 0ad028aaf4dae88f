// Decomposes resampling of images, im2col (nn.functional.unfold) and col2im (fold).
#include "ops/core/closest.h"
#include "ops/core/error.h"
#include "ops/core/storage.h"
#include "ops/decompose/formula.h"
#include "ops/decompose/windows.h"

namespace lutra {
namespace {

// -- interpolate

// One dimension: its size before and after, and the step in the source for one element of the result.
struct Axis {
  int64_t dim;
  SymInt in, out;
  Scalar step;
};

// Returns the size `in` scaled by a factor.
SymInt scaled(SymInt in, const Scalar& factor) {
  const double out = double(in.hint) * factor.to_double();
  if (!(out >= 1 && out < 0x1p53)) {
    fail("interpolate: scale_factor ", to_string(factor), " does not go with a size of ", in.hint);
  }
  if (!factor.expr && factor.is_whole()) return in * factor.to_int();
  Scalar size = scalar_binary(SymOp::kNFloor, scalar_binary(SymOp::kNMul, Scalar::of_sym(in), factor), {});
  LUTRA_CHECK(to_integer(size), "a floor is whole");
  SymInt n(size.to_int());
  n.expr = size.expr;
  return n;
}

// Returns the factor of the image's d-th dimension; none if a size is given.
Value factor_of(const Args& args, int64_t d) {
  if (args[2].is_none()) return {};
  if (!args[2].is<std::vector<double>>()) return args[2].as<Scalar>();
  const auto& list = args[2].as<std::vector<double>>();
  const int64_t spatial = args[0].tensor()->dim() - 2;
  if (list.size() != 1 && int64_t(list.size()) != spatial) {
    fail("interpolate: scale_factor must be a number or a list of ", spatial, ", got ", list.size(), " numbers");
  }
  return Scalar(list[list.size() == 1 ? 0 : size_t(d)]);
}

// Returns the result's sizes. It refuses a result that no memory can hold before anything is computed.
Sizes result_sizes(const Tensor& x, const Args& args) {
  const int64_t spatial = x->dim() - 2;
  Sizes sizes = x->sizes;
  double bytes = double(size_of(x->dtype)) * double(x->sizes[0].hint) * double(x->sizes[1].hint);
  for (int64_t d = 0; d < spatial; d++) {
    SymInt& size = sizes[size_t(d) + 2];
    if (!args[1].is_none()) {
      const Sizes& given = args[1].as<Sizes>();
      if (given.size() != 1 && int64_t(given.size()) != spatial) {
        fail("interpolate: size must be a number or a list of ", spatial, ", got ", to_string(given));
      }
      size = given[given.size() == 1 ? 0 : size_t(d)];
    } else {
      size = scaled(size, factor_of(args, d).as<Scalar>());
    }
    if (size < 1) fail("interpolate: the result's sizes must be positive, got ", size.hint);
    bytes *= double(size.hint);
  }
  if (bytes > double(memory_bytes())) {
    throw Error(ErrorKind::kMemory, str("interpolate: out of memory: a result of shape ", to_string(sizes)));
  }
  return sizes;
}

Axis axis_of(int64_t dim, SymInt in, SymInt out, const Value& factor, bool align) {
  Axis a{dim, in, out, Scalar(0.0)};
  if (align) {
    if (out > 1) a.step = scalar_binary(SymOp::kNDiv, Scalar::of_sym(in - 1), Scalar::of_sym(out - 1));
  } else if (!factor.is_none()) {
    a.step = scalar_binary(SymOp::kNDiv, Scalar(1.0), factor.as<Scalar>());
  } else {
    a.step = scalar_binary(SymOp::kNDiv, Scalar::of_sym(in), Scalar::of_sym(out));
  }
  return a;
}

Tensor picked(const Tensor& x, int64_t dim, const Tensor& index) {
  return op1(OpId::index_select, {x, vdim(dim), index});
}

Tensor within(const Tensor& index, SymInt n) { return op1(OpId::clamp, {index, Value(), vint(n - 1)}); }

Tensor nearest(const Tensor& x, const Axis& a, bool exact) {
  Tensor at = counting(a.out, x, DType::kFloat32);
  if (exact) at = op1(OpId::add, {at, vnum(0.5)});
  return picked(x, a.dim, within(to_dtype(op1(OpId::mul, {at, a.step}), DType::kInt64), a.in));
}

// Returns the places of the result's elements in the source.
Tensor places(const Tensor& x, const Axis& a, bool align) {
  const Tensor at = counting(a.out, x, x->dtype);
  if (align) return op1(OpId::mul, {at, a.step});
  return op1(OpId::sub, {op1(OpId::mul, {op1(OpId::add, {at, vnum(0.5)}), a.step}), vnum(0.5)});
}

// Reshapes a vector of a.out numbers so that it lies along the axis.
Tensor along(const Tensor& x, const Axis& a, const Tensor& vector) {
  Sizes shape(x->sizes.size(), SymInt(1));
  shape[size_t(a.dim)] = a.out;
  return reshape(vector, shape);
}

Tensor linear(const Tensor& x, const Axis& a, bool align) {
  Tensor at = places(x, a, align);
  if (!align) at = op1(OpId::clamp, {at, vnum(0), Value()});
  const Tensor low = within(to_dtype(at, DType::kInt64), a.in);
  const Tensor high = within(op1(OpId::add, {low, vdim(1)}), a.in);
  const Tensor weight =
      along(x, a, op1(OpId::clamp, {op1(OpId::sub, {at, to_dtype(low, x->dtype)}), vnum(0), vnum(1)}));
  const Tensor below = op1(OpId::mul, {picked(x, a.dim, low), op1(OpId::sub, {vnum(1), weight})});
  return op1(OpId::add, {below, op1(OpId::mul, {picked(x, a.dim, high), weight})});
}

// The cubic convolution kernel of constant c at a distance up to 1, and from 1 to 2.
Tensor cubic_near(const Tensor& t, double c) { return ((c + 2) * t - (c + 3.0)) * t * t + 1.0; }
Tensor cubic_far(const Tensor& t, double c) { return ((c * t - 5 * c) * t + 8 * c) * t - 4 * c; }

Tensor cubic(const Tensor& x, const Axis& a, bool align) {
  const double c = -0.75;
  const Tensor at = places(x, a, align), floor = op1(OpId::floor, {at}), t = at - floor;
  const Tensor weights[] = {cubic_far(t + 1.0, c), cubic_near(t, c), cubic_near(1.0 - t, c), cubic_far(2.0 - t, c)};
  const Tensor low = to_dtype(floor, DType::kInt64);
  Tensor total;
  for (int64_t k = 0; k < 4; k++) {
    const Tensor index = op1(OpId::clamp, {op1(OpId::add, {low, vdim(k - 1)}), vdim(0), vint(a.in - 1)});
    const Tensor term = picked(x, a.dim, index) * along(x, a, weights[k]);
    total = total ? total + term : term;
  }
  return total;
}

// antialias: multiplies with a matrix that maps the axis to the result's, by a kernel as wide as the step.
Tensor filtered(const Tensor& x, const Axis& a, bool is_cubic) {
  const double step = std::max(pin(a.step).to_double(), 1.0), support = (is_cubic ? 2.0 : 1.0) * step;
  const Tensor centre = unsqueeze((counting(a.out, x, DType::kFloat64) + 0.5) * pin(a.step).to_double(), vdim(1));
  const Tensor j = counting(a.in, x, DType::kFloat64);
  const Tensor first = op1(OpId::trunc, {clamp(centre - support + 0.5, vnum(0), Value())});
  const Tensor last = op1(OpId::trunc, {clamp(centre + support + 0.5, Value(), vint(a.in))});
  const Tensor d = op1(OpId::abs, {(j - centre + 0.5) * (1 / step)});
  Tensor weight = clamp(1.0 - d, vnum(0), Value());
  if (is_cubic) {
    const Tensor far = where(lt(d, vnum(2)), cubic_far(d, -0.5), vnum(0));
    weight = where(lt(d, vnum(1)), cubic_near(d, -0.5), far);
  }
  weight = where(logical_and(ge(j, first), lt(j, last)), weight, vnum(0));
  weight = to_dtype(weight / sum(weight, {1}, true), x->dtype);
  const Tensor columns = transpose(weight, vdim(0), vdim(1));
  return transpose(op1(OpId::matmul, {transpose(x, vdim(a.dim), vdim(-1)), columns}), vdim(a.dim), vdim(-1));
}

// mode="area": means of windows. In three dimensions the last two come first.
Tensor area(const Tensor& x, const Sizes& sizes) {
  const Sizes& in = x->sizes;
  if (x->dim() == 3) return op1(OpId::adaptive_avg_pool1d, {x, Sizes{sizes[2]}});
  if (x->dim() == 4) return op1(OpId::adaptive_avg_pool2d, {x, Sizes{sizes[2], sizes[3]}});
  const SymInt images = in[0] * in[1];
  Tensor y =
      op1(OpId::adaptive_avg_pool2d, {reshape(x, Sizes{images, in[2], in[3], in[4]}), Sizes{sizes[3], sizes[4]}});
  const SymInt plane = sizes[3] * sizes[4];
  y = op1(OpId::adaptive_avg_pool2d, {reshape(y, Sizes{images, 1, in[2], plane}), Sizes{sizes[2], plane}});
  return reshape(y, sizes);
}

struct Sampling {
  bool is_linear, is_cubic, align, antialias;
};

void check_rank(const std::string& mode, const Tensor& x, int64_t spatial) {
  if (x->dim() == spatial + 2) return;
  fail("interpolate: mode '", mode, "' needs an input of ", spatial + 2, " dimensions, got shape ",
       to_string(x->sizes));
}

Sampling checked_sampling(const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  const std::string& mode = args[3].as<std::string>();
  const int64_t spatial = x->dim() - 2;
  Sampling s{mode == "linear" || mode == "bilinear" || mode == "trilinear", mode == "bicubic", false,
             args[6].as<bool>()};
  if (spatial < 1 || spatial > 3) {
    fail("interpolate: the input must have 3 to 5 dimensions, got shape ", to_string(x->sizes));
  }
  const KnownNames modes = {"nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"};
  if (!modes.have(mode)) fail("interpolate: mode '", mode, "' is unknown", modes.expected(mode));
  if (s.is_linear) check_rank(mode, x, mode == "linear" ? 1 : mode == "bilinear" ? 2 : 3);
  if (s.is_cubic) check_rank(mode, x, 2);
  if (!s.is_linear && !s.is_cubic && !args[4].is_none()) {
    fail("interpolate: align_corners can only be given with the linear and cubic modes, got mode '", mode, "'");
  }
  if (s.antialias && mode != "bilinear" && mode != "bicubic") {
    fail("interpolate: antialias can only be given with modes 'bilinear' and 'bicubic', got mode '", mode, "'");
  }
  if (args[1].is_none() == args[2].is_none()) fail("interpolate: give either size or scale_factor");
  const bool bytes = x->dtype == DType::kUInt8 && mode != "area" && mode != "linear" && mode != "trilinear";
  if (!is_float(x->dtype) && !bytes) {
    fail("interpolate: mode '", mode, "' is not defined for ", name(x->dtype), " tensors");
  }
  s.align = !args[4].is_none() && args[4].as<bool>();
  return s;
}

}  // namespace

// (input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
Results decompose_interpolate(const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  const Sampling s = checked_sampling(args);
  const bool recompute = !args[5].is_none() && args[5].as<bool>();
  if (recompute && args[2].is_none()) fail("interpolate: recompute_scale_factor needs scale_factor");
  const DType type = x->dtype;
  const Sizes sizes = result_sizes(x, args);
  if (args[3].as<std::string>() == "area") return {area(x, sizes)};
  const bool computes = s.is_linear || s.is_cubic;
  Tensor y = computes && type != DType::kFloat64 ? to_dtype(x, DType::kFloat32) : x;
  for (int64_t d = x->dim() - 1; d >= 2; d--) {
    const Value factor = recompute ? Value() : factor_of(args, d - 2);
    const Axis a = axis_of(d, x->sizes[size_t(d)], sizes[size_t(d)], factor, s.align);
    if (s.antialias)
      y = filtered(y, a, s.is_cubic);
    else if (s.is_cubic)
      y = cubic(y, a, s.align);
    else
      y = s.is_linear ? linear(y, a, s.align) : nearest(y, a, args[3].as<std::string>() == "nearest-exact");
  }
  if (computes && !is_float(type)) y = clamp(op1(OpId::floor, {y + 0.5}), vnum(0), vnum(255));
  return {to_dtype(y, type)};
}

// Takes one factor for each dimension.
Results decompose_interpolate_scaled(const Args& args) { return decompose_interpolate(args); }

// -- im2col and col2im

namespace {

struct Blocks {
  SymInt kernel[2], dilation[2], padding[2], stride[2], count[2];
};

SymInt entry(const char* fn, const char* argument, const Value& v, size_t d, int64_t least) {
  const Sizes& list = v.as<Sizes>();
  if (list.size() != 1 && list.size() != 2) {
    fail(fn, ": ", argument, " must be a number or a list of 2, got ", to_string(list));
  }
  const SymInt n = list[list.size() == 1 ? 0 : d];
  if (n < least) fail(fn, ": ", argument, least ? " must be positive" : " must not be negative", ", got ", n.hint);
  return n;
}

// Reads kernel_size, dilation, padding and stride from args[first] on.
Blocks blocks_of(const char* fn, const Args& args, size_t first, SymInt h, SymInt w) {
  Blocks b;
  for (size_t d = 0; d < 2; d++) {
    b.kernel[d] = entry(fn, "kernel_size", args[first], d, 1);
    b.dilation[d] = entry(fn, "dilation", args[first + 1], d, 1);
    b.padding[d] = entry(fn, "padding", args[first + 2], d, 0);
    b.stride[d] = entry(fn, "stride", args[first + 3], d, 1);
    const SymInt room = (d ? w : h) + b.padding[d] * 2 - (b.kernel[d] - 1) * b.dilation[d] - 1;
    if (room < 0) fail(fn, ": the blocks do not fit into an image of {", h.hint, ", ", w.hint, "}");
    b.count[d] = floor_div(room, b.stride[d]) + 1;
  }
  return b;
}

// Applies f to a batch: an input of dimension dim - 1 becomes a batch of one.
template <class F>
Results on_batch(const char* fn, const Tensor& x, int64_t dim, const F& f) {
  if (x->dim() != dim && x->dim() != dim - 1) {
    fail(fn, ": the input must have ", dim - 1, " (unbatched) or ", dim, " dimensions, got shape ",
         to_string(x->sizes));
  }
  if (x->dim() == dim) return {f(x)};
  return {op1(OpId::select, {f(op1(OpId::unsqueeze, {x, vdim(0)})), vdim(0), vdim(0)})};
}

Tensor im2col(Tensor x, const Args& args) {
  const Blocks b = blocks_of("nn.functional.unfold", args, 1, x->sizes[2], x->sizes[3]);
  const SymInt c = x->sizes[1];
  if (b.padding[0] != 0 || b.padding[1] != 0) {
    x = op1(OpId::constant_pad_nd, {x, Sizes{b.padding[1], b.padding[1], b.padding[0], b.padding[0]}, vnum(0)});
  }
  for (int64_t d = 0; d < 2; d++) {
    const SymInt spans = (b.kernel[d] - 1) * b.dilation[d] + 1;
    x = op1(OpId::unfold, {x, vdim(d + 2), vint(spans), vint(b.stride[d])});
  }
  for (int64_t d = 0; d < 2; d++) {
    if (b.dilation[d] != 1) x = op1(OpId::slice, {x, vdim(d + 4), Value(), Value(), vint(b.dilation[d])});
  }
  x = op1(OpId::permute, {x, Sizes{0, 1, 4, 5, 2, 3}});
  return reshape(x, Sizes{x->sizes[0], c * b.kernel[0] * b.kernel[1], b.count[0] * b.count[1]});
}

}  // namespace

// (input, kernel_size, dilation, padding, stride). Turns {n, c, h, w} into {n, c * kh * kw, blocks}. n may be missing.
Results decompose_im2col(const Args& args) {
  return on_batch("nn.functional.unfold", args[0].as<Tensor>(), 4, [&](const Tensor& x) { return im2col(x, args); });
}

namespace {

// The most sums of whole images. More windows over one element are added by positions.
constexpr int64_t kMostSums = 16;

// Pads a dimension by zeros, or cuts it (a negative number).
Tensor padded(const Tensor& x, int64_t dim, SymInt before, SymInt after) {
  if (before == 0 && after == 0) return x;
  Sizes pad(2 * (x->sizes.size() - size_t(dim)), SymInt(0));
  pad[pad.size() - 2] = before, pad[pad.size() - 1] = after;
  return op1(OpId::constant_pad_nd, {x, pad, vnum(0)});
}

// Adds by positions, in any order of windows.
Tensor add_at_positions(const Tensor& x, int64_t taps, int64_t windows, SymInt stride, SymInt dilation, SymInt size) {
  const SymInt n = x->sizes[size_t(taps)] * x->sizes[size_t(windows)];
  const Tensor k = op1(OpId::mul, {counting(x->sizes[size_t(taps)], x), vint(dilation)});
  const Tensor i = op1(OpId::mul, {counting(x->sizes[size_t(windows)], x), vint(stride)});
  const Tensor at = reshape(op1(OpId::add, {op1(OpId::unsqueeze, {i, vdim(1)}), k}), Sizes{n});
  Sizes order, joined, all;
  for (int64_t d = 0; d < x->dim(); d++) {
    if (d == taps) continue;
    order.push_back(d);
    if (d == windows) order.push_back(taps);
    joined.push_back(d == windows ? n : x->sizes[size_t(d)]);
    all.push_back(d == windows ? size : x->sizes[size_t(d)]);
  }
  const Tensor zeros = full(all, Scalar(0.0), x->dtype, x->device());
  return op1(OpId::index_add, {zeros, vdim(windows - 1), at, reshape(op1(OpId::permute, {x, order}), joined)});
}

}  // namespace

// Position i * stride + r takes element a * stride + r of window i - a, for each a. So the sum over a of windows, each
// shifted by a, has all positions of one r in order.
Tensor add_windows(const Tensor& x, int64_t taps, int64_t windows, SymInt stride, SymInt dilation, SymInt size) {
  const SymInt kernel = x->sizes[size_t(taps)], count = x->sizes[size_t(windows)];
  const SymInt sums = floor_div(kernel + stride - 1, stride);
  if ((dilation != 1 && stride != 1) || sums > kMostSums || sums == 0 || count == 0) {
    return add_at_positions(x, taps, windows, stride, dilation, size);
  }
  const size_t last = x->sizes.size() - 1;
  if (size_t(windows) < last && x->strides[size_t(windows)] < x->strides[last]) {
    // Rows of windows lie in memory, so they become the last dimension, also of the copies.
    const Tensor rows = op1(OpId::movedim, {x, Sizes{windows}, Sizes{int64_t(last)}});
    const Tensor y = add_windows(rows, taps, int64_t(last), stride, dilation, size);
    return op1(OpId::movedim, {y, Sizes{int64_t(last) - 1}, Sizes{windows - 1}});
  }
  const SymInt shifts = (sums - 1) * dilation, steps = count + shifts;
  const Tensor all = padded(padded(x, windows, shifts, shifts), taps, 0, sums * stride - kernel);
  Tensor y;
  for (int64_t a = sums.guard() - 1; a >= 0; a--) {
    const SymInt first = shifts - dilation * SymInt(a);
    const Tensor shifted = part(part(all, windows, first, first + steps), taps, stride * a, stride * (a + 1));
    y = y ? y + shifted : shifted;
  }
  Sizes order, joined;
  for (int64_t d = 0; d < x->dim(); d++) {
    if (d == taps) continue;
    order.push_back(d);
    if (d == windows) order.push_back(taps);
    joined.push_back(d == windows ? steps * stride : x->sizes[size_t(d)]);
  }
  y = reshape(op1(OpId::permute, {y, order}), joined);
  return padded(y, windows - 1, 0, size - steps * stride);
}

namespace {

Tensor col2im(Tensor x, const Args& args) {
  const SymInt h = entry("fold", "output_size", args[1], 0, 1), w = entry("fold", "output_size", args[1], 1, 1);
  const Blocks b = blocks_of("fold", args, 2, h, w);
  const SymInt area = b.kernel[0] * b.kernel[1], n = x->sizes[0];
  if (floor_mod(x->sizes[1], area) != 0) {
    fail("fold: dim 1 of the input must be a multiple of the kernel's ", area.hint, " elements, got shape ",
         to_string(x->sizes));
  }
  if (x->sizes[2] != b.count[0] * b.count[1]) {
    fail("fold: expected ", (b.count[0] * b.count[1]).hint, " blocks, got ", x->sizes[2].hint, " in shape ",
         to_string(x->sizes));
  }
  const SymInt c = floor_div(x->sizes[1], area);
  x = reshape(x, Sizes{n, c, b.kernel[0], b.kernel[1], b.count[0], b.count[1]});
  const SymInt wide = w + b.padding[1] * 2, high = h + b.padding[0] * 2;
  x = add_windows(x, 3, 5, b.stride[1], b.dilation[1], wide);
  x = add_windows(x, 2, 3, b.stride[0], b.dilation[0], high);
  x = op1(OpId::slice, {x, vdim(2), vint(b.padding[0]), vint(b.padding[0] + h), vdim(1)});
  return op1(OpId::contiguous, {op1(OpId::slice, {x, vdim(3), vint(b.padding[1]), vint(b.padding[1] + w), vdim(1)})});
}

}  // namespace

// (input, output_size, kernel_size, dilation, padding, stride). Sums overlapping blocks.
Results decompose_col2im(const Args& args) {
  return on_batch("fold", args[0].as<Tensor>(), 3, [&](const Tensor& x) { return col2im(x, args); });
}

}  // namespace lutra
