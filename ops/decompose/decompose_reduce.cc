// Decomposes statistics, norms, distances and scans.
#include <cmath>

#include "ops/core/closest.h"
#include "ops/core/half.h"
#include "ops/core/interrupt.h"
#include "ops/decompose/emit.h"
#include "ops/defs/to_device.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// Removes the reduced dims, which `kept` has as ones, unless keepdim is set.
Tensor without_dims(OpId op, const Tensor& kept, const Tensor& x, const Value& dim, bool keepdim) {
  if (keepdim) return kept;
  return reshape(kept, reduced_sizes(x->sizes, reduced_dims(op, dim, x->sizes.size()), false));
}

}  // namespace

// -- sums without NaN
Results decompose_nansum(const Args& args) {
  Tensor x = args[0].tensor();
  if (is_float(x->dtype)) x = where(op1(OpId::isnan, {x}), Scalar(0.0), x);
  return {op1(OpId::sum, {x, args[1], args[2], args[3]})};
}

Results decompose_nanmean(const Args& args) {
  Tensor x = args[0].tensor();
  if (!is_float(x->dtype)) fail("nanmean: expected a floating point dtype, got ", name(x->dtype));
  Tensor numbers = op1(OpId::logical_not, {op1(OpId::isnan, {x})});
  Tensor count = op1(OpId::sum, {numbers, args[1], args[2]}), total = op1(OpId::nansum, args);
  return {div(total, count)};
}

Results decompose_count_nonzero(const Args& args) { return {op1(OpId::sum, {ne(args[0], Scalar(0.0)), args[1]})}; }

Results decompose_aminmax(const Args& args) {
  Args rest = {args[0], args[1], args[2]};
  return {op1(OpId::amin, rest), op1(OpId::amax, rest)};
}

// -- variance: the mean first, then squares around it; half types in float32 throughout
namespace {

struct Variance {
  Tensor var, mean;
};

Variance variance(OpId op, const Args& args) {
  Tensor x = args[0].tensor();
  x = to_dtype(x, opmath_type(x->dtype));
  const bool keepdim = args[3].as<bool>();
  SymInt n = 1;
  for (int64_t d : reduced_dims(op, args[1], x->sizes.size())) n = n * x->sizes[size_t(d)];
  Tensor mean = op1(OpId::mean, {x, args[1], true}), centred = sub(x, mean);
  Tensor squares = op1(OpId::sum, {mul(centred, centred), args[1], keepdim});
  Scalar left = scalar_binary(SymOp::kNSub, Scalar::of_sym(n), args[2].is_none() ? Scalar(1.0) : args[2].as<Scalar>());
  if (scalar_ask(SymCmp::kLt, left, Scalar(0.0))) left = Scalar(0.0);
  return {div(squares, left), without_dims(op, mean, x, args[1], keepdim)};
}

// op: var_mean or std_mean. alone: the same op without the mean, which has a rule for its gradient.
Results with_mean(OpId op, OpId alone, const Args& args) {
  if (grad_enabled()) return {op1(alone, args), op1(OpId::mean, {args[0], args[1], args[3]})};
  const DType type = args[0].tensor()->dtype;
  const Variance v = variance(op, args);
  const Tensor spread = op == OpId::std_mean ? op1(OpId::sqrt, {v.var}) : v.var;
  return {to_dtype(spread, type), to_dtype(v.mean, type)};
}

}  // namespace

Results decompose_var(const Args& args) { return {to_dtype(variance(OpId::var, args).var, args[0].tensor()->dtype)}; }
Results decompose_std(const Args& args) {
  return {to_dtype(op1(OpId::sqrt, {variance(OpId::std, args).var}), args[0].tensor()->dtype)};
}
Results decompose_var_mean(const Args& args) { return with_mean(OpId::var_mean, OpId::var, args); }
Results decompose_std_mean(const Args& args) { return with_mean(OpId::std_mean, OpId::std, args); }

Results decompose_logsumexp(const Args& args) {
  Tensor x = args[0].tensor();
  x = to_dtype(x, to_float(x->dtype));
  const bool keepdim = args[2].as<bool>();
  for (int64_t d : reduced_dims(OpId::logsumexp, args[1], x->sizes.size())) {
    if (x->sizes[size_t(d)] == 0) return {log(op1(OpId::sum, {exp(x), args[1], keepdim}))};
  }
  Tensor top = op1(OpId::amax, {x, args[1], true});
  // Does not shift by an infinite maximum: Inf - Inf would be NaN.
  Tensor shift = where(eq(abs(top), Scalar(HUGE_VAL)), Scalar(0.0), top);
  Tensor sums = op1(OpId::sum, {exp(sub(x, shift)), args[1], true});
  return {without_dims(OpId::logsumexp, add(log(sums), shift), x, args[1], keepdim)};
}

