// Decomposes quantiles into a sort along the dimension, where NaN comes last, and histograms into a search among edges.
#include <cmath>

#include "ops/core/closest.h"
#include "ops/decompose/emit.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

struct Sorted {
  Tensor values;  // along dim
  int64_t dim;
  SymInt n;
};

Sorted sorted(OpId op, const Tensor& x, const Value& dim) {
  Sorted s;
  s.dim = wrap_dim(op, dim.sym_int().guard(), x->sizes.size());
  Tensor t = x->sizes.empty() ? reshape(x, {1}) : x;
  s.n = t->sizes[size_t(s.dim)];
  s.values = call_op(OpId::sort, {t, int_arg(s.dim)})[0];
  return s;
}

void check_some(OpId op, const Tensor& x, const Sorted& s) {
  if (s.n == 0) fail(name(op), ": dim ", s.dim, " of shape ", to_string(x->sizes), " has no elements");
}

Tensor is_nan(const Tensor& x) { return op1(OpId::isnan, {x}); }

// Interpolates: the place q (n - 1) lies between two sorted neighbours.
Tensor between(const std::string& how, const Tensor& low, const Tensor& high, const Tensor& part) {
  if (how == "lower") return low;
  if (how == "higher") return high;
  if (how == "midpoint") return add(low, mul(sub(high, low), Scalar(0.5)));
  return op1(OpId::lerp, {low, high, part});
}

// Returns q as a tensor. A number takes the input's dtype.
Tensor places(OpId op, const Value& v, const Tensor& x) {
  if (v.is<Tensor>()) return v.tensor();
  const Scalar q = as_number(v.as<Scalar>());
  if (!scalar_ask(SymCmp::kLe, 0.0, q) || !scalar_ask(SymCmp::kLe, q, 1.0)) {
    fail(name(op), ": q must be between 0 and 1, got ", to_string(q));
  }
  return full({}, q, x->dtype, x->device());
}

// (input, q, dim, keepdim, interpolation)
Tensor quantile(OpId op, const Args& args, bool skip_nan) {
  Tensor x = args[0].tensor(), q = places(op, args[1], x);
  const std::string& how = args[4].as<std::string>();
  const KnownNames ways = {"linear", "lower", "higher", "midpoint", "nearest"};
  if (!ways.have(how)) fail(name(op), ": interpolation '", how, "' is unknown", ways.expected(how));
  if (x->dtype != DType::kFloat32 && x->dtype != DType::kFloat64) {
    fail(name(op), ": expected a float32 or float64 input, got ", name(x->dtype));
  }
  if (x->dtype != q->dtype) fail(name(op), ": q must be ", name(x->dtype), " as the input, got ", name(q->dtype));
  if (x->numel() == 0) fail(name(op), ": the input must not be empty, got shape ", to_string(x->sizes));
  if (q->dim() > 1) fail(name(op), ": q must be a number or a vector, got shape ", to_string(q->sizes));
  const bool all = args[2].is_none(), keepdim = args[3].as<bool>();
  Tensor t = all ? flat(x) : x;
  Sorted s = sorted(op, t, all ? int_arg(0) : args[2]);
  check_some(op, x, s);
  // Lines are the last dimension, with one place for each q.
  Tensor lines = transpose(s.values, int_arg(s.dim), int_arg(-1));
  Tensor bad = is_nan(lines), count = op1(OpId::sum, {op1(OpId::logical_not, {bad}), Sizes{-1}, true});
  Tensor empty = skip_nan ? eq(count, int_arg(0)) : op1(OpId::any, {bad, Sizes{-1}, true});
  Tensor last = to_dtype(
      op1(OpId::clamp,
          {sub(skip_nan ? count : full(count->sizes, Scalar::of_sym(s.n), DType::kInt64, x->device()), int_arg(1)),
           int_arg(0), Value()}),
      x->dtype);
  Tensor place = mul(flat(q), last);
  if (how == "nearest") place = op1(OpId::round, {place});
  // A line whose answer is NaN takes the NaN at its end, with its gradient.
  place = where(empty, scalar_binary(SymOp::kNSub, Scalar::of_sym(s.n), Scalar(1.0)), place);
  Tensor floor = op1(OpId::floor, {place}), low = to_dtype(floor, DType::kInt64);
  Tensor high = to_dtype(op1(OpId::ceil, {place}), DType::kInt64);
  Tensor r = between(how, gather(lines, int_arg(-1), low), gather(lines, int_arg(-1), high), sub(place, floor));
  // Moves the dimension of q from the end to the front, and the dim back to its place.
  Sizes sizes =
      x->sizes.empty() ? Sizes() : reduced_sizes(x->sizes, reduced_dims(op, args[2], x->sizes.size()), keepdim);
  r = transpose(unsqueeze(r, int_arg(0)), int_arg(0), int_arg(-1));
  if (!all && x->dim() > 1) r = transpose(r, int_arg(s.dim + 1), int_arg(-1));
  if (q->dim() == 1) sizes.insert(0, q->sizes[0]);
  return reshape(r, sizes);
}

