// Views that are made of other ops, and queries about a tensor's layout.
#include <algorithm>

#include "vm/bind/composite.h"

namespace lutra {

int64_t wrap_dim(const char* fn, int64_t dim, int64_t rank) {
  const int64_t bound = std::max<int64_t>(rank, 1);
  if (dim < -bound || dim >= bound) {
    fail(fn, ": dimension ", dim, " is out of range for a tensor of ", rank, rank == 1 ? " dimension" : " dimensions",
         " (expected ", -bound, " to ", bound - 1, ")");
  }
  return dim < 0 ? dim + bound : dim;
}

namespace {

Tensor slice_of(const Tensor& t, int64_t dim, SymInt start, SymInt end) {
  return op1(OpId::slice, {t, vdim(dim), vint(start), vint(end), vdim(1)});
}

// -- queries

LuaResults all_of(const Sizes& sizes) {
  LuaResults out;
  for (SymInt s : sizes) out.push_back(vint(s));
  return out;
}

LuaResults one_of(const char* fn, const Tensor& t, const Sizes& sizes, Args& a) {
  return {vint(sizes[wrap_dim(fn, a[1].sym_int().guard(), t->dim())])};
}

LuaResults size_dim(Args& a) {
  if (a[0].tensor()->dim() == 0) fail("size: a tensor of no dimensions has no size ", a[1].sym_int().hint);
  return one_of("size", a[0].tensor(), a[0].tensor()->sizes, a);
}

LuaResults stride_dim(Args& a) {
  if (a[0].tensor()->dim() == 0) fail("stride: a tensor of no dimensions has no stride ", a[1].sym_int().hint);
  return one_of("stride", a[0].tensor(), a[0].tensor()->strides, a);
}

// -- views

Tensor transpose_2d(const char* fn, const Tensor& t) {
  if (t->dim() > 2) fail(fn, ": expects a tensor of at most 2 dimensions, got ", t->dim());
  return t->dim() < 2 ? t : op1(OpId::transpose, {t, vdim(0), vdim(1)});
}

LuaResults narrow(Args& a) {
  const Tensor t = a[0].tensor();
  if (t->dim() == 0) fail("narrow: a tensor of no dimensions cannot be narrowed");
  const int64_t dim = wrap_dim("narrow", a[1].sym_int().guard(), t->dim());
  const SymInt size = t->sizes[dim], length = a[3].sym_int();
  SymInt start = a[2].sym_int();
  if (start < 0) start = start + size;
  if (start < 0 || length < 0 || start + length > size) {
    fail("narrow: start ", a[2].sym_int().hint, " and length ", length.hint, " are out of range for dimension ", dim,
         " of size ", size.hint);
  }
  return {slice_of(t, dim, start, start + length)};
}

template <OpId kOp>
LuaResults shaped_as(Args& a) {
  return {op1(kOp, {a[0], a[1].tensor()->sizes})};
}

// tile and repeat: a dimension of 1 before each, expanded, folded in.
LuaResults repeat_with(const char* fn, Args& a, bool pad) {
  const Tensor t = a[0].tensor();
  Sizes times = a[1].as<Sizes>(), sizes = t->sizes;
  while (pad && times.size() < sizes.size()) times.insert(0, 1);
  if (times.size() < sizes.size()) {
    fail(fn, ": the number of repeats (", times.size(), ") is smaller than the number of dimensions (", sizes.size(),
         ")");
  }
  while (sizes.size() < times.size()) sizes.insert(0, 1);
  Sizes spaced, expanded, folded;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (times[d] < 0) fail(fn, ": a number of repeats must not be negative, got ", times[d].hint);
    spaced.push_back(1), spaced.push_back(sizes[d]);
    expanded.push_back(times[d]), expanded.push_back(sizes[d]);
    folded.push_back(times[d] * sizes[d]);
  }
  Tensor wide = op1(OpId::expand, {op1(OpId::reshape, {t, spaced}), expanded});
  return {op1(OpId::clone, {op1(OpId::reshape, {wide, folded})})};
}

const Composite kRows[] = {
    {"size", "Tensor input", kBoth, [](Args& a) { return all_of(a[0].tensor()->sizes); }},
    {"size", "Tensor input, int dim", kBoth, size_dim},
    {"stride", "Tensor input", kBoth, [](Args& a) { return all_of(a[0].tensor()->strides); }},
    {"stride", "Tensor input, int dim", kBoth, stride_dim},
    {"dim", "Tensor input", kBoth, [](Args& a) -> LuaResults { return {vdim(a[0].tensor()->dim())}; }},
    {"ndimension", "Tensor input", kMethod, [](Args& a) -> LuaResults { return {vdim(a[0].tensor()->dim())}; }},
    {"numel", "Tensor input", kBoth, [](Args& a) -> LuaResults { return {vint(a[0].tensor()->numel())}; }},
    {"nelement", "Tensor input", kMethod, [](Args& a) -> LuaResults { return {vint(a[0].tensor()->numel())}; }},
    {"element_size", "Tensor input", kMethod,
     [](Args& a) -> LuaResults { return {vdim(int64_t(size_of(a[0].tensor()->dtype)))}; }},
    {"storage_offset", "Tensor input", kMethod, [](Args& a) -> LuaResults { return {vint(a[0].tensor()->offset)}; }},
    {"is_contiguous", "Tensor input", kBoth, [](Args& a) -> LuaResults { return {a[0].tensor()->is_contiguous()}; }},
    {"is_floating_point", "Tensor input", kBoth,
     [](Args& a) -> LuaResults { return {is_float(a[0].tensor()->dtype)}; }},
    {"__len", "Tensor input", 0,
     [](Args& a) -> LuaResults {
       if (a[0].tensor()->dim() == 0) fail("#: a tensor of no dimensions has no length");
       return {vint(a[0].tensor()->sizes[0])};
     }},
    {"t", "Tensor input", kBoth, [](Args& a) -> LuaResults { return {transpose_2d("t", a[0].tensor())}; }},
    {"swapaxes", "Tensor input, int dim0, int dim1", kBoth,
     [](Args& a) -> LuaResults { return {op1(OpId::transpose, a)}; }},
    {"adjoint", "Tensor input", kBoth,
     [](Args& a) -> LuaResults {
       return {op1(OpId::transpose, {a[0], vdim(-2), vdim(-1)})};
     }},
    {"narrow", "Tensor input, int dim, int start, int length", kBoth, narrow},
    {"ravel", "Tensor input", kBoth,
     [](Args& a) -> LuaResults {
       return {op1(OpId::reshape, {a[0], Sizes{SymInt(-1)}})};
     }},
    {"view_as", "Tensor input, Tensor other", kBoth, shaped_as<OpId::view>},
    {"reshape_as", "Tensor input, Tensor other", kBoth, shaped_as<OpId::reshape>},
    {"expand_as", "Tensor input, Tensor other", kBoth, shaped_as<OpId::expand>},
    {"broadcast_to", "Tensor input, int[] size", kBoth, [](Args& a) -> LuaResults { return {op1(OpId::expand, a)}; }},
    {"repeat", "Tensor input, int[] repeats", kBoth, [](Args& a) { return repeat_with("repeat", a, false); }},
    {"tile", "Tensor input, int[] dims", kBoth, [](Args& a) { return repeat_with("tile", a, true); }},
};

}  // namespace

std::span<const Composite> shape_rows() { return kRows; }

}  // namespace lutra
