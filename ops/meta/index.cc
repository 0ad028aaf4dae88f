// Meta rules of gathering and scattering. Index values are checked where the op runs.
#include "ops/core/closest.h"
#include "ops/core/half.h"
#include "ops/meta/index_place.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

void check_index(OpId op, const Tensor& index) {
  if (!is_index(index->dtype) && index->numel() != 0) {
    fail(name(op), ": the index must be int64 or int32, got ", name(index->dtype));
  }
}

// A 0-dim tensor counts as one of shape {1}.
size_t rank(const Tensor& t) { return std::max<size_t>(t->sizes.size(), 1); }
SymInt size_at(const Tensor& t, int64_t d) { return t->sizes.empty() ? SymInt(1) : t->sizes[d]; }
int64_t dim_of(OpId op, const Args& args, const Tensor& t) {
  return wrap_dim(op, args[1].sym_int().guard(), t->sizes.size());
}

// Checks that index is no larger than t, except along dim. An empty index fits, whatever its rank.
void check_fits(OpId op, const Tensor& index, const Tensor& t, const char* what, int64_t except) {
  if (rank(index) != rank(t)) {
    if (index->numel() == 0) return;
    fail(name(op), ": the index must have as many dimensions as ", what, ", got shapes ", to_string(index->sizes),
         " and ", to_string(t->sizes));
  }
  for (size_t d = 0; d < rank(t); d++) {
    SymInt i = size_at(index, int64_t(d)), n = size_at(t, int64_t(d));
    bool same = i.hint == n.hint && i == n;
    if (int64_t(d) != except && !same && i > n) {
      if (index->numel() == 0) return;
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

void check_vector(OpId op, const Tensor& index) {
  check_index(op, index);
  if (index->sizes.size() > 1) fail(name(op), ": the index must be a vector, got shape ", to_string(index->sizes));
}

void check_mask(OpId op, const Tensor& mask) {
  if (!is_bool(mask->dtype)) fail(name(op), ": the mask must be bool, got ", name(mask->dtype));
}

void check_reduce(OpId op, const Value& reduce, const KnownNames& known) {
  if (reduce.is_none()) return;
  const std::string& way = reduce.as<std::string>();
  if (!known.have(way)) fail(name(op), ": reduce '", way, "' is unknown", known.expected(way));
}

// The shape of input[indices at dims].
Sizes indexed_sizes(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  const auto& indices = args[1].as<std::vector<Tensor>>();
  const Sizes& dims = args[2].as<Sizes>();
  LUTRA_CHECK(!indices.empty() && indices.size() == dims.size());
  Sizes places, others;
  for (size_t k = 0; k < indices.size(); k++) {
    check_index(op, indices[k]);
    places = k ? broadcast(op, places, indices[k]->sizes) : indices[k]->sizes;
  }
  for (size_t k = 0; k < dims.size(); k++) {
    const int64_t d = dims[k].hint;
    const SymInt size = t->sizes[size_t(d)];
    if (size == 0 && (indices[k]->dim() == 0 || numel(places) != 0)) {
      fail(name(op), ": a position is out of bounds for dimension ", d, " with size 0");
    }
  }
  size_t next = 0;
  for (int64_t d = 0; d < t->dim(); d++) {
    bool indexed = next < dims.size() && dims[next].hint == d;
    if (!indexed) others.push_back(t->sizes[size_t(d)]);
    next += indexed;
  }
  LUTRA_CHECK(next == dims.size(), "dims of an index");
  const auto first = size_t(index_place(
      dims.size(), [&](size_t k) { return dims[k].hint; }, [&](size_t k) { return indices[k]->dim(); }));
  Sizes sizes(others.begin(), others.begin() + first);
  for (SymInt s : places) sizes.push_back(s);
  for (size_t d = first; d < others.size(); d++) sizes.push_back(others[d]);
  return sizes;
}

}  // namespace

ResultSpecs meta_gather(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &index = args[2].as<Tensor>();
  const bool whole = is_index(index->dtype);
  if (!whole && index->numel() != 0) check_index(op, index);  // an empty index may have any dtype
  check_fits(op, index, t, "the input", dim_of(op, args, t));
  return {contiguous_spec(index->sizes, t->dtype)};
}

ResultSpecs meta_index(OpId op, const Args& args) {
  return {contiguous_spec(indexed_sizes(op, args), args[0].as<Tensor>()->dtype)};
}

ResultSpecs meta_index_put(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &values = args[3].as<Tensor>();
  check_same_dtype(op, t, values, "values");
  if (is_stored(t->dtype) && args[4].as<bool>()) fail(name(op), ": accumulate: not defined for ", name(t->dtype));
  const Sizes sizes = indexed_sizes(op, args);
  bool fits = values->sizes.size() <= sizes.size();
  for (size_t d = 0; fits && d < values->sizes.size(); d++) {
    SymInt have = values->sizes[d], want = sizes[sizes.size() - values->sizes.size() + d];
    fits = have == 1 || have == want;
  }
  if (!fits) {
    fail(name(op), ": shape mismatch: a value of shape ", to_string(values->sizes),
         " cannot be broadcast to the indexing result of shape ", to_string(sizes));
  }
  return {like_spec(t, t->dtype)};
}

// scatter, scatter_add, scatter_reduce.
ResultSpecs meta_scatter(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &index = args[2].as<Tensor>();
  check_index(op, index);
  check_fits(op, index, t, "the input", dim_of(op, args, t));
  if (args[3].is<Tensor>()) {
    check_same_dtype(op, t, args[3].as<Tensor>(), "src");
    check_fits(op, index, args[3].as<Tensor>(), "src", -1);
  }
  if (op == OpId::scatter) check_reduce(op, args[4], {"add", "multiply"});
  if (op == OpId::scatter_reduce) check_reduce(op, args[4], {"sum", "prod", "mean", "amax", "amin", "max", "min"});
  return {contiguous_spec(t->sizes, t->dtype)};
}

ResultSpecs meta_index_select(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &index = args[2].as<Tensor>();
  check_vector(op, index);
  int64_t d = dim_of(op, args, t);
  Sizes sizes = t->sizes;
  if (!sizes.empty()) sizes[d] = size_at(index, 0);
  if (sizes.empty() && size_at(index, 0) != 1) {
    fail("index_select: an index of shape ", to_string(index->sizes), " does not fit a 0-dim tensor");
  }
  return {contiguous_spec(sizes, t->dtype)};
}

// index_add, index_copy, index_reduce.
ResultSpecs meta_index_add(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &index = args[2].as<Tensor>(), &src = args[3].as<Tensor>();
  check_vector(op, index);
  check_same_dtype(op, t, src, "source");
  int64_t d = dim_of(op, args, t);
  if (op == OpId::index_reduce) check_reduce(op, args[4], {"prod", "mean", "amax", "amin"});
  const bool ranks = op == OpId::index_copy ? rank(src) == rank(t) : src->dim() == t->dim();
  bool fits = ranks && size_at(src, d) == size_at(index, 0);
  for (size_t i = 0; fits && i < rank(t); i++)
    fits = int64_t(i) == d || size_at(src, int64_t(i)) == size_at(t, int64_t(i));
  if (!fits) {
    fail(name(op), ": a source of shape ", to_string(src->sizes), " does not fit an index of shape ",
         to_string(index->sizes), " and an input of shape ", to_string(t->sizes), " at dim ", d);
  }
  return {contiguous_spec(t->sizes, t->dtype)};
}

ResultSpecs meta_index_fill(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  check_vector(op, args[2].as<Tensor>());
  dim_of(op, args, t);
  if (args[3].is<Tensor>() && !args[3].as<Tensor>()->sizes.empty()) {
    fail("index_fill: the value must be a number or a tensor of no dimensions, got shape ",
         to_string(args[3].as<Tensor>()->sizes));
  }
  return {like_spec(t, t->dtype)};
}

void check_not_empty(OpId op, const Tensor& t, const Tensor& index) {
  if (t->numel() == 0 && index->numel() != 0) fail(name(op), ": the tensor is empty, of shape ", to_string(t->sizes));
}

ResultSpecs meta_take(OpId op, const Args& args) {
  check_index(op, args[1].as<Tensor>());
  check_not_empty(op, args[0].as<Tensor>(), args[1].as<Tensor>());
  return {contiguous_spec(args[1].as<Tensor>()->sizes, args[0].as<Tensor>()->dtype)};
}

ResultSpecs meta_take_along_dim(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &index = args[1].as<Tensor>();
  check_index(op, index);
  if (args[2].is_none()) return {contiguous_spec({index->numel()}, t->dtype)};
  if (t->dim() != index->dim()) {
    fail("take_along_dim: input and indices must have as many dimensions, got shapes ", to_string(t->sizes), " and ",
         to_string(index->sizes));
  }
  int64_t d = wrap_dim(op, args[2].sym_int().guard(), t->sizes.size());
  Sizes a = t->sizes, b = index->sizes;
  if (!a.empty()) a[size_t(d)] = 1, b[size_t(d)] = 1;
  Sizes sizes = broadcast(op, a, b);
  if (!a.empty()) sizes[size_t(d)] = index->sizes[size_t(d)];
  return {contiguous_spec(sizes, t->dtype)};
}

ResultSpecs meta_put(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &index = args[1].as<Tensor>(), &src = args[2].as<Tensor>();
  check_index(op, index);
  check_same_dtype(op, t, src, "source");
  if (index->numel() != src->numel()) {
    fail("put: source must have as many elements as index, got shapes ", to_string(src->sizes), " and ",
         to_string(index->sizes));
  }
  check_not_empty(op, t, index);
  return {like_spec(t, t->dtype)};
}

ResultSpecs meta_masked_scatter(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &mask = args[1].as<Tensor>();
  check_mask(op, mask);
  check_same_dtype(op, t, args[2].as<Tensor>(), "source");
  return {contiguous_spec(broadcast(op, t->sizes, mask->sizes), t->dtype)};
}

ResultSpecs meta_masked_gather(OpId op, const Args& args) {
  check_mask(op, args[1].as<Tensor>());
  broadcast(op, args[0].as<Tensor>()->sizes, args[1].as<Tensor>()->sizes);
  return {contiguous_spec(args[2].as<Sizes>(), args[0].as<Tensor>()->dtype)};
}

ResultSpecs meta_embedding(OpId op, const Args& args) {
  const Tensor &index = args[0].as<Tensor>(), &weight = args[1].as<Tensor>();
  check_index(op, index);
  if (weight->dim() != 2) fail("embedding: the weight must have 2 dimensions, got shape ", to_string(weight->sizes));
  if (!args[2].is_none()) {
    const int64_t at = args[2].sym_int().guard();
    const SymInt n = weight->sizes[0];
    if (n <= at || n + at < 0) {
      fail("embedding: padding_idx ", at, " is out of bounds for ", n.hint, " embeddings");
    }
  }
  Sizes sizes = index->sizes;
  sizes.push_back(weight->sizes[1]);
  return {contiguous_spec(sizes, weight->dtype)};
}

ResultSpecs meta_embedding_dense_backward(OpId op, const Args& args) {
  const Tensor &g = args[0].as<Tensor>(), &index = args[1].as<Tensor>();
  check_internal(op, is_index(index->dtype) || index->numel().hint == 0, "the indices must be int64 or int32");
  check_internal(op, g->dim() == index->dim() + 1, "the gradient must have a dimension more than the indices");
  for (size_t d = 0; d < index->sizes.size(); d++) {
    check_internal(op, g->sizes[d].hint == index->sizes[d].hint, "the gradient is of other indices");
  }
  return {contiguous_spec({args[2].sym_int(), g->sizes.back()}, g->dtype)};
}

ResultSpecs meta_embedding_bag(OpId op, const Args& args) {
  const Tensor &weight = args[0].as<Tensor>(), &ids = args[1].as<Tensor>();
  const bool sums = op == OpId::embedding_bag_sum, by_offsets = !args[2].is_none();
  check_internal(op, weight->dim() == 2 && is_float(weight->dtype) && is_index(ids->dtype), "a table and ids");
  check_internal(op, ids->dim() == (by_offsets ? 1 : 2), "bags are rows, or lie between offsets");
  SymInt bags = by_offsets ? args[2].as<Tensor>()->numel() : ids->sizes[0];
  if (by_offsets && args.back().as<bool>()) bags = bags - 1;
  const Sizes sizes = {bags, weight->sizes[1]};
  if (!sums) return {contiguous_spec(sizes, DType::kInt64)};
  return {contiguous_spec(sizes, opmath_type(weight->dtype)), contiguous_spec({bags}, DType::kInt64)};
}

// -- shapes that depend on elements: the rules only check

ResultSpecs meta_nonzero(OpId, const Args&) { return {}; }

ResultSpecs meta_tell_number(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  const bool number = is_float(t->dtype) && size_of(t->dtype) == sizeof(double) && t->dim() == 0;
  if (!number) fail("tell_number: expects a number, got a tensor of ", name(t->dtype));
  return {};
}

ResultSpecs meta_masked_select(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &mask = args[1].as<Tensor>();
  check_mask(op, mask);
  broadcast(op, t->sizes, mask->sizes);
  return {};
}

namespace {
// Checks that src has the sizes of the view that is written.
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
