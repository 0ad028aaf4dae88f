// Decomposes grid_sample, which reads images at the places of a grid, and affine_grid.
#include <array>

#include "ops/core/error.h"
#include "ops/decompose/formula.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// Converts coordinates from -1 to 1, edge to edge, to positions of elements. With aligned corners they go from the
// centre of the first element to that of the last.
Tensor unnormalised(const Tensor& at, SymInt n, bool align) {
  const Tensor shifted = at + 1.0;
  if (align) return mul(shifted, scalar_binary(SymOp::kNMul, Scalar::of_sym(n - 1), Scalar(0.5)));
  return (mul(shifted, Scalar::of_sym(n)) - 1.0) * 0.5;
}

// Mirrors positions at the centres of the first and the last of n elements, or half an element outside of them, until
// they lie between these places.
Tensor reflected(const Tensor& at, SymInt n, bool at_centres) {
  if (at_centres && n == 1) return zeros_like(at);
  const double low = at_centres ? 0 : -0.5;
  const Scalar span = Scalar::of_sym(at_centres ? n - 1 : n);
  const Scalar inverse = scalar_binary(SymOp::kNDiv, 1.0, span), high = scalar_binary(SymOp::kNAdd, span, low);
  const Tensor from_low = abs(at - low), turns = op1(OpId::floor, {mul(from_low, inverse)}),
               rest = sub(from_low, mul(turns, span));
  const Tensor odd = eq(turns - op1(OpId::floor, {turns * 0.5}) * 2.0, vnum(1));  // a remainder takes a division
  return where(odd, sub(high, rest), rest + low);
}

Tensor kept_inside(const Tensor& x, SymInt n, const std::string& padding, bool align) {
  if (padding == "zeros") return x;
  // As in PyTorch, a NaN is moved to 0, and a place at the edge has no gradient: a clamp would keep both.
  const Tensor place = padding == "border" ? x : reflected(x, n, align);
  return where(gt(place, vnum(0)), where(lt(place, vint(n - 1)), place, vint(n - 1)), vnum(0));
}

struct Image {
  Tensor flat;  // {n, c, h * w}
  SymInt n, c, h, w;
};

// Reads the elements at whole places {n, 1, p} as {n, c, p}. They are zero outside of the image. zero_grad: the
// gradient of x is zeros, not none.
Tensor read_at(const Image& image, const Tensor& y, const Tensor& x, bool zero_grad = false) {
  const auto inside_of = [](const Tensor& t, SymInt n) { return logical_and(ge(t, vnum(0)), lt(t, vint(n))); };
  const Tensor inside = logical_and(inside_of(y, image.h), inside_of(x, image.w));
  const auto whole = [&](const Tensor& t) { return to_dtype(where(inside, t, vnum(0)), DType::kInt64); };
  const Tensor flat = add(mul(whole(y), vint(image.w)), whole(x));
  const Tensor index = expand(flat, Sizes{image.n, image.c, flat->sizes[2]});
  const Tensor taken = gather(image.flat, vdim(2), index);
  // The inner `where` is 0 too wherever it is taken.
  return zero_grad ? where(inside, taken, where(inside, x, vnum(0))) : where(inside, taken, vnum(0));
}

Tensor bilinear(const Image& image, const Tensor& y, const Tensor& x) {
  const Tensor top = op1(OpId::floor, {y}), left = op1(OpId::floor, {x});
  const Tensor down = y - top, right = x - left;
  Tensor total;
  for (int corner = 0; corner < 4; corner++) {
    const bool low = corner / 2, far = corner % 2;
    const Tensor weight = (low ? down : 1.0 - down) * (far ? right : 1.0 - right);
    const Tensor term = read_at(image, low ? top + 1.0 : top, far ? left + 1.0 : left) * weight;
    total = total ? total + term : term;
  }
  return total;
}

// Returns the weights of the four elements around a place that lies `t` behind the second. PyTorch's A is -0.75.
std::array<Tensor, 4> cubic_weights(const Tensor& t) {
  const double a = -0.75;
  const auto near = [&](const Tensor& x) { return ((a + 2) * x - (a + 3)) * x * x + 1.0; };
  const auto far = [&](const Tensor& x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)};
}