// -- norms
Results decompose_linalg_vector_norm(const Args& args) {
  Tensor x = args[0].tensor();
  const DType type = args[4].is_none() ? x->dtype : args[4].as<DType>();
  const Scalar& p = args[1].as<Scalar>();
  x = to_dtype(x, opmath_type(type));
  auto total = [&](const Tensor& t) { return op1(OpId::sum, {t, args[2], args[3]}); };
  Tensor r;
  if (scalar_equals(p, 2)) {
    r = op1(OpId::sqrt, {total(mul(x, x))});
  } else if (scalar_equals(p, HUGE_VAL)) {
    r = op1(OpId::amax, {abs(x), args[2], args[3]});
  } else if (scalar_equals(p, -HUGE_VAL)) {
    r = op1(OpId::amin, {abs(x), args[2], args[3]});
  } else if (scalar_equals(p, 0)) {
    r = total(to_dtype(ne(abs(x), Scalar(0.0)), x->dtype));
  } else if (scalar_equals(p, 1)) {
    r = total(abs(x));
  } else {
    r = pow(total(pow(abs(x), p)), scalar_binary(SymOp::kNDiv, Scalar(1.0), p));
  }
  return {to_dtype(r, type)};
}

Results decompose_dist(const Args& args) { return {op1(OpId::linalg_vector_norm, {sub(args[0], args[1]), args[2]})}; }

// Returns whether distances are computed by products. As in PyTorch, that is for Euclidean distances of more than 25
// rows.
static bool by_product(const Tensor& a, const Tensor& b, const Scalar& p, const std::string& mode) {
  if (!scalar_equals(p, 2) || is_half(a->dtype) || mode == "donot_use_mm_for_euclid_dist") return false;
  if (mode == "use_mm_for_euclid_dist") return true;
  const auto is_long = [](const Tensor& t) {
    return scalar_ask(SymCmp::kLt, Scalar(25.0), Scalar::of_sym(t->sizes[t->sizes.size() - 2]));
  };
  return is_long(a) || is_long(b);
}

// Computes |a|^2 + |b|^2 - 2ab as one product, [-2a, |a|^2, 1] by [b, 1, |b|^2]. The gradient of the root is 0 at 0.
static Tensor euclidean_distances(const Tensor& a, const Tensor& b) {
  const auto with = [](const Tensor& rows, const Tensor& first, const Tensor& second) {
    return op1(OpId::cat, {std::vector<Tensor>{rows, first, second}, int_arg(-1)});
  };
  const auto norms = [](const Tensor& t) { return op1(OpId::sum, {mul(t, t), Sizes{-1}, true}); };
  const Tensor na = norms(a), nb = norms(b);
  const auto ones = [](const Tensor& t) { return full(t->sizes, 1.0, t->dtype, t->device()); };
  const Tensor right = with(b, ones(nb), nb);
  const Tensor squares = op1(OpId::matmul, {with(mul(a, Scalar(-2.0)), na, ones(na)),
                                            op1(OpId::transpose, {right, int_arg(-2), int_arg(-1)})});
  const Tensor none = op1(OpId::le, {squares, Scalar(0.0)});
  return where(none, Scalar(0.0), op1(OpId::sqrt, {where(none, Scalar(1.0), squares)}));
}