// -- histograms

void check_histogram(const Tensor& x, const Value& weight) {
  if (!is_float(x->dtype)) fail("histogram: expected a floating point input, got ", name(x->dtype));
  if (weight.is_none()) return;
  const Tensor w = weight.tensor();
  if (!same_sizes(w->sizes, x->sizes) || w->dtype != x->dtype) {
    fail("histogram: weight must be ", name(x->dtype), " of shape ", to_string(x->sizes), " as the input, got ",
         describe(w));
  }
}

// Returns the bin of each value. A value belongs to the last edge that is not above it. The last edge itself belongs to
// the bin before it. Values outside, including NaN, get an extra bin, the last.
Tensor bin_of(const Tensor& values, const Tensor& edges) {
  const SymInt bins = edges->sizes[0] - 1;
  const Tensor last = op1(OpId::select, {edges, int_arg(0), vint(bins)});
  const Tensor at = sub(op1(OpId::searchsorted, {contiguous(edges), contiguous(values), false, true}), int_arg(1));
  return where(eq(values, last), vint(bins - 1), where(lt(at, int_arg(0)), vint(bins), at));
}

// Returns the number of values of each bin, or the sum of their weights, without the last bin.
Tensor count_bins(const Tensor& at, SymInt bins, const Value& weight, const Tensor& x) {
  const Tensor each = weight.is_none() ? full(at->sizes, 1.0, x->dtype, x->device()) : flat(weight.tensor());
  const Tensor all = index_add(full({bins + 1}, 0.0, x->dtype, x->device()), int_arg(0), at, each);
  return op1(OpId::slice, {all, int_arg(0), int_arg(0), vint(bins), int_arg(1)});
}

Results histogram_between(const Tensor& x, const Tensor& edges, const Value& weight, bool density) {
  const Tensor count = count_bins(bin_of(flat(x), edges), edges->sizes[0] - 1, weight, x);
  if (!density) return {op1(OpId::clone, {count}), edges};
  return {div(div(count, sum_all(count)), op1(OpId::diff, {edges})), edges};
}

// Returns edges at equal steps. The order of operations is PyTorch's: up to the middle it counts from the lowest, after
// it from the highest.
Tensor equal_edges(const Tensor& low, const Tensor& high, int64_t bins) {
  const Tensor i = op1(OpId::arange, {int_arg(0), int_arg(bins + 1), int_arg(1), low->dtype, low->device()});
  const Tensor step = div(sub(high, low), vnum(double(bins)));
  const Tensor up = add(low, mul(i, step)), down = sub(high, mul(sub(vnum(double(bins)), i), step));
  return where(lt(i, vnum(double((bins + 1) / 2))), up, down);
}