// `at` moves the place of each of the 16 elements into the image.
template <class F>
Tensor bicubic(const Image& image, const Tensor& y, const Tensor& x, F at) {
  const Tensor top = op1(OpId::floor, {y}), left = op1(OpId::floor, {x});
  const auto down = cubic_weights(y - top), across = cubic_weights(x - left);
  Tensor total;
  for (int r = 0; r < 4; r++) {
    Tensor row;
    for (int c = 0; c < 4; c++) {
      const Tensor taken = read_at(image, at(top + double(r - 1), image.h), at(left + double(c - 1), image.w));
      const Tensor term = taken * across[size_t(c)];
      row = row ? row + term : term;
    }
    const Tensor term = row * down[size_t(r)];
    total = total ? total + term : term;
  }
  return total;
}

}  // namespace

// (input, grid, mode, padding_mode, align_corners)
Results decompose_grid_sample(const Args& a) {
  const Tensor x = a[0].tensor(), grid = a[1].tensor();
  const std::string &mode = a[2].as<std::string>(), &padding = a[3].as<std::string>();
  const bool align = !a[4].is_none() && a[4].as<bool>();
  check_grid_sample(a);
  const SymInt h = x->sizes[2], w = x->sizes[3];
  const Image image{reshape(wide(x), Sizes{x->sizes[0], x->sizes[1], h * w}), x->sizes[0], x->sizes[1], h, w};
  const auto placed = [&](const Tensor& at, SymInt n) {
    const Tensor place = unnormalised(at, n, align);
    return mode == "bicubic" ? place : kept_inside(place, n, padding, align);
  };
  // The places of an image are one dimension, as its elements are, so that one kernel reads and adds up.
  const Sizes line = {x->sizes[0], 1, grid->sizes[1] * grid->sizes[2]};
  const Sizes sizes = {x->sizes[0], x->sizes[1], grid->sizes[1], grid->sizes[2]};
  const auto part = [&](int64_t i) { return reshape(op1(OpId::select, {wide(grid), vdim(-1), vdim(i)}), line); };
  const Tensor across = placed(part(0), w), down = placed(part(1), h);
  if (mode == "bicubic") {
    const auto at = [&](const Tensor& t, SymInt n) { return kept_inside(t, n, padding, align); };
    return {reshape(to_dtype(bicubic(image, down, across, at), x->dtype), sizes)};
  }
  const auto round = [](const Tensor& t) { return op1(OpId::round, {t}); };
  if (mode == "bilinear") return {reshape(to_dtype(bilinear(image, down, across), x->dtype), sizes)};
  const bool zero_grad = grad_enabled() && grid->requires_grad;
  const Tensor y = read_at(image, round(down), round(across), zero_grad);
  return {reshape(to_dtype(y, x->dtype), sizes)};
}

// (theta, size, align_corners). For each place of an image of the size, multiplies theta with its coordinates and 1.
Results decompose_affine_grid(const Args& a) {
  const Tensor theta = a[0].tensor();
  const Sizes& size = a[1].as<Sizes>();
  const bool align = !a[2].is_none() && a[2].as<bool>();
  if (size.size() != 4) fail("affine_grid: size must be {n, c, h, w}, got ", to_string(size));
  const bool fits = theta->dim() == 3 && theta->sizes[0] == size[0] && theta->sizes[1] == 2 && theta->sizes[2] == 3;
  if (!fits) fail("affine_grid: theta must have shape {", size[0].hint, ", 2, 3}, got ", to_string(theta->sizes));
  if (!is_float(theta->dtype)) fail("affine_grid: theta must be of a floating point dtype, got ", name(theta->dtype));
  for (SymInt s : size) {
    if (s < 1) fail("affine_grid: size must be positive, got ", to_string(size));
  }
  const auto line = [&](SymInt n) {
    if (n == 1) return full({n}, 0.0, theta->dtype, theta->device());
    const Scalar edge = align ? 1 : scalar_binary(SymOp::kNDiv, Scalar::of_sym(n - 1), Scalar::of_sym(n));
    return op1(OpId::linspace, {scalar_binary(SymOp::kNSub, -0.0, edge), edge, vint(n), theta->dtype, theta->device()});
  };
  const Sizes plane = {size[2], size[3]};
  const Tensor x = expand(line(size[3]), plane), y = expand(unsqueeze(line(size[2]), vdim(1)), plane);
  const Tensor one = full(plane, 1.0, theta->dtype, theta->device());
  const Tensor base =
      reshape(op1(OpId::stack, {std::vector<Tensor>{x, y, one}, vdim(-1)}), Sizes{1, size[2] * size[3], 3});
  const Tensor grid = op1(OpId::matmul, {base, transpose(theta, vdim(1), vdim(2))});
  return {reshape(grid, Sizes{size[0], size[2], size[3], 2})};
}

}  // namespace lutra
