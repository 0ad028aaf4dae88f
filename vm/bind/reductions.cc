// Overloads of variances and norms, and tensordot, whose dims are a number or a pair of lists.
#include <cmath>

#include "vm/bind/composite.h"

namespace lutra {
namespace {

LuaResults all_of(const Results& results) { return LuaResults(results.begin(), results.end()); }

// -- var, std and with the mean: (correction) or PyTorch's older (unbiased)

template <OpId kOp>
LuaResults variance(Args& a) {
  return all_of(call_op(kOp, a));
}
template <OpId kOp>
LuaResults unbiased_all(Args& a) {
  return all_of(call_op(kOp, {a[0], Value(), vnum(a[1].as<bool>()), false}));
}
template <OpId kOp>
LuaResults unbiased_dims(Args& a) {
  return all_of(call_op(kOp, {a[0], a[1], vnum(a[2].as<bool>()), a[3]}));
}

// -- norms

LuaResults vector_norm(const Value& x, const Value& p, const Value& dim, const Value& keepdim, const Value& dtype) {
  return {op1(OpId::linalg_vector_norm, {x, p.is_none() ? vnum(2) : p, dim, keepdim, dtype})};
}

LuaResults norm(Args& a) { return vector_norm(a[0], a[1], a[2], a[3], a[4]); }

LuaResults norm_named(Args& a) {
  const std::string& p = a[1].as<std::string>();
  if (p != "fro") fail("norm: p '", p, "' is not known (expected 'fro' or a number)");
  return vector_norm(a[0], vnum(2), a[2], a[3], a[4]);
}

// The two dims of matrices; the columns' counted as they are once the rows are gone.
struct MatrixDims {
  int64_t rows, columns;
};
MatrixDims matrix_dims(const char* fn, const Tensor& t, const Value& dim) {
  const Sizes dims = dim.is_none() ? Sizes{-2, -1} : dim.as<Sizes>();
  if (dims.size() != 2) fail(fn, ": expects 2 dims, got ", to_string(dims));
  if (t->dim() < 2) fail(fn, ": expects a tensor of 2 dimensions or more, got shape ", to_string(t->sizes));
  const MatrixDims m = {wrap_dim(fn, dims[0].guard(), t->dim()), wrap_dim(fn, dims[1].guard(), t->dim())};
  if (m.rows == m.columns) fail(fn, ": dims must differ, got ", to_string(dims));
  return m;
}

// Order 1 is the largest column sum, infinity the largest row sum; negative orders the smallest.
LuaResults matrix_norm_of(const char* fn, Args& a) {
  Tensor t = a[0].tensor();
  const MatrixDims m = matrix_dims(fn, t, a[2]);
  const double ord = pin(a[1].as<Scalar>()).to_double();
  if (std::fabs(ord) != 1 && !std::isinf(ord)) {
    fail(fn, ": ord ", ord, " is not known (expected 'fro', 1, -1, inf or -inf)");
  }
  if (!a[4].is_none()) t = to_dtype(t, a[4].as<DType>());
  const bool by_columns = std::fabs(ord) == 1;
  const int64_t first = by_columns ? m.rows : m.columns, second = by_columns ? m.columns : m.rows;
  if (t->sizes[size_t(first)] != 0 && t->sizes[size_t(second)] == 0) {
    Sizes sizes;
    for (int64_t d = 0; d < t->dim(); ++d) {
      const bool reduced = d == first || d == second;
      if (!reduced || a[3].as<bool>()) sizes.push_back(reduced ? SymInt(1) : t->sizes[size_t(d)]);
    }
    return {full_of(sizes, vnum(0).as<Scalar>(), t->dtype, t->device())};
  }
  const Tensor sums = op1(OpId::sum, {op1(OpId::abs, {t}), Sizes{first}, true});
  Tensor r = op1(ord > 0 ? OpId::amax : OpId::amin, {sums, Sizes{second}, true});
  if (!a[3].as<bool>()) r = op1(OpId::squeeze, {r, Sizes{first, second}});
  return {r};
}

LuaResults matrix_norm_named_of(const char* fn, Args& a) {
  const std::string& ord = a[1].as<std::string>();
  if (ord != "fro") fail(fn, ": ord '", ord, "' is not known (expected 'fro' or a number)");
  const MatrixDims m = matrix_dims(fn, a[0].tensor(), a[2]);
  return vector_norm(a[0], vnum(2), Sizes{m.rows, m.columns}, a[3], a[4]);
}

LuaResults matrix_norm(Args& a) { return matrix_norm_of("linalg_matrix_norm", a); }
LuaResults matrix_norm_named(Args& a) { return matrix_norm_named_of("linalg_matrix_norm", a); }

// Without ord, the 2-norm over all that dim names; with it, a vector's or a matrix' norm.
LuaResults linalg_norm(Args& a) {
  if (a[1].is_none()) return vector_norm(a[0], a[1], a[2], a[3], a[4]);
  const size_t dims = a[2].is_none() ? size_t(a[0].tensor()->dim()) : a[2].as<Sizes>().size();
  if (dims != 1 && dims != 2) fail("linalg_norm: ord needs dim, or a tensor of 1 or 2 dimensions");
  return dims == 1 ? vector_norm(a[0], a[1], a[2], a[3], a[4]) : matrix_norm_of("linalg_norm", a);
}
LuaResults linalg_norm_named(Args& a) { return matrix_norm_named_of("linalg_norm", a); }

// -- quantiles: q as a number takes the input's dtype

template <OpId kOp>
LuaResults quantile(Args& a) {
  const Tensor x = a[0].tensor();
  const Scalar q = pin(a[1].as<Scalar>());
  if (!(q.to_double() >= 0 && q.to_double() <= 1)) fail(name(kOp), ": q must be between 0 and 1, got ", to_string(q));
  return {op1(kOp, {a[0], full_of({}, q, x->dtype, x->device()), a[2], a[3], a[4]})};
}
template <OpId kOp>
LuaResults quantiles(Args& a) {
  return {op1(kOp, a)};
}

// -- gradient: differences of neighbours, halved within, one-sided at the ends

Tensor from_to(const Tensor& t, int64_t dim, SymInt from, SymInt to) {
  return op1(OpId::slice, {t, vdim(dim), vint(from), vint(to), vdim(1)});
}

Tensor slope(const Tensor& t, int64_t dim, const Scalar& step, int64_t order) {
  const SymInt n = t->sizes[size_t(dim)];
  if (n <= order) {
    fail("gradient: dimension ", dim, " of shape ", to_string(t->sizes), " needs ", order + 1, " elements or more");
  }
  auto at = [&](int64_t i) { return i >= 0 ? from_to(t, dim, i, i + 1) : from_to(t, dim, n + i, n + i + 1); };
  auto difference = [](const Tensor& a, const Tensor& b) { return op1(OpId::sub, {a, b}); };
  auto over = [](const Tensor& a, double by) { return op1(OpId::div, {a, vnum(by)}); };
  const double h = step.to_double();
  auto end = [&](int64_t i, int64_t towards) {
    if (order == 1) return over(difference(at(i + towards), at(i)), h * double(towards));
    const Tensor near = op1(OpId::mul, {at(i + towards), vnum(4)}), own = op1(OpId::mul, {at(i), vnum(3)});
    return over(difference(difference(near, own), at(i + 2 * towards)), 2 * h * double(towards));
  };
  std::vector<Tensor> parts = {end(0, 1)};
  if (n > 2) parts.push_back(over(difference(from_to(t, dim, 2, n), from_to(t, dim, 0, n - 2)), 2 * h));
  parts.push_back(end(-1, -1));
  return op1(OpId::cat, {parts, vdim(dim)});
}

// (input, spacing, dim, edge_order)
LuaResults gradient(Args& a) {
  Tensor t = a[0].tensor();
  if (!is_float(t->dtype)) t = to_dtype(t, DType::kFloat32);
  const int64_t order = a[3].sym_int().guard();
  if (order != 1 && order != 2) fail("gradient: edge_order must be 1 or 2, got ", order);
  std::vector<Tensor> out;
  Sizes dims;
  for (int64_t d = 0; d < t->dim() && a[2].is_none(); ++d) dims.push_back(d);
  if (!a[2].is_none()) dims = a[2].as<Sizes>();
  for (SymInt d : dims)
    out.push_back(slope(t, wrap_dim("gradient", d.guard(), t->dim()), pin(a[1].as<Scalar>()), order));
  return {out};
}

#define QUANTILE_TAIL "int? dim!=None, bool keepdim!=False, *, str interpolation='linear'"
#define NORM_TAIL "int[]? dim!=None, bool keepdim!=False, *, dtype? dtype!=None"
#define VARIANCE(fn)                                                                                          \
  {#fn, "Tensor input, bool unbiased", kBoth, unbiased_all<OpId::fn>},                                        \
      {#fn, "Tensor input, int[]? dim!, bool unbiased, bool keepdim!=False", kBoth, unbiased_dims<OpId::fn>}, \
      {#fn, "Tensor input, int[]? dim!=None, *, Scalar? correction=1, bool keepdim!=False", kBoth,            \
       variance<OpId::fn>},

const Composite kRows[] = {
    VARIANCE(var) VARIANCE(std) VARIANCE(var_mean) VARIANCE(std_mean){
        "norm", "Tensor input, Scalar? p=2, int[]? dim!=None, bool keepdim!=False, dtype? dtype!=None", kBoth, norm},
    {"norm", "Tensor input, str p, int[]? dim!=None, bool keepdim!=False, dtype? dtype!=None", kBoth, norm_named},
    {"linalg_norm", "Tensor input, Scalar? ord=None, " NORM_TAIL, kFunctionOf, linalg_norm},
    {"linalg_norm", "Tensor input, str ord, " NORM_TAIL, kFunctionOf, linalg_norm_named},
    {"linalg_matrix_norm", "Tensor input, Scalar ord, " NORM_TAIL, kFunctionOf, matrix_norm},
    {"linalg_matrix_norm", "Tensor input, str ord='fro', " NORM_TAIL, kFunctionOf, matrix_norm_named},
    {"quantile", "Tensor input, Scalar q, " QUANTILE_TAIL, kBoth, quantile<OpId::quantile>},
    {"quantile", "Tensor input, Tensor q, " QUANTILE_TAIL, kBoth, quantiles<OpId::quantile>},
    {"nanquantile", "Tensor input, Scalar q, " QUANTILE_TAIL, kBoth, quantile<OpId::nanquantile>},
    {"nanquantile", "Tensor input, Tensor q, " QUANTILE_TAIL, kBoth, quantiles<OpId::nanquantile>},
    {"gradient", "Tensor input, *, Scalar spacing=1, int[]? dim=None, int edge_order=1", kFunctionOf, gradient},
};

// -- tensordot(a, b, n | {dims_of_a, dims_of_b})

bool is_number(ArgReader& in, ArgReader::H h) {
  return in.kind(h) == LuaKind::kNumber || in.kind(h) == LuaKind::kInt64;
}

SymInt dim_at(ArgReader& in, ArgReader::H h) {
  if (!is_number(in, h)) {
    fail("tensordot: argument 'dims' must be a number or a pair of lists of numbers, got ", in.describe(h), " in it");
  }
  return read_int("tensordot", "dims", in, h);
}

Sizes int_list(ArgReader& in, ArgReader::H h) {
  if (in.kind(h) != LuaKind::kTable) return {dim_at(in, h)};
  Sizes out;
  for (int64_t i = 1; i <= in.length(h); ++i) out.push_back(dim_at(in, in.index(h, i)));
  return out;
}

LuaResults tensordot(const Binding&, ArgReader& in) {
  for (int i = 0; i < 2; ++i) {
    if (in.kind(i) == LuaKind::kTensor) continue;
    fail("tensordot: argument '", i ? "other" : "input", "' must be a Tensor, got ", in.describe(i));
  }
  if (in.count() > 3) fail("tensordot: takes at most 3 arguments, got ", in.count());
  const Tensor a = in.tensor(0), b = in.tensor(1);
  ArgReader::H dims = 2;
  if (in.kind(2) == LuaKind::kTable && in.length(2) == 0) {
    for (const std::string& key : in.keys(2)) {
      if (key != "dims") fail("tensordot: unknown keyword '", key, "' (known: dims)");
    }
    dims = in.field(2, "dims");
  }
  Sizes of_a, of_b;
  if (in.kind(dims) == LuaKind::kTable) {
    if (in.length(dims) != 2) fail("tensordot: argument 'dims' must be a number or a pair of lists");
    of_a = int_list(in, in.index(dims, 1)), of_b = int_list(in, in.index(dims, 2));
  } else {
    const int64_t n = in.kind(dims) == LuaKind::kNil ? 2 : dim_at(in, dims).guard();
    if (n < 0 || n > a->dim() || n > b->dim()) {
      fail("tensordot: dims ", n, " is out of range for shapes ", to_string(a->sizes), " and ", to_string(b->sizes));
    }
    for (int64_t i = 0; i < n; ++i) of_a.push_back(a->dim() - n + i), of_b.push_back(i);
  }
  return {op1(OpId::tensordot, {a, b, of_a, of_b})};
}

const Special kSpecials[] = {{"tensordot", kFunctionOf, tensordot, nullptr}};

}  // namespace

std::span<const Composite> reduction_rows() { return kRows; }
std::span<const Special> reduction_specials() { return kSpecials; }

}  // namespace lutra
