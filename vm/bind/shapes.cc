// Views, splits and joins that are made of other ops, and queries about a tensor's layout.
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

LuaResults movedim(Args& a) {
  const Tensor t = a[0].tensor();
  const int64_t from = wrap_dim("movedim", a[1].sym_int().guard(), t->dim());
  const int64_t to = wrap_dim("movedim", a[2].sym_int().guard(), t->dim());
  Sizes order;
  for (int64_t d = 0; d < t->dim(); ++d) {
    if (d != from) order.push_back(d);
  }
  order.insert(to, from);
  return {op1(OpId::permute, {t, order})};
}

template <OpId kOp>
LuaResults shaped_as(Args& a) {
  return {op1(kOp, {a[0], a[1].tensor()->sizes})};
}

// -- splits

std::vector<Tensor> split_at(const char* fn, const Tensor& t, int64_t dim, const std::vector<int64_t>& lengths) {
  std::vector<Tensor> out;
  int64_t at = 0;
  for (int64_t n : lengths) {
    if (n < 0) fail(fn, ": a length must not be negative, got ", n);
    out.push_back(slice_of(t, dim, at, at + n));
    at += n;
  }
  return out;
}

std::vector<Tensor> split_equally(const char* fn, const Tensor& t, int64_t dim, int64_t length) {
  const int64_t size = t->sizes[dim].guard();
  if (length < 0 || (length == 0 && size != 0)) fail(fn, ": the length of a part must be positive, got ", length);
  if (size == 0) return {slice_of(t, dim, 0, 0)};
  std::vector<int64_t> lengths;
  for (int64_t at = 0; at < size; at += length) lengths.push_back(std::min(length, size - at));
  return split_at(fn, t, dim, lengths);
}

int64_t split_dim(const char* fn, const Tensor& t, const Value& dim) {
  if (t->dim() == 0) fail(fn, ": a tensor of no dimensions cannot be split");
  return wrap_dim(fn, dim.sym_int().guard(), t->dim());
}

LuaResults split_by_size(Args& a) {
  const Tensor t = a[0].tensor();
  return {split_equally("split", t, split_dim("split", t, a[2]), a[1].sym_int().guard())};
}

LuaResults split_by_list(Args& a) {
  const Tensor t = a[0].tensor();
  const int64_t dim = split_dim("split", t, a[2]);
  std::vector<int64_t> lengths;
  int64_t sum = 0;
  for (SymInt n : a[1].as<Sizes>()) lengths.push_back(n.guard()), sum += n.hint;
  if (sum != t->sizes[dim].guard()) {
    fail("split: the lengths ", to_string(a[1].as<Sizes>()), " do not add up to ", t->sizes[dim].hint,
         ", the size of dimension ", dim);
  }
  return {split_at("split", t, dim, lengths)};
}

LuaResults chunk(Args& a) {
  const Tensor t = a[0].tensor();
  const int64_t dim = split_dim("chunk", t, a[2]), chunks = a[1].sym_int().guard();
  if (chunks <= 0) fail("chunk: the number of chunks must be positive, got ", chunks);
  const int64_t length = (t->sizes[dim].guard() + chunks - 1) / chunks;
  if (length == 0) return {split_at("chunk", t, dim, std::vector<int64_t>(chunks, 0))};
  return {split_equally("chunk", t, dim, length)};
}

LuaResults unbind(Args& a) {
  const Tensor t = a[0].tensor();
  const int64_t dim = split_dim("unbind", t, a[1]), size = t->sizes[dim].guard();
  std::vector<Tensor> out;
  for (int64_t i = 0; i < size; ++i) out.push_back(op1(OpId::select, {t, vdim(dim), vdim(i)}));
  return {out};
}

// -- joins