// Returns the edges of `count` bins over the given range, or over the range of x's elements if none is given.
Tensor edges_of(const std::string& title, const Tensor& x, const Value& count, const Value& least_end,
                const Value& most_end) {
  const int64_t bins = count.sym_int().guard();
  if (bins <= 0) fail(title, ": bins must be positive, got ", bins);
  Tensor low, high;
  if (!least_end.is_none()) {
    const double least = pin(least_end.as<Scalar>()).to_double(), most = pin(most_end.as<Scalar>()).to_double();
    if (!std::isfinite(least) || !std::isfinite(most)) {
      fail(title, ": the range from ", least, " to ", most, " is not finite");
    }
    if (least > most) fail(title, ": the range's lower end ", least, " is above its upper end ", most);
    low = full({}, least, x->dtype, x->device()), high = full({}, most, x->dtype, x->device());
  } else if (x->numel() == 0) {
    low = full({}, 0.0, x->dtype, x->device()), high = full({}, 1.0, x->dtype, x->device());
  } else {
    const auto end = [&](OpId op) {
      return op1(OpId::check_values, {op1(op, {op1(OpId::detach, {x})}), std::string("finite"),
                                      title + ": the range of the elements is not finite"});
    };
    low = end(OpId::amin), high = end(OpId::amax);
  }
  const Tensor half = where(eq(low, high), full({}, 0.5, x->dtype, x->device()), Scalar(0.0));
  return equal_edges(sub(low, half), add(high, half), bins);
}

}  // namespace

// (input, bins, low, high, weight, density)
Results decompose_histogram_count(const Args& a) {
  const Tensor x = a[0].tensor();
  check_histogram(x, a[4]);
  return histogram_between(x, edges_of("histogram", x, a[1], a[2], a[3]), a[4], a[5].as<bool>());
}

// (input, bins, low, high): the edges along each dimension of points.
Results decompose_histogram_bins(const Args& a) { return {edges_of("histogramdd", a[0].tensor(), a[1], a[2], a[3])}; }

// (input, edges of each dimension, weight, density)
Results decompose_histogram_points(const Args& a) {
  const Tensor x = a[0].tensor();
  const auto& edges = a[1].as<std::vector<Tensor>>();
  Sizes each = x->sizes;
  each.pop_back();
  const Tensor points = reshape(x, Sizes{numel(each), x->sizes.back()});
  Sizes shape;
  SymInt cells = 1;
  Tensor at, outside;
  for (size_t d = 0; d < edges.size(); d++) {
    const SymInt bins = edges[d]->sizes[0] - 1;
    const Tensor own = bin_of(op1(OpId::select, {points, int_arg(1), int_arg(int64_t(d))}), edges[d]);
    const Tensor out = eq(own, vint(bins));
    at = at ? add(mul(at, vint(bins)), own) : own, outside = outside ? op1(OpId::logical_or, {outside, out}) : out;
    shape.push_back(bins), cells = cells * bins;
  }
  Tensor count = reshape(count_bins(where(outside, vint(cells), at), cells, a[2], x), shape);
  if (!a[3].as<bool>()) return {op1(OpId::clone, {count})};
  count = div(count, sum_all(count));
  for (size_t d = 0; d < edges.size(); d++) {
    Sizes along(shape.size(), SymInt(1));
    along[d] = shape[d];
    count = div(count, reshape(op1(OpId::diff, {edges[d]}), along));
  }
  return {count};
}

// (input, bins, weight, density)
Results decompose_histogram_edges(const Args& a) {
  const Tensor x = a[0].tensor(), edges = a[1].tensor();
  check_histogram(x, a[2]);
  if (edges->dtype != x->dtype) {
    fail("histogram: bins must be ", name(x->dtype), " as the input, got ", name(edges->dtype));
  }
  if (edges->dim() != 1) fail("histogram: bins must have 1 dimension, got shape ", to_string(edges->sizes));
  if (edges->sizes[0] < 2) fail("histogram: bins must have 2 edges or more, got ", edges->sizes[0].hint);
  return histogram_between(x, op1(OpId::clone, {edges}), a[2], a[3].as<bool>());
}

Results decompose_quantile(const Args& args) { return {quantile(OpId::quantile, args, false)}; }
Results decompose_nanquantile(const Args& args) { return {quantile(OpId::nanquantile, args, true)}; }

}  // namespace lutra
