// Meta rules of gathering and scattering. Index values are checked where the op runs.
#include "ops/meta/rules.h"

namespace lutra {
namespace {

void check_index(OpId op, const Tensor& index) {
  if (index->dtype != DType::kInt64 && index->dtype != DType::kInt32) {
    fail(name(op), ": the index must be int64 or int32, got ", name(index->dtype));
  }
}

// A 0-dim tensor counts as one of shape {1}.
size_t rank(const Tensor& t) { return std::max<size_t>(t->sizes.size(), 1); }
SymInt size_at(const Tensor& t, int64_t d) { return t->sizes.empty() ? SymInt(1) : t->sizes[d]; }

// index may be no larger than t, save along dim.
void check_fits(OpId op, const Tensor& index, const Tensor& t, const char* what, int64_t except) {
  if (rank(index) != rank(t)) {
    fail(name(op), ": the index must have as many dimensions as ", what, ", got shapes ", to_string(index->sizes),
         " and ", to_string(t->sizes));
  }
  for (size_t d = 0; d < rank(t); d++) {
    SymInt i = size_at(index, int64_t(d)), n = size_at(t, int64_t(d));
    bool same = i.hint == n.hint && i == n;
    if (int64_t(d) != except && !same && i > n) {
      fail(name(op), ": an index of shape ", to_string(index->sizes), " is larger than ", what, " of shape ",
           to_string(t->sizes), " at dim ", d);
    }
  }
}

void check_same_dtype(OpId op, const Tensor& a, const Tensor& b, const char* what) {
  if (a->dtype != b->dtype) {
    fail(name(op), ": input and ", what, " must have one dtype, got ", name(a->dtype), " and ", name(b->dtype));
  }
}

}  // namespace

ResultSpecs meta_gather(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &index = args[2].as<Tensor>();
  check_index(op, index);
  int64_t d = wrap_dim(op, args[1].sym_int().guard(), t->sizes.size());
  check_fits(op, index, t, "the input", d);
  return {contiguous_spec(index->sizes, t->dtype)};
}

ResultSpecs meta_scatter_add(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &index = args[2].as<Tensor>(), &src = args[3].as<Tensor>();
  check_index(op, index);
  check_same_dtype(op, t, src, "src");
  int64_t d = wrap_dim(op, args[1].sym_int().guard(), t->sizes.size());
  check_fits(op, index, t, "the input", d);
  check_fits(op, index, src, "src", -1);
  return {like_spec(t, t->dtype)};
}

ResultSpecs meta_index_select(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &index = args[2].as<Tensor>();
  check_index(op, index);
  int64_t d = wrap_dim(op, args[1].sym_int().guard(), t->sizes.size());
  if (index->sizes.size() > 1) fail("index_select: the index must be a vector, got shape ", to_string(index->sizes));
  Sizes sizes = t->sizes;
  if (!sizes.empty()) sizes[d] = size_at(index, 0);
  if (sizes.empty() && size_at(index, 0) != 1) {
    fail("index_select: an index of shape ", to_string(index->sizes), " does not fit a 0-dim tensor");
  }
  return {contiguous_spec(sizes, t->dtype)};
}

ResultSpecs meta_index_add(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &index = args[2].as<Tensor>(), &src = args[3].as<Tensor>();
  check_index(op, index);
  check_same_dtype(op, t, src, "source");
  int64_t d = wrap_dim(op, args[1].sym_int().guard(), t->sizes.size());
  if (index->sizes.size() > 1) fail("index_add: the index must be a vector, got shape ", to_string(index->sizes));
  bool fits = rank(src) == rank(t) && size_at(src, d) == size_at(index, 0);
  for (size_t i = 0; fits && i < rank(t); i++)
    fits = int64_t(i) == d || size_at(src, int64_t(i)) == size_at(t, int64_t(i));
  if (!fits) {
    fail("index_add: a source of shape ", to_string(src->sizes), " does not fit an index of shape ",
         to_string(index->sizes), " and an input of shape ", to_string(t->sizes), " at dim ", d);
  }
  return {like_spec(t, t->dtype)};
}

namespace {
// src must have the sizes of the view that is written.
ResultSpecs scatter_spec(OpId op, const Args& args, const ResultSpec& view) {
  const Tensor &t = args[0].as<Tensor>(), &src = args[1].as<Tensor>();
  if (!same_sizes(src->sizes, view.sizes)) {
    fail(name(op), ": expected src of shape ", to_string(view.sizes), ", got ", to_string(src->sizes));
  }
  return {like_spec(t, t->dtype)};
}
}  // namespace

ResultSpecs meta_select(OpId op, const Args& args);
ResultSpecs meta_slice(OpId op, const Args& args);

ResultSpecs meta_select_scatter(OpId op, const Args& args) {
  return scatter_spec(op, args, meta_select(op, {args[0], args[2], args[3]})[0]);
}

ResultSpecs meta_slice_scatter(OpId op, const Args& args) {
  return scatter_spec(op, args, meta_slice(op, {args[0], args[2], args[3], args[4], args[5]})[0]);
}

}  // namespace lutra