Tensor join(const char* fn, const std::vector<Tensor>& list, const Value& dim_value) {
  if (list.empty()) fail(fn, ": expects a list of at least one Tensor");
  const Tensor first = list[0];
  if (first->dim() == 0) fail(fn, ": a tensor of no dimensions cannot be joined");
  const int64_t dim = wrap_dim(fn, dim_value.sym_int().guard(), first->dim());
  Sizes sizes = first->sizes;
  DType dtype = first->dtype;
  for (size_t i = 1; i < list.size(); ++i) {
    const Tensor& t = list[i];
    dtype = promote_types(dtype, t->dtype);
    bool same = t->dim() == first->dim();
    for (int64_t d = 0; same && d < t->dim(); ++d) same = d == dim || t->sizes[d] == first->sizes[d];
    if (!same) {
      fail(fn, ": tensor ", i + 1, " has shape ", to_string(t->sizes), ", which differs from ", to_string(first->sizes),
           " in more than dimension ", dim);
    }
    sizes[dim] = sizes[dim] + t->sizes[dim];
  }
  const bool graph = grad_enabled() && std::any_of(list.begin(), list.end(), [](auto& t) { return t->requires_grad; });
  Tensor out = op1(graph ? OpId::full : OpId::empty,
                   graph ? Args{sizes, vnum(0), dtype, first->device()} : Args{sizes, dtype, first->device()});
  SymInt at = 0;
  for (const Tensor& t : list) {
    const SymInt end = at + t->sizes[dim];
    if (graph) {
      out = op1(OpId::slice_scatter, {out, to_dtype(t, dtype), vdim(dim), vint(at), vint(end), vdim(1)});
    } else {
      call_inplace(OpId::copy_, {slice_of(out, dim, at, end), t});
    }
    at = end;
  }
  return out;
}

LuaResults cat(Args& a) { return {join("cat", a[0].as<std::vector<Tensor>>(), a[1])}; }

LuaResults stack(Args& a) {
  std::vector<Tensor> list;
  for (const Tensor& t : a[0].as<std::vector<Tensor>>()) {
    if (!list.empty() && t->dim() + 1 != list[0]->dim()) {
      fail("stack: tensor ", list.size() + 1, " has shape ", to_string(t->sizes), ", the first has ",
           to_string(a[0].as<std::vector<Tensor>>()[0]->sizes));
    }
    list.push_back(op1(OpId::unsqueeze, {t, a[1]}));
  }
  return {join("stack", list, a[1])};
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
    {"movedim", "Tensor input, int source, int destination", kBoth, movedim},
    {"narrow", "Tensor input, int dim, int start, int length", kBoth, narrow},
    {"ravel", "Tensor input", kBoth,
     [](Args& a) -> LuaResults {
       return {op1(OpId::reshape, {a[0], Sizes{SymInt(-1)}})};
     }},
    {"view_as", "Tensor input, Tensor other", kBoth, shaped_as<OpId::view>},
    {"reshape_as", "Tensor input, Tensor other", kBoth, shaped_as<OpId::reshape>},
    {"expand_as", "Tensor input, Tensor other", kBoth, shaped_as<OpId::expand>},
    {"broadcast_to", "Tensor input, int[] size", kBoth, [](Args& a) -> LuaResults { return {op1(OpId::expand, a)}; }},
    {"split", "Tensor input, int split_size, int dim=0", kBoth, split_by_size},
    {"split", "Tensor input, int[] split_size, int dim=0", kBoth, split_by_list},
    {"chunk", "Tensor input, int chunks, int dim=0", kBoth, chunk},
    {"unbind", "Tensor input, int dim=0", kBoth, unbind},
    {"cat", "Tensor[] tensors, int dim=0", kFunctionOf, cat},
    {"concat", "Tensor[] tensors, int dim=0", kFunctionOf, cat},
    {"stack", "Tensor[] tensors, int dim=0", kFunctionOf, stack},
    {"repeat", "Tensor input, int[] repeats", kBoth, [](Args& a) { return repeat_with("repeat", a, false); }},
    {"tile", "Tensor input, int[] dims", kBoth, [](Args& a) { return repeat_with("tile", a, true); }},
};

}  // namespace

std::span<const Composite> shape_rows() { return kRows; }

}  // namespace lutra
