// Decomposes splits into lists of views along a dimension, and broadcasts several tensors together.
#include <algorithm>

#include "ops/core/closest.h"
#include "ops/decompose/emit.h"
#include "ops/defs/element.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

using List = std::vector<Tensor>;

int64_t split_dim(OpId op, const Tensor& t, const Value& dim) {
  if (t->dim() == 0) fail(name(op), ": a tensor of no dimensions cannot be split");
  return wrap_dim(op, dim.sym_int().guard(), t->sizes.size());
}

// Limits the number of parts. More would fill the memory before the loop ends.
void check_parts(OpId op, int64_t parts) {
  constexpr int64_t kMost = int64_t(1) << 24;
  if (parts > kMost) fail(name(op), ": ", parts, " parts are more than the ", kMost, " that it makes");
}

// -- split, chunk, unbind

List split_at(OpId op, const Tensor& t, int64_t dim, const Sizes& lengths) {
  List out;
  SymInt at = 0;
  for (const SymInt& n : lengths) {
    if (n < 0) fail(name(op), ": a length must not be negative, got ", n.hint);
    out.push_back(part(t, dim, at, at + n));
    at = at + n;
  }
  return out;
}

// Cuts a dimension of `size` into `parts` parts: the last has the rest, the others have `length`.
List split_equally(const Tensor& t, int64_t dim, SymInt size, SymInt length, int64_t parts) {
  List out;
  for (int64_t i = 0; i + 1 < parts; i++) out.push_back(part(t, dim, length * i, length * (i + 1)));
  out.push_back(part(t, dim, length * (parts - 1), size));
  return out;
}

// Returns the number of parts of `length` > 0, which is a constant of the trace, although size and length may change.
// An empty dimension has one part.
int64_t count_parts(OpId op, SymInt size, SymInt length) {
  const SymInt parts = floor_div(sym_max(size, 1) - 1, length) + 1;
  check_parts(op, parts.hint);
  return parts.guard();
}

// -- tensor_split and its kin: n parts of nearly equal length, or cuts at given places, which may lie outside

List split_parts(OpId op, const Tensor& t, int64_t dim, int64_t parts) {
  if (parts <= 0) fail(name(op), ": the number of sections must be positive, got ", parts);
  check_parts(op, parts);
  const SymInt size = t->sizes[size_t(dim)];
  Sizes lengths;
  for (int64_t i = 0; i < parts; i++) lengths.push_back(floor_div(size + (parts - 1 - i), parts));
  return split_at(op, t, dim, lengths);
}

List split_cuts(const Tensor& t, int64_t dim, const Sizes& cuts) {
  List out;
  SymInt start = 0;
  for (SymInt cut : cuts) {
    out.push_back(part(t, dim, start, cut));
    start = cut;
  }
  out.push_back(op1(OpId::slice, {t, vdim(dim), vint(start), Value(), vdim(1)}));
  return out;
}

// hsplit, vsplit, dsplit: the dimension to cut, and the least number of dimensions.
struct SplitAxis {
  int64_t dim;
  size_t rank;
};
constexpr SplitAxis kH = {1, 1}, kV = {0, 2}, kD = {2, 3};

int64_t axis_dim(OpId op, const SplitAxis& axis, const Tensor& t) {
  if (t->sizes.size() < axis.rank) {
    fail(name(op), ": expects a tensor of ", axis.rank, axis.rank == 1 ? " dimension" : " dimensions",
         " or more, got shape ", to_string(t->sizes));
  }
  return t->dim() == 1 ? 0 : axis.dim;
}

Results axis_parts(OpId op, const SplitAxis& axis, const Args& a) {
  const Tensor t = a[0].tensor();
  const int64_t dim = axis_dim(op, axis, t), parts = a[1].sym_int().guard();
  const SymInt size = t->sizes[size_t(dim)];
  if (parts > 0 && floor_mod(size, parts) != 0) {
    fail(name(op), ": dimension ", dim, " of size ", size.hint, " cannot be divided into ", parts, " equal parts");
  }
  return split_parts(op, t, dim, parts);
}

Results axis_cuts(OpId op, const SplitAxis& axis, const Args& a) {
  const Tensor t = a[0].tensor();
  return split_cuts(t, axis_dim(op, axis, t), a[1].as<Sizes>());
}

}  // namespace

Results decompose_split(const Args& a) {
  const Tensor t = a[0].tensor();
  const OpId op = OpId::split;
  const int64_t dim = split_dim(op, t, a[2]);
  const SymInt length = a[1].sym_int(), size = t->sizes[size_t(dim)];
  if (length < 0 || (length == 0 && size != 0)) {
    fail(name(op), ": the length of a part must be positive, got ", length.hint);
  }
  return split_equally(t, dim, size, length, length.hint == 0 ? 1 : count_parts(op, size, length));
}

