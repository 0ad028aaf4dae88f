// Decomposes norms by name and norms of matrices.
#include <cmath>

#include "ops/decompose/emit.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

Results vector_norm(const Value& x, const Value& ord, const Value& dim, const Value& keepdim, const Value& dtype) {
  return {op1(OpId::linalg_vector_norm, {x, ord.is_none() ? vnum(2) : ord, dim, keepdim, dtype})};
}

// The two dims of matrices. `columns` is counted after the rows have been removed.
struct MatrixDims {
  int64_t rows, columns;
};
MatrixDims matrix_dims(OpId op, const Tensor& t, const Value& dim) {
  const Sizes dims = dim.is_none() ? Sizes{-2, -1} : dim.as<Sizes>();
  if (dims.size() != 2) fail(name(op), ": expects 2 dims, got ", to_string(dims));
  if (t->dim() < 2) fail(name(op), ": expects a tensor of 2 dimensions or more, got shape ", to_string(t->sizes));
  const MatrixDims m = {wrap_dim(op, dims[0].guard(), t->sizes.size()), wrap_dim(op, dims[1].guard(), t->sizes.size())};
  if (m.rows == m.columns) fail(name(op), ": dims must differ, got ", to_string(dims));
  return m;
}

// Order 1 is the largest column sum, infinity the largest row sum. Negative orders are the smallest. The largest of no
// sums is 0.
Results matrix_norm_of(OpId op, const Args& a) {
  Tensor t = a[0].tensor();
  const MatrixDims m = matrix_dims(op, t, a[2]);
  const double ord = pin(a[1].as<Scalar>()).to_double();
  if (std::fabs(ord) != 1 && !std::isinf(ord)) {
    fail(name(op), ": ord ", ord, " is not known (expected 'fro', 1, -1, inf or -inf)");
  }
  if (!a[4].is_none()) t = to_dtype(t, a[4].as<DType>());
  const bool by_columns = std::fabs(ord) == 1;
  const int64_t first = by_columns ? m.rows : m.columns, second = by_columns ? m.columns : m.rows;
  const Tensor sums = op1(OpId::sum, {op1(OpId::abs, {t}), Sizes{first}, true});
  if (ord > 0 && t->sizes[size_t(second)] == 0) {
    Sizes sizes;
    for (int64_t d = 0; d < t->dim(); d++) {
      const bool reduced = d == first || d == second;
      if (!reduced || a[3].as<bool>()) sizes.push_back(reduced ? SymInt(1) : t->sizes[size_t(d)]);
    }
    return {full(sizes, Scalar(0.0), sums->dtype, t->device())};
  }
  Tensor r = op1(ord > 0 ? OpId::amax : OpId::amin, {sums, Sizes{second}, true});
  if (!a[3].as<bool>()) r = op1(OpId::squeeze, {r, Sizes{first, second}});
  return {r};
}

Results matrix_norm_named_of(OpId op, const Args& a) {
  const std::string& ord = a[1].as<std::string>();
  if (ord != "fro") fail(name(op), ": ord '", ord, "' is not known (expected 'fro' or a number)");
  const MatrixDims m = matrix_dims(op, a[0].tensor(), a[2]);
  return vector_norm(a[0], vnum(2), Sizes{m.rows, m.columns}, a[3], a[4]);
}

}  // namespace

// All of these take (input, ord, dim, keepdim, dtype).
Results decompose_frobenius_norm(const Args& a) {
  const std::string& p = a[1].as<std::string>();
  if (p != "fro") fail("norm: p '", p, "' is not known (expected 'fro' or a number)");
  return vector_norm(a[0], vnum(2), a[2], a[3], a[4]);
}

// Without ord it is the 2-norm over all of dim. With ord it is a vector's or a matrix' norm.
Results decompose_linalg_norm(const Args& a) {
  if (a[1].is_none()) return vector_norm(a[0], a[1], a[2], a[3], a[4]);
  const size_t dims = a[2].is_none() ? a[0].tensor()->sizes.size() : a[2].as<Sizes>().size();
  if (dims != 1 && dims != 2) fail("linalg_norm: ord needs dim, or a tensor of 1 or 2 dimensions");
  return dims == 1 ? vector_norm(a[0], a[1], a[2], a[3], a[4]) : matrix_norm_of(OpId::linalg_norm, a);
}
Results decompose_linalg_norm_named(const Args& a) { return matrix_norm_named_of(OpId::linalg_norm, a); }
Results decompose_linalg_matrix_norm(const Args& a) { return matrix_norm_of(OpId::linalg_matrix_norm, a); }
Results decompose_linalg_matrix_norm_named(const Args& a) { return matrix_norm_named_of(OpId::linalg_matrix_norm, a); }

}  // namespace lutra