Results decompose_cdist(const Args& args) {
  Tensor a = args[0].tensor(), b = args[1].tensor();
  const Scalar& p = args[2].as<Scalar>();
  if (a->dim() < 2 || b->dim() < 2 || a->sizes.back() != b->sizes.back()) {
    fail("cdist: expects rows of one length, got shapes ", to_string(a->sizes), " and ", to_string(b->sizes));
  }
  if (!scalar_ask(SymCmp::kLe, Scalar(0.0), p)) fail("cdist: p must not be negative, got ", to_string(p));
  for (const Tensor& t : {a, b}) {
    if (!is_float(t->dtype)) fail("cdist: expected floating point tensors, got ", name(t->dtype));
  }
  if (a->dtype != b->dtype) fail("cdist: expected tensors of one dtype, got ", name(a->dtype), " and ", name(b->dtype));
  const std::string mode = args[3].is_none() ? "use_mm_for_euclid_dist_if_necessary" : args[3].as<std::string>();
  const KnownNames modes = {"use_mm_for_euclid_dist", "use_mm_for_euclid_dist_if_necessary",
                            "donot_use_mm_for_euclid_dist"};
  if (!modes.have(mode)) fail("cdist: compute_mode '", mode, "' is unknown", modes.expected(mode));
  if (a->sizes.back() != 0 && by_product(a, b, p, mode)) return {euclidean_distances(a, b)};
  Tensor apart = sub(unsqueeze(a, int_arg(-2)), unsqueeze(b, int_arg(-3)));
  if (apart->sizes.back() == 0) {
    Sizes sizes(apart->sizes.begin(), apart->sizes.end() - 1);
    return {full(sizes, 0.0, apart->dtype, apart->device())};
  }
  return {op1(OpId::linalg_vector_norm, {apart, p, Sizes{-1}})};
}

namespace {

Tensor cross_along(OpId op, const Tensor& a0, const Tensor& b0, int64_t dim) {
  Sizes sizes = broadcast(op, a0->sizes, b0->sizes);
  if (sizes[size_t(dim)] != 3) {
    fail(name(op), ": dim ", dim, " must have size 3, got shapes ", to_string(a0->sizes), " and ",
         to_string(b0->sizes));
  }
  Tensor a = expand(a0, sizes), b = expand(b0, sizes);
  auto at = [&](const Tensor& t, int64_t i) { return op1(OpId::select, {t, int_arg(dim), int_arg(i)}); };
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < 3; i++) {
    const int64_t j = (i + 1) % 3, k = (i + 2) % 3;
    parts.push_back(sub(mul(at(a, j), at(b, k)), mul(at(a, k), at(b, j))));
  }
  return op1(OpId::stack, {parts, int_arg(dim)});
}

}  // namespace

Results decompose_linalg_cross(const Args& args) {
  Tensor a = args[0].tensor(), b = args[1].tensor();
  if (a->dim() != b->dim() || a->dim() == 0) {
    fail("linalg_cross: expects tensors of as many dimensions, got shapes ", to_string(a->sizes), " and ",
         to_string(b->sizes));
  }
  if (a->dtype != b->dtype) {
    fail("linalg_cross: expects tensors of one dtype, got ", name(a->dtype), " and ", name(b->dtype));
  }
  const int64_t dim = wrap_dim(OpId::linalg_cross, args[2].sym_int().guard(), a->sizes.size());
  return {cross_along(OpId::linalg_cross, a, b, dim)};
}

// The default of dim is the first dimension of size 3.
Results decompose_cross(const Args& args) {
  if (!args[2].is_none()) return {op1(OpId::linalg_cross, args)};
  Tensor a = args[0].tensor();
  for (int64_t d = 0; d < a->dim(); d++) {
    if (a->sizes[size_t(d)] == 3) return {op1(OpId::linalg_cross, {args[0], args[1], int_arg(d)})};
  }
  fail("cross: no dimension of size 3 in shape ", to_string(a->sizes));
}

// Computes the distance of each pair of rows once, in order. Let pair k join row i with a later one. i (2n - 1 - i) / 2
// pairs begin with rows before i. So i is the lower root, truncated, of a quadratic. Its discriminant is a square where
// a row's pairs begin. float64 holds it, and all other values, exactly up to 2^25 rows, and more rows have more pairs
// than any memory holds. Integer division would be slow.
Results decompose_pdist(const Args& args) {
  Tensor x = args[0].tensor();
  if (x->dim() != 2) fail("pdist: expects a matrix, got shape ", to_string(x->sizes));
  if (!is_float(x->dtype)) fail("pdist: expected a floating point dtype, got ", name(x->dtype));
  if (scalar_ask(SymCmp::kLt, args[1].as<Scalar>(), Scalar(0.0)))
    fail("pdist: p must not be negative, got ", to_string(args[1].as<Scalar>()));
  const SymInt n = x->sizes[0], count = n < 2 ? SymInt(0) : floor_div(n * (n - 1), 2);
  if (x->sizes[1] == 0) return {full({count}, 0.0, x->dtype, x->device())};
  const Tensor k = counting(count, x, DType::kFloat64);
  const Value both = Scalar::of_sym(n * 2 - 1), square = Scalar::of_sym((n * 2 - 1) * (n * 2 - 1));
  const Tensor rest = op1(OpId::sqrt, {sub(square, mul(k, Scalar(8.0)))});
  const Tensor row = op1(OpId::trunc, {mul(sub(both, rest), Scalar(0.5))});
  const Tensor earlier = mul(mul(row, sub(both, row)), Scalar(0.5));
  const Tensor i = to_dtype(row, DType::kInt64);
  const Tensor j = to_dtype(add(add(sub(k, earlier), row), Scalar(1.0)), DType::kInt64);
  const Tensor apart = sub(index_select(x, int_arg(0), i), index_select(x, int_arg(0), j));
  return {op1(OpId::linalg_vector_norm, {apart, args[1], Sizes{1}})};
}

