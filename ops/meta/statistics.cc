// Meta rules of statistics, norms and scans.
#include <cmath>

#include "ops/meta/rules.h"

namespace lutra {
namespace {

void check_float(OpId op, DType type) {
  if (!is_float(type)) fail(name(op), ": expected a floating point dtype, got ", name(type));
}

ResultSpec reduced(OpId op, const Args& args, size_t dim, size_t keepdim, DType type) {
  const Tensor& t = args[0].as<Tensor>();
  Dims dims = reduced_dims(op, args[dim], t->sizes.size());
  return contiguous_spec(reduced_sizes(t->sizes, dims, args[keepdim].as<bool>()), type);
}

}  // namespace

// (input, dim, correction, keepdim): var, std, and the ops that also return the mean.
ResultSpecs meta_var(OpId op, const Args& args) {
  DType type = args[0].tensor()->dtype;
  check_float(op, type);
  ResultSpec spec = reduced(op, args, 1, 3, type);
  return info(op).results == 2 ? ResultSpecs{spec, spec} : ResultSpecs{spec};
}

ResultSpecs meta_logsumexp(OpId op, const Args& args) {
  return {reduced(op, args, 1, 2, to_float(args[0].tensor()->dtype))};
}

ResultSpecs meta_count_nonzero(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  Dims dims = reduced_dims(op, args[1], t->sizes.size());
  return {contiguous_spec(reduced_sizes(t->sizes, dims, false), DType::kInt64)};
}

// (input, ord, dim, keepdim, dtype)
ResultSpecs meta_vector_norm(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  DType type = args[4].is_none() ? t->dtype : args[4].as<DType>();
  check_float(op, t->dtype);
  check_float(op, type);
  if (promote_types(t->dtype, type) != type) {
    fail(name(op), ": an input of dtype ", name(t->dtype), " does not go into dtype ", name(type),
         " without narrowing");
  }
  const Scalar& ord = args[1].as<Scalar>();
  if (scalar_ask(SymCmp::kLt, ord, Scalar(0.0)) || scalar_equals(ord, HUGE_VAL)) {
    for (int64_t d : reduced_dims(op, args[2], t->sizes.size())) {
      if (t->sizes[size_t(d)] != 0) continue;
      fail(name(op), ": the norm of order ", to_string(ord), " of nothing does not exist (dim ", d, " of shape ",
           to_string(t->sizes), ")");
    }
  }
  return {reduced(op, args, 2, 3, type)};
}

// (input, dim, reverse): the input is contiguous, see decompose_scan.cc.
ResultSpecs meta_scan(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  return {contiguous_spec(t->sizes, t->dtype)};
}

ResultSpecs meta_scan_with_index(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  return {contiguous_spec(t->sizes, t->dtype), contiguous_spec(t->sizes, DType::kInt64)};
}

}  // namespace lutra