Results decompose_split_with_sizes(const Args& a) {
  const Tensor t = a[0].tensor();
  const OpId op = OpId::split_with_sizes;
  const int64_t dim = split_dim(op, t, a[2]);
  const Sizes lengths = a[1].as<Sizes>();
  SymInt sum = 0;
  for (const SymInt& n : lengths) sum = sum + n;
  if (sum != t->sizes[size_t(dim)]) {
    fail(name(op), ": the lengths ", to_string(lengths), " do not add up to ", t->sizes[size_t(dim)].hint,
         ", the size of dimension ", dim);
  }
  return split_at(op, t, dim, lengths);
}

Results decompose_chunk(const Args& a) {
  const Tensor t = a[0].tensor();
  const OpId op = OpId::chunk;
  const int64_t dim = split_dim(op, t, a[2]);
  const SymInt chunks = a[1].sym_int(), size = t->sizes[size_t(dim)];
  if (chunks <= 0) fail("chunk: the number of chunks must be positive, got ", chunks.hint);
  // The parts are as many as asked for if the first ones leave a rest. So they are for an empty dimension.
  const SymInt length = floor_div(size - 1, chunks) + 1, last = length * (chunks - 1);
  if (last >= sym_max(size, 1)) return split_equally(t, dim, size, length, count_parts(op, size, length));
  check_parts(op, chunks.hint);
  return split_equally(t, dim, size, length, chunks.guard());
}

Results decompose_unbind(const Args& a) {
  const Tensor t = a[0].tensor();
  const int64_t dim = split_dim(OpId::unbind, t, a[1]), size = t->sizes[size_t(dim)].guard();
  check_parts(OpId::unbind, size);
  List out;
  for (int64_t i = 0; i < size; i++) out.push_back(op1(OpId::select, {t, vdim(dim), vdim(i)}));
  return out;
}

Results decompose_tensor_split(const Args& a) {
  const Tensor t = a[0].tensor();
  const OpId op = OpId::tensor_split;
  return split_parts(op, t, split_dim(op, t, a[2]), a[1].sym_int().guard());
}

Results decompose_tensor_split_indices(const Args& a) {
  const Tensor t = a[0].tensor();
  return split_cuts(t, split_dim(OpId::tensor_split, t, a[2]), a[1].as<Sizes>());
}

// The argument is a number of sections or a vector of places. The split's shapes depend on its elements.
Results decompose_tensor_split_tensor(const Args& a) {
  const Tensor cuts = a[1].tensor();
  need_data("tensor_split", cuts);
  if (cuts->dtype != DType::kInt64) fail("tensor_split: expected int64 sections or indices, got ", name(cuts->dtype));
  if (cuts->dim() > 1) fail("tensor_split: expected at most 1 dimension of indices, got ", to_string(cuts->sizes));
  const Elements elements(cuts);
  if (cuts->dim() == 0) return call_op(OpId::tensor_split, {a[0], elements.at(0), a[2]});
  Sizes places;
  for (int64_t i = 0; i < elements.size(0); i++) places.push_back(elements.at(i * elements.stride(0)).to_int());
  return call_op(OpId::tensor_split_indices, {a[0], places, a[2]});
}

Results decompose_hsplit(const Args& a) { return axis_parts(OpId::hsplit, kH, a); }
Results decompose_vsplit(const Args& a) { return axis_parts(OpId::vsplit, kV, a); }
Results decompose_dsplit(const Args& a) { return axis_parts(OpId::dsplit, kD, a); }
Results decompose_hsplit_indices(const Args& a) { return axis_cuts(OpId::hsplit, kH, a); }
Results decompose_vsplit_indices(const Args& a) { return axis_cuts(OpId::vsplit, kV, a); }
Results decompose_dsplit_indices(const Args& a) { return axis_cuts(OpId::dsplit, kD, a); }

// -- broadcasting together

Results decompose_broadcast_tensors(const Args& a) {
  const List& list = a[0].as<List>();
  Sizes sizes;
  for (const Tensor& t : list) sizes = broadcast(OpId::expand, sizes, t->sizes);
  List out;
  for (const Tensor& t : list) out.push_back(expand(t, sizes));
  return out;
}

Results decompose_meshgrid(const Args& a) {
  List list = a[0].as<List>();
  const std::string& indexing = a[1].as<std::string>();
  if (list.empty()) fail("meshgrid: expects a list of at least one tensor");
  const KnownNames indexings = {"xy", "ij"};
  if (!indexings.have(indexing)) fail("meshgrid: indexing '", indexing, "' is unknown", indexings.expected(indexing));
  const bool swap = indexing == "xy" && list.size() >= 2;
  if (swap) std::swap(list[0], list[1]);
  Sizes shape;
  for (const Tensor& t : list) {
    if (t->dim() > 1) fail("meshgrid: expects vectors or numbers, got shape ", to_string(t->sizes));
    if (t->dtype != list[0]->dtype) {
      fail("meshgrid: expects tensors of one dtype, got ", name(list[0]->dtype), " and ", name(t->dtype));
    }
    shape.push_back(t->numel());
  }
  List out;
  for (size_t i = 0; i < list.size(); i++) {
    Sizes lying(list.size(), SymInt(1));
    lying[i] = shape[i];
    out.push_back(expand(view(list[i], lying), shape));
  }
  if (swap) std::swap(out[0], out[1]);
  return out;
}

}  // namespace lutra