// Scales slices along dim whose norm exceeds maxnorm down to it.
Results decompose_renorm(const Args& args) {
  Tensor x = args[0].tensor();
  if (x->dim() < 2) fail("renorm: expects a tensor of 2 dimensions or more, got shape ", to_string(x->sizes));
  const int64_t dim = wrap_dim(OpId::renorm, args[2].sym_int().guard(), x->sizes.size());
  const Scalar &p = args[1].as<Scalar>(), &most = args[3].as<Scalar>();
  if (!scalar_ask(SymCmp::kLt, Scalar(0.0), p)) fail("renorm: p must be positive, got ", to_string(p));
  if (!scalar_ask(SymCmp::kLe, Scalar(0.0), most)) fail("renorm: maxnorm must not be negative, got ", to_string(most));
  Sizes others;
  for (int64_t d = 0; d < x->dim(); d++) {
    if (d != dim) others.push_back(d);
  }
  Tensor norm = op1(OpId::linalg_vector_norm, {x, args[1], others, true});
  Tensor factor = where(gt(norm, args[3]), div(args[3], add(norm, Scalar(1e-7))), Scalar(1.0));
  return {mul(x, to_dtype(factor, x->dtype))};
}

// Sums over the dims along which a tensor of `size` would be expanded.
Results decompose_sum_to_size(const Args& args) {
  Tensor x = args[0].tensor();
  const Sizes& size = args[1].as<Sizes>();
  const size_t skip = x->sizes.size() - size.size();
  bool fits = size.size() <= x->sizes.size();
  Sizes dims;
  for (size_t d = 0; fits && d < x->sizes.size(); d++) {
    const bool same = d >= skip && size[d - skip].hint == x->sizes[d].hint && size[d - skip] == x->sizes[d];
    if (!same) dims.push_back(int64_t(d));
    fits = same || d < skip || size[d - skip] == 1;
  }
  if (!fits) fail("sum_to_size: size ", to_string(size), " is not expandable to ", to_string(x->sizes));
  if (size.empty()) return {sum_all(x)};  // also for one element, because integers become int64
  return {dims.empty() ? x : reshape(op1(OpId::sum, {x, dims, true}), size)};
}

// -- areas under samples
namespace {

// Returns the area between each pair of neighbours.
Tensor trapezes(OpId op, const Args& args, int64_t& dim) {
  Tensor y = args[0].tensor();
  dim = wrap_dim(op, args[3].sym_int().guard(), y->sizes.size());
  if (y->sizes.empty()) fail(name(op), ": expected a tensor of 1 dimension or more, got a number");
  if (is_bool(y->dtype)) fail(name(op), ": not defined for bool tensors");
  auto pair = [&](const Tensor& t, int64_t d) {
    SymInt size = t->sizes[size_t(d)];
    return std::make_pair(part(t, d, 1, size), part(t, d, 0, size == 0 ? size : size - 1));
  };
  auto [right, left] = pair(y, dim);
  Tensor sums = add(right, left);
  if (args[1].is_none()) return mul(mul(sums, args[2]), Scalar(0.5));
  Tensor x = args[1].tensor();
  if (x->dim() == 1 && y->dim() > 1) {
    Sizes shape(y->sizes.size(), SymInt(1));
    shape[size_t(dim)] = x->sizes[0];
    if (x->sizes[0] != y->sizes[size_t(dim)]) {
      fail(name(op), ": ", x->sizes[0].hint, " places do not fit dim ", dim, " of shape ", to_string(y->sizes));
    }
    x = reshape(x, shape);
  }
  while (x->dim() < y->dim()) x = unsqueeze(x, int_arg(0));
  auto [to, from] = pair(x, dim);
  return mul(mul(sums, sub(to, from)), Scalar(0.5));
}

}  // namespace

