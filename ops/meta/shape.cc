// Meta rules of joins, views along diagonals and windows, and padding.
#include <algorithm>

#include "ops/core/closest.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

bool equal_sizes(SymInt a, SymInt b) { return a.hint == b.hint && a == b; }

// Returns whether t is an empty vector. It is accepted beside tensors of any rank, for compatibility with the time
// before empty matrices.
bool is_legacy_empty(const Tensor& t) { return t->sizes.size() == 1 && t->sizes[0].hint == 0 && t->sizes[0] == 0; }

}  // namespace

ResultSpecs meta_cat(OpId op, const Args& args) {
  const auto& list = args[0].as<std::vector<Tensor>>();
  if (list.empty()) fail(name(op), ": expects a list of at least one tensor");
  Promotion type;
  const Tensor* first = nullptr;
  size_t at = 0, first_at = 0;
  for (const Tensor& t : list) {
    type.add(t);
    if (t->sizes.empty()) fail(name(op), ": tensor ", at, " of the list has no dimensions and cannot be joined");
    if (!first && !is_legacy_empty(t)) first = &t, first_at = at;
    at++;
  }
  if (!first) first = &list[0];
  const int64_t dim = wrap_dim(op, args[1].sym_int().guard(), (*first)->sizes.size());
  Sizes sizes = (*first)->sizes;
  sizes[size_t(dim)] = 0;
  for (size_t i = 0; i < list.size(); i++) {
    const Tensor& t = list[i];
    if (t->sizes.size() != sizes.size() && is_legacy_empty(t)) continue;
    bool same = t->sizes.size() == sizes.size();
    for (size_t d = 0; same && d < sizes.size(); d++) {
      same = int64_t(d) == dim || equal_sizes(t->sizes[d], (*first)->sizes[d]);
    }
    if (!same) {
      fail(name(op), ": tensor ", i, " has shape ", to_string(t->sizes), ", tensor ", first_at, " has ",
           to_string((*first)->sizes), "; they must agree in every dimension but ", dim);
    }
    sizes[size_t(dim)] = sizes[size_t(dim)] + t->sizes[size_t(dim)];
  }
  return {contiguous_spec(sizes, type.type())};
}

ResultSpecs meta_flip(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  reduced_dims(op, args[1], t->sizes.size(), false);
  return {like_spec(t, t->dtype)};
}

namespace {

// Returns the elements that a layout spans from its first one, including it; 0 if it has none.
SymInt span_of(const Sizes& sizes, const Sizes& strides) {
  SymInt last = 1;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (sizes[d] == 0) return 0;
    last = last + (sizes[d] - 1) * strides[d];
  }
  return last;
}

// Returns the last element that the layout reaches, by hints. A negative value means none.
int64_t last_element(const Sizes& sizes, const Sizes& strides, SymInt offset) {
  int64_t last = offset.hint;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (sizes[d].hint == 0) return -1;
    last += (sizes[d].hint - 1) * strides[d].hint;
  }
  return last;
}

}  // namespace

ResultSpecs meta_as_strided(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  const Sizes &sizes = args[1].as<Sizes>(), &strides = args[2].as<Sizes>();
  if (sizes.size() != strides.size()) {
    fail(name(op), ": size ", to_string(sizes), " and stride ", to_string(strides), " differ in length");
  }
  for (size_t d = 0; d < sizes.size(); d++) {
    if (sizes[d] < 0) fail(name(op), ": sizes must not be negative, got ", to_string(sizes));
    if (strides[d] < 0) fail(name(op), ": strides must not be negative, got ", to_string(strides));
  }
  SymInt offset = args[3].is_none() ? t->offset : args[3].sym_int();
  if (offset < 0) fail(name(op), ": storage_offset must not be negative, got ", offset.hint);
  SymInt span = span_of(sizes, strides), end = offset + span, have;
  if (t->is_fake()) {
    // A FakeTensor's storage has at least the elements of the view's base.
    const Tensor& whole = t->base ? t->base : t;
    have = whole->offset + span_of(whole->sizes, whole->strides);
  } else {
    have = int64_t(t->storage->nbytes / size_of(t->dtype));
  }
  if (span != 0 && end > have) {
    fail(name(op), ": size ", to_string(sizes), ", stride ", to_string(strides), " and storage_offset ", offset.hint,
         " reach element ", end.hint - 1, " of a storage of ", have.hint);
  }
  return {view_spec(t, sizes, strides, offset)};
}

