// Meta rules of sorting and searching.
#include "ops/core/closest.h"
#include "ops/meta/rules.h"

namespace lutra {

ResultSpecs meta_sort(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  wrap_dim(op, args[1].sym_int().guard(), t->sizes.size());
  return {like_spec(t, t->dtype), like_spec(t, DType::kInt64)};
}

ResultSpecs meta_argsort(OpId op, const Args& args) { return {meta_sort(op, args)[1]}; }

ResultSpecs meta_msort(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  return {like_spec(t, t->dtype)};
}

namespace {
// Checks the arguments (input, k, dim): k must be in least .. the size of dim. Returns dim from 0 on.
int64_t check_k(OpId op, const Args& args, int64_t least) {
  const Tensor& t = args[0].as<Tensor>();
  const SymInt k = args[1].sym_int();
  const int64_t d = wrap_dim(op, args[2].sym_int().guard(), t->sizes.size());
  const SymInt n = t->sizes.empty() ? SymInt(1) : t->sizes[size_t(d)];
  if (k < least || n < k) {
    fail(name(op), ": k must be in ", least, " .. ", n.hint, ", the size of dim ", d, ", got ", k.hint);
  }
  return d;
}
}  // namespace

ResultSpecs meta_topk(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  const SymInt k = args[1].sym_int();
  const int64_t d = check_k(op, args, 0);
  Sizes sizes = t->sizes;
  if (!sizes.empty()) sizes[size_t(d)] = k;
  return {contiguous_spec(sizes, t->dtype), contiguous_spec(sizes, DType::kInt64)};
}

namespace {
// Describes one value for each row, and its position.
ResultSpecs one_of_rows(OpId op, const Tensor& t, const Value& dim, bool keepdim) {
  const int64_t d = wrap_dim(op, dim.sym_int().guard(), t->sizes.size());
  if (!t->sizes.empty() && t->sizes[size_t(d)] == 0) fail(name(op), ": dim ", d, " is empty");
  const Sizes sizes = t->sizes.empty() ? Sizes() : reduced_sizes(t->sizes, {d}, keepdim);
  return {contiguous_spec(sizes, t->dtype), contiguous_spec(sizes, DType::kInt64)};
}
}  // namespace

ResultSpecs meta_kthvalue(OpId op, const Args& args) {
  check_k(op, args, 1);
  return one_of_rows(op, args[0].as<Tensor>(), args[2], args[3].as<bool>());
}

ResultSpecs meta_median_dim(OpId op, const Args& args) {
  return one_of_rows(op, args[0].as<Tensor>(), args[1], args[2].as<bool>());
}

ResultSpecs meta_median_all(OpId, const Args& args) { return {contiguous_spec({}, args[0].as<Tensor>()->dtype)}; }

ResultSpecs meta_searchsorted(OpId op, const Args& args) {
  const Tensor& sorted = args[0].as<Tensor>();
  const DType type = args[2].as<bool>() ? DType::kInt32 : DType::kInt64;
  if (!args[4].is_none()) {
    const std::string& side = args[4].as<std::string>();
    const KnownNames sides = {"left", "right"};
    if (!sides.have(side)) fail(name(op), ": side '", side, "' is unknown", sides.expected(side));
    if (side == "left" && args[3].as<bool>()) fail(name(op), ": side 'left' and right=true contradict each other");
  }
  if (!args[5].is_none()) {
    const Tensor& sorter = args[5].as<Tensor>();
    if (!same_sizes(sorter->sizes, sorted->sizes) || !is_int64(sorter)) {
      fail(name(op), ": sorter must be int64 of the shape of sorted_sequence, ", to_string(sorted->sizes), ", got ",
           name(sorter->dtype), " of shape ", to_string(sorter->sizes));
    }
  }
  if (sorted->dim() == 0) fail(name(op), ": the boundaries must have a dimension");
  if (!args[1].is<Tensor>()) {
    if (sorted->dim() != 1)
      fail(name(op), ": a number needs boundaries of 1 dimension, got ", to_string(sorted->sizes));
    return {contiguous_spec({}, type)};
  }
  const Tensor& t = args[1].as<Tensor>();
  bool fits = sorted->dim() == 1 || sorted->dim() == t->dim();
  for (size_t d = 0; fits && sorted->dim() > 1 && d + 1 < t->sizes.size(); d++) fits = sorted->sizes[d] == t->sizes[d];
  if (!fits) {
    fail(name(op), ": boundaries must have 1 dimension or the input's leading sizes, got shapes ",
         to_string(sorted->sizes), " and ", to_string(t->sizes));
  }
  return {contiguous_spec(t->sizes, type)};
}

ResultSpecs meta_bucketize(OpId op, const Args& args) {
  const Tensor& boundaries = args[1].as<Tensor>();
  if (boundaries->dim() != 1) {
    fail("bucketize: boundaries must have 1 dimension, got shape ", to_string(boundaries->sizes));
  }
  return meta_searchsorted(op, {args[1], args[0], args[2], args[3], Value(), Value()});
}

ResultSpecs meta_isin(OpId, const Args& args) {
  if (!args[0].is<Tensor>() && !args[1].is<Tensor>()) fail("isin: at least one argument must be a tensor");
  return {contiguous_spec(args[0].is<Tensor>() ? args[0].as<Tensor>()->sizes : Sizes(), DType::kBool)};
}
ResultSpecs meta_isin_tensors(OpId op, const Args& args) { return meta_isin(op, args); }

ResultSpecs meta_histc(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  const SymInt bins = args[1].sym_int();
  if (!is_float(t->dtype)) fail("histc: the input must be of a float dtype, got ", name(t->dtype));
  if (bins <= 0) fail("histc: bins must be positive, got ", bins.hint);
  return {contiguous_spec({bins}, t->dtype)};
}

// -- shapes that depend on elements: the rules only check

ResultSpecs meta_unique(OpId op, const Args& args) {
  const Value& dim = args.back();
  if (!dim.is_none()) wrap_dim(op, dim.sym_int().guard(), args[0].as<Tensor>()->sizes.size());
  return {};
}

ResultSpecs meta_bincount(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  if (t->dim() != 1 || !is_integral(t->dtype) || is_bool(t->dtype)) {
    fail("bincount: the input must be a vector of integers, got ", describe(t));
  }
  if (!args[1].is_none() && t->numel() != 0 && !same_sizes(args[1].as<Tensor>()->sizes, t->sizes)) {
    fail("bincount: weights must have the input's shape ", to_string(t->sizes), ", got ",
         to_string(args[1].as<Tensor>()->sizes));
  }
  if (args[2].sym_int() < 0) fail("bincount: minlength must not be negative, got ", args[2].sym_int().hint);
  return {};
}

}  // namespace lutra