Results decompose_trapezoid(const Args& args) {
  int64_t dim = wrap_dim(OpId::trapezoid, args[3].sym_int().guard(), args[0].tensor()->sizes.size());
  Tensor y = args[0].tensor();
  if (y->dim() > 0 && y->sizes[size_t(dim)] == 0) {
    return {full(reduced_sizes(y->sizes, {dim}, false), 0.0, y->dtype, y->device())};
  }
  Tensor t = trapezes(OpId::trapezoid, args, dim);
  if (!args[1].is_none() || is_float(y->dtype)) return {sum(t, {dim}, false)};
  // Integers wrap as in PyTorch: the whole sum without half of both ends.
  const auto end = [&](int64_t k) { return op1(OpId::select, {y, int_arg(dim), int_arg(k)}); };
  return {mul(sub(sum(y, {dim}, false), mul(add(end(0), end(-1)), Scalar(0.5))), args[2])};
}
Results decompose_cumulative_trapezoid(const Args& args) {
  int64_t dim;
  Tensor t = trapezes(OpId::cumulative_trapezoid, args, dim);
  return {op1(OpId::cumsum, {t, int_arg(dim)})};
}

// -- scans: the internal ops take contiguous tensors of dtypes that can hold their sums
namespace {

Tensor scan(OpId op, OpId inner, const Args& args, DType type) {
  if (is_bool(type)) fail(name(op), ": not defined for bool tensors");
  Tensor x = args[0].tensor();
  const int64_t dim = wrap_dim(op, args[1].sym_int().guard(), x->sizes.size());
  Tensor y = contiguous(to_dtype(x, opmath_type(type)));
  return to_dtype(op1(inner, {y, int_arg(dim)}), type);
}

DType sum_type(const Args& args) {
  if (!args[2].is_none()) return args[2].as<DType>();
  DType own = args[0].tensor()->dtype;
  return is_float(own) ? own : DType::kInt64;
}

Results extremes(OpId op, OpId inner, const Args& args) {
  Tensor x = args[0].tensor();
  const int64_t dim = wrap_dim(op, args[1].sym_int().guard(), x->sizes.size());
  DType type = is_bool(x->dtype) ? DType::kUInt8 : opmath_type(x->dtype);
  Results r = call_op(inner, {contiguous(to_dtype(x, type)), int_arg(dim)});
  return {to_dtype(r[0], x->dtype), r[1]};
}

}  // namespace

Results decompose_cumsum(const Args& args) { return {scan(OpId::cumsum, OpId::scan_sum, args, sum_type(args))}; }
Results decompose_cumprod(const Args& args) { return {scan(OpId::cumprod, OpId::scan_prod, args, sum_type(args))}; }
Results decompose_logcumsumexp(const Args& args) {
  DType type = args[0].tensor()->dtype;
  return {scan(OpId::logcumsumexp, OpId::scan_logsumexp, args, to_float(type))};
}
Results decompose_cummax(const Args& args) { return extremes(OpId::cummax, OpId::scan_max, args); }
Results decompose_cummin(const Args& args) { return extremes(OpId::cummin, OpId::scan_min, args); }

// -- covariance
namespace {

// Checks the weights of observations. Returns null if none are given.
Tensor checked_weights(const Tensor& given, const Tensor& x, const char* which, bool whole) {
  if (!given) return given;
  if (given->dim() > 1) fail("cov: ", which, " must be a vector, got shape ", to_string(given->sizes));
  const bool counts = !is_float(given->dtype) && !is_bool(given->dtype);
  if (whole ? !counts : !is_float(given->dtype)) {
    fail("cov: ", which, " must be ", whole ? "integers" : "floats", ", got ", name(given->dtype));
  }
  if (given->numel() != x->sizes[1]) {
    fail("cov: ", which, " of shape ", to_string(given->sizes), " do not go with ", x->sizes[1].hint, " observations");
  }
  const std::string message = str(which, " must not be negative");
  return op1(OpId::check_values, {given, std::string("nonnegative"), message});
}

// Returns the covariances of x's rows, with each observation weighted by w.
Tensor weighted_cov(const Tensor& x, Tensor w, const Tensor& reliability, const Scalar& correction) {
  const Tensor total =
      op1(OpId::check_values, {sum_all(w), std::string("positive"), std::string("weights add up to 0")});
  const Tensor mean = div(sum(mul(x, w), {1}, true), total);
  const Tensor lost = reliability ? mul(div(sum_all(mul(w, reliability)), total), correction)
                                  : full({}, correction, w->dtype, x->device());
  const Tensor left = op1(OpId::clamp, {sub(total, lost), Scalar(0.0), Value()});
  const Tensor centred = sub(x, mean);
  return div(mm(centred, transpose(mul(centred, w), int_arg(0), int_arg(1))), left);
}

}  // namespace