// The view is a view of the result, which has the input's layout. Passes make this op from views that were checked, so
// it asks nothing of symbols.
ResultSpecs meta_as_strided_scatter(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &src = args[1].as<Tensor>();
  const Sizes &sizes = args[2].as<Sizes>(), &strides = args[3].as<Sizes>();
  const SymInt offset = args[4].sym_int();
  const ResultSpec result = like_spec(t, t->dtype);
  check_internal(op, sizes.size() == strides.size(), "size and stride differ in length");
  const bool positive = std::none_of(strides.begin(), strides.end(), [](SymInt s) { return s.hint < 0; });
  check_internal(op, positive && offset.hint >= 0, "stride and storage_offset must not be negative");
  check_internal(op, last_element(sizes, strides, offset) <= last_element(result.sizes, result.strides, 0),
                 "the view reaches beyond the input");
  check_internal(op, src->sizes.size() <= sizes.size(), "src has more dimensions than the view");
  for (size_t d = src->sizes.size(), at = sizes.size(); d-- > 0;) {
    const int64_t from = src->sizes[d].hint;
    at--;
    check_internal(op, from == 1 || from == sizes[at].hint, "src does not fit the view");
  }
  return {result};
}

namespace {

struct Diagonal {
  int64_t dim1, dim2;
  SymInt offset, size;
};

Diagonal diagonal_of(OpId op, const Sizes& sizes, const Value& offset, const Value& dim1, const Value& dim2) {
  Diagonal d;
  if (sizes.size() < 2) fail(name(op), ": expected a tensor of 2 dimensions or more, got shape ", to_string(sizes));
  d.dim1 = wrap_dim(op, dim1.sym_int().guard(), sizes.size());
  d.dim2 = wrap_dim(op, dim2.sym_int().guard(), sizes.size());
  if (d.dim1 == d.dim2) fail(name(op), ": dim1 and dim2 must differ, got ", d.dim1, " for both");
  d.offset = offset.sym_int();
  SymInt a = sizes[size_t(d.dim1)], b = sizes[size_t(d.dim2)];
  if (d.offset < 0) a = a + d.offset;
  if (d.offset > 0) b = b - d.offset;
  d.size = sym_max(sym_min(a, b), 0);
  return d;
}

}  // namespace

ResultSpecs meta_diagonal(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  Diagonal diagonal = diagonal_of(op, t->sizes, args[1], args[2], args[3]);
  ResultSpec spec = view_spec(t, {}, {}, t->offset);
  for (int64_t d = 0; d < t->dim(); d++) {
    if (d == diagonal.dim1 || d == diagonal.dim2) continue;
    spec.sizes.push_back(t->sizes[size_t(d)]);
    spec.strides.push_back(t->strides[size_t(d)]);
  }
  SymInt along1 = t->strides[size_t(diagonal.dim1)], along2 = t->strides[size_t(diagonal.dim2)];
  spec.sizes.push_back(diagonal.size);
  spec.strides.push_back(along1 + along2);
  // As in PyTorch, a diagonal without elements begins where t does.
  if (diagonal.offset == 0 || diagonal.size == 0) return {spec};
  if (diagonal.offset > 0) spec.offset = spec.offset + along2 * diagonal.offset;
  if (diagonal.offset < 0) spec.offset = spec.offset - along1 * diagonal.offset;
  return {spec};
}

ResultSpecs meta_diagonal_scatter(OpId op, const Args& args) {
  const Tensor &t = args[0].as<Tensor>(), &src = args[1].as<Tensor>();
  ResultSpec view = meta_diagonal(op, {args[0], args[2], args[3], args[4]})[0];
  if (!same_sizes(src->sizes, view.sizes)) {
    fail(name(op), ": expected src of shape ", to_string(view.sizes), ", got ", to_string(src->sizes));
  }
  return {like_spec(t, t->dtype)};
}