// (input, correction, fweights, aweights)
Results decompose_cov(const Args& args) {
  Tensor x = args[0].tensor();
  if (x->dim() > 2) fail("cov: expects a tensor of at most 2 dimensions, got shape ", to_string(x->sizes));
  if (is_bool(x->dtype)) fail("cov: not defined for bool tensors");
  x = to_dtype(x, to_float(x->dtype));
  if (x->dim() < 2) x = reshape(x, {1, x->numel()});
  const Tensor counts = checked_weights(args[2].tensor(), x, "fweights", true);
  const Tensor reliability = checked_weights(args[3].tensor(), x, "aweights", false);
  if (counts || reliability) {
    const Tensor w = !counts ? reliability : !reliability ? counts : mul(counts, reliability);
    const Tensor c = weighted_cov(x, w, reliability, args[1].as<Scalar>());
    return {x->sizes[0] == 1 ? reshape(c, {}) : c};
  }
  Tensor centred = sub(x, op1(OpId::mean, {x, Sizes{1}, true}));
  Scalar left = scalar_binary(SymOp::kNSub, Scalar::of_sym(x->sizes[1]), Scalar::of_sym(args[1].sym_int()));
  if (scalar_ask(SymCmp::kLt, left, Scalar(0.0))) left = Scalar(0.0);
  Tensor c = div(mm(centred, transpose(centred, int_arg(0), int_arg(1))), left);
  return {x->sizes[0] == 1 ? reshape(c, {}) : c};
}

Results decompose_corrcoef(const Args& args) {
  Tensor c = op1(OpId::cov, {args[0]});
  if (c->dim() == 0) return {div(c, c)};
  Tensor spread = op1(OpId::sqrt, {op1(OpId::diagonal, {c})});
  Tensor r = div(div(c, unsqueeze(spread, int_arg(1))), unsqueeze(spread, int_arg(0)));
  return {op1(OpId::clamp, {r, Scalar(-1.0), Scalar(1.0)})};
}

// -- gradient: central differences inside, one-sided ones at the ends

namespace {

Tensor slope(const Tensor& t, int64_t dim, const Scalar& step, int64_t order) {
  const SymInt n = t->sizes[size_t(dim)];
  if (n <= order) {
    fail("gradient: dimension ", dim, " of shape ", to_string(t->sizes), " needs ", order + 1, " elements or more");
  }
  auto at = [&](int64_t i) { return i >= 0 ? part(t, dim, i, i + 1) : part(t, dim, n + i, n + i + 1); };
  const double h = step.to_double();
  auto end = [&](int64_t i, int64_t towards) {
    if (order == 1) return div(sub(at(i + towards), at(i)), vnum(h * double(towards)));
    const Tensor near = mul(at(i + towards), vnum(4)), own = mul(at(i), vnum(3));
    return div(sub(sub(near, own), at(i + 2 * towards)), vnum(2 * h * double(towards)));
  };
  std::vector<Tensor> parts = {end(0, 1)};
  if (n > 2) parts.push_back(div(sub(part(t, dim, 2, n), part(t, dim, 0, n - 2)), vnum(2 * h)));
  parts.push_back(end(-1, -1));
  return op1(OpId::cat, {parts, vdim(dim)});
}

// Returns the slopes for samples at the given places. Inside, and at the ends for order 2, they are those of parabolas
// through three samples.
Tensor slope_at(const Tensor& t, int64_t dim, const Tensor& places, int64_t order) {
  const SymInt n = t->sizes[size_t(dim)];
  if (n <= order) {
    fail("gradient: dimension ", dim, " of shape ", to_string(t->sizes), " needs ", order + 1, " elements or more");
  }
  if (places->dim() != 1 || places->sizes[0] != n) {
    fail("gradient: coordinates of shape ", to_string(places->sizes), " do not go with dimension ", dim, " of shape ",
         to_string(t->sizes));
  }
  Sizes shape(t->sizes.size(), SymInt(1));
  shape[size_t(dim)] = n - 1;
  const Tensor step = reshape(op1(OpId::diff, {places}), shape);
  const auto at = [&](const Tensor& of, SymInt from, SymInt to) { return part(of, dim, from, to); };
  const auto end = [&](bool last) {
    const SymInt edge = last ? n - 1 : SymInt(0), near = last ? n - 2 : SymInt(0), far = last ? n - 3 : SymInt(1);
    const Tensor one = at(step, near, near + 1);
    if (order == 1) return div(sub(at(t, near + 1, near + 2), at(t, near, near + 1)), one);
    const Tensor two = at(step, far, far + 1), both = add(one, two);
    const Tensor a = div(add(add(one, one), two), mul(one, both)), b = div(both, mul(one, two)),
                 c = div(one, mul(two, both));
    const SymInt second = last ? n - 2 : SymInt(1), third = last ? n - 3 : SymInt(2);
    const Tensor r =
        sub(sub(mul(b, at(t, second, second + 1)), mul(a, at(t, edge, edge + 1))), mul(c, at(t, third, third + 1)));
    return last ? neg(r) : r;
  };
  std::vector<Tensor> parts = {end(false)};
  if (n > 2) {
    const Tensor one = at(step, 0, n - 2), two = at(step, 1, n - 1), both = add(one, two);
    const Tensor left = mul(div(two, mul(one, both)), at(t, 0, n - 2));
    const Tensor middle = mul(div(sub(two, one), mul(one, two)), at(t, 1, n - 1));
    parts.push_back(add(sub(middle, left), mul(div(one, mul(two, both)), at(t, 2, n))));
  }
  parts.push_back(end(true));
  return op1(OpId::cat, {parts, vdim(dim)});
}

// (input, spacing, dim, edge_order). Collects slope_of(input, dim, i) for the i-th of dims. `steps` is the number of
// spacings, if they are a list.
template <class F>
Results gradients(const Args& a, std::optional<size_t> steps, F slope_of) {
  Tensor t = a[0].tensor();
  if (!is_float(t->dtype)) t = to_dtype(t, DType::kFloat32);
  const int64_t order = a[3].sym_int().guard();
  if (order != 1 && order != 2) fail("gradient: edge_order must be 1 or 2, got ", order);
  std::vector<Tensor> out;
  Sizes dims;
  for (int64_t d = 0; d < t->dim() && a[2].is_none(); d++) dims.push_back(d);
  if (!a[2].is_none()) dims = a[2].as<Sizes>();
  if (steps && *steps != dims.size()) {
    fail("gradient: expected spacing of ", dims.size(), " dimensions, got ", *steps);
  }
  std::vector<bool> done(t->sizes.size());
  for (size_t i = 0; i < dims.size(); i++) {
    const int64_t d = wrap_dim(OpId::gradient, dims[i].guard(), t->sizes.size());
    if (d < t->dim() && done[size_t(d)]) fail("gradient: dim ", d, " appears twice in dim");
    if (d < t->dim()) done[size_t(d)] = true;
    out.push_back(slope_of(t, d, i, order));
  }
  return out;
}

}  // namespace

Results decompose_gradient(const Args& a) {
  return gradients(a, {}, [&](const Tensor& t, int64_t d, size_t, int64_t order) {
    return slope(t, d, pin(a[1].as<Scalar>()), order);
  });
}

// Takes one step for each dimension.
Results decompose_gradient_steps(const Args& a) {
  const auto& steps = a[1].as<std::vector<double>>();
  return gradients(a, steps.size(), [&](const Tensor& t, int64_t d, size_t i, int64_t order) {
    return slope(t, d, Scalar(steps[i]), order);
  });
}

Results decompose_gradient_at(const Args& a) {
  const std::vector<Tensor> places = a[1].as<std::vector<Tensor>>();
  return gradients(a, places.size(), [&](const Tensor& t, int64_t d, size_t i, int64_t order) {
    return slope_at(t, d, places[i], order);
  });
}

}  // namespace lutra