ResultSpecs meta_unfold(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  const int64_t dim = wrap_dim(op, args[1].sym_int().guard(), t->sizes.size());
  const SymInt size = args[2].sym_int(), step = args[3].sym_int();
  const SymInt have = t->sizes.empty() ? SymInt(1) : t->sizes[size_t(dim)];
  if (size < 0) fail(name(op), ": size must not be negative, got ", size.hint);
  if (step <= 0) fail(name(op), ": step must be greater than zero, got ", step.hint);
  if (size > have) {
    fail(name(op), ": size ", size.hint, " is larger than dim ", dim, " of shape ", to_string(t->sizes));
  }
  ResultSpec spec = view_spec(t, t->sizes, t->strides, t->offset);
  if (!t->sizes.empty()) {
    spec.sizes[size_t(dim)] = floor_div(have - size, step) + 1;
    spec.strides[size_t(dim)] = t->strides[size_t(dim)] * step;
  }
  spec.sizes.push_back(size);
  spec.strides.push_back(t->sizes.empty() ? SymInt(1) : t->strides[size_t(dim)]);
  return {spec};
}

ResultSpecs meta_triangle(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  if (t->sizes.size() < 2) {
    fail(name(op), ": expected a tensor of 2 dimensions or more, got shape ", to_string(t->sizes));
  }
  return {contiguous_spec(t->sizes, t->dtype)};
}

ResultSpecs meta_constant_pad_nd(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  const Sizes& pad = args[1].as<Sizes>();
  if (pad.size() % 2) fail(name(op), ": pad must have an even number of elements, got ", to_string(pad));
  if (pad.size() / 2 > t->sizes.size()) {
    fail(name(op), ": pad ", to_string(pad), " is for ", pad.size() / 2, " dimensions, the input has shape ",
         to_string(t->sizes));
  }
  Sizes sizes = t->sizes;
  for (size_t i = 0; i < pad.size() / 2; i++) {
    SymInt& size = sizes[sizes.size() - 1 - i];
    size = size + pad[2 * i] + pad[2 * i + 1];
    if (size < 0) {
      fail(name(op), ": pad ", to_string(pad), " leaves dim ", sizes.size() - 1 - i, " of shape ", to_string(t->sizes),
           " with a negative size");
    }
  }
  return {contiguous_spec(sizes, t->dtype)};
}

void check_grid_sample(const Args& args) {
  const Tensor &x = args[0].as<Tensor>(), &grid = args[1].as<Tensor>();
  const auto &mode = args[2].as<std::string>(), &padding = args[3].as<std::string>();
  if (x->dim() != 4 || grid->dim() != 4) {
    fail("grid_sample: expects an input and a grid of 4 dimensions, got shapes ", to_string(x->sizes), " and ",
         to_string(grid->sizes));
  }
  if (grid->sizes[0] != x->sizes[0] || grid->sizes[3] != 2) {
    fail("grid_sample: a grid of shape ", to_string(grid->sizes), " does not go with an input of shape ",
         to_string(x->sizes), " (expected {n, h, w, 2})");
  }
  if (x->dtype != grid->dtype || !is_float(x->dtype)) {
    fail("grid_sample: expects input and grid of one floating point dtype, got ", name(x->dtype), " and ",
         name(grid->dtype));
  }
  const KnownNames modes = {"bilinear", "nearest", "bicubic"}, paddings = {"zeros", "border", "reflection"};
  if (!modes.have(mode)) fail("grid_sample: mode '", mode, "' is unknown", modes.expected(mode));
  if (!paddings.have(padding)) fail("grid_sample: padding_mode '", padding, "' is unknown", paddings.expected(padding));
  for (size_t d = 1; d < 4; d++) {
    if (x->sizes[d] == 0) fail("grid_sample: only the batch may be empty, got an input of shape ", to_string(x->sizes));
  }
}

ResultSpecs meta_grid_sample(OpId, const Args& args) {
  check_grid_sample(args);
  const Tensor &x = args[0].as<Tensor>(), &grid = args[1].as<Tensor>();
  return {contiguous_spec({x->sizes[0], x->sizes[1], grid->sizes[1], grid->sizes[2]}, x->dtype)};
}

}  // namespace lutra
