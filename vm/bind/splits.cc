// Functions that give a list of tensors, a table in Lua: splits, meshgrid, broadcast_tensors; and those whose result's
// size is in the elements.
#include <algorithm>

#include "ops/meta/rules.h"
#include "vm/bind/composite.h"
#include "vm/bind/element.h"

namespace lutra {
namespace {

using List = std::vector<Tensor>;

Tensor slice_of(const Tensor& t, int64_t dim, SymInt start, SymInt end) {
  return op1(OpId::slice, {t, vdim(dim), vint(start), vint(end), vdim(1)});
}

int64_t split_dim(const char* fn, const Tensor& t, const Value& dim) {
  if (t->dim() == 0) fail(fn, ": a tensor of no dimensions cannot be split");
  return wrap_dim(fn, dim.sym_int().guard(), t->dim());
}

// More parts than a Lua table is for: memory would end before the loop does.
void check_parts(const char* fn, int64_t parts) {
  if (parts > int64_t(1) << 24) fail(fn, ": ", parts, " parts are more than the ", int64_t(1) << 24, " that it makes");
}

// -- split, chunk, unbind

List split_at(const char* fn, const Tensor& t, int64_t dim, const std::vector<int64_t>& lengths) {
  List out;
  int64_t at = 0;
  for (int64_t n : lengths) {
    if (n < 0) fail(fn, ": a length must not be negative, got ", n);
    out.push_back(slice_of(t, dim, at, at + n));
    at += n;
  }
  return out;
}

List split_equally(const char* fn, const Tensor& t, int64_t dim, int64_t length) {
  const int64_t size = t->sizes[size_t(dim)].guard();
  if (length < 0 || (length == 0 && size != 0)) fail(fn, ": the length of a part must be positive, got ", length);
  if (size == 0) return {slice_of(t, dim, 0, 0)};
  check_parts(fn, (size - 1) / length + 1);
  std::vector<int64_t> lengths;
  for (int64_t at = 0; at < size; at += length) lengths.push_back(std::min(length, size - at));
  return split_at(fn, t, dim, lengths);
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
  if (sum != t->sizes[size_t(dim)].guard()) {
    fail("split: the lengths ", to_string(a[1].as<Sizes>()), " do not add up to ", t->sizes[size_t(dim)].hint,
         ", the size of dimension ", dim);
  }
  return {split_at("split", t, dim, lengths)};
}

LuaResults chunk(Args& a) {
  const Tensor t = a[0].tensor();
  const int64_t dim = split_dim("chunk", t, a[2]), chunks = a[1].sym_int().guard();
  if (chunks <= 0) fail("chunk: the number of chunks must be positive, got ", chunks);
  const int64_t size = t->sizes[size_t(dim)].guard(), length = size == 0 ? 0 : (size - 1) / chunks + 1;
  if (length == 0) check_parts("chunk", chunks);
  if (length == 0) return {split_at("chunk", t, dim, std::vector<int64_t>(size_t(chunks), 0))};
  return {split_equally("chunk", t, dim, length)};
}

LuaResults unbind(Args& a) {
  const Tensor t = a[0].tensor();
  const int64_t dim = split_dim("unbind", t, a[1]), size = t->sizes[size_t(dim)].guard();
  check_parts("unbind", size);
  List out;
  for (int64_t i = 0; i < size; ++i) out.push_back(op1(OpId::select, {t, vdim(dim), vdim(i)}));
  return {out};
}

// -- tensor_split and its kin: n parts as equal as can be, or cuts at given places, which may lie outside

List split_parts(const char* fn, const Tensor& t, int64_t dim, int64_t parts) {
  if (parts <= 0) fail(fn, ": the number of sections must be positive, got ", parts);
  check_parts(fn, parts);
  const int64_t size = t->sizes[size_t(dim)].guard();
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < parts; ++i) lengths.push_back(size / parts + (i < size % parts));
  return split_at(fn, t, dim, lengths);
}

List split_cuts(const Tensor& t, int64_t dim, const Sizes& cuts) {
  List out;
  SymInt start = 0;
  for (SymInt cut : cuts) {
    out.push_back(slice_of(t, dim, start, cut));
    start = cut;
  }
  out.push_back(op1(OpId::slice, {t, vdim(dim), vint(start), Value(), vdim(1)}));
  return out;
}

LuaResults tensor_split_parts(Args& a) {
  const Tensor t = a[0].tensor();
  return {split_parts("tensor_split", t, split_dim("tensor_split", t, a[2]), a[1].sym_int().guard())};
}

LuaResults tensor_split_cuts(Args& a) {
  const Tensor t = a[0].tensor();
  return {split_cuts(t, split_dim("tensor_split", t, a[2]), a[1].as<Sizes>())};
}

LuaResults tensor_split_tensor(Args& a) {
  const Tensor cuts = a[1].tensor();
  need_data("tensor_split", cuts);
  if (cuts->dtype != DType::kInt64) fail("tensor_split: expected int64 sections or indices, got ", name(cuts->dtype));
  if (cuts->dim() > 1) fail("tensor_split: expected at most 1 dimension of indices, got ", to_string(cuts->sizes));
  const Elements elements(cuts);
  if (cuts->dim() == 0) {
    Args parts = {a[0], elements.at(0), a[2]};
    return tensor_split_parts(parts);
  }
  Sizes places;
  for (int64_t i = 0; i < elements.size(0); ++i) places.push_back(elements.at(i * elements.stride(0)).to_int());
  Args listed = {a[0], places, a[2]};
  return tensor_split_cuts(listed);
}

struct FixedSplit {
  const char* name;
  int64_t dim, rank;
};
constexpr FixedSplit kH = {"hsplit", 1, 1}, kV = {"vsplit", 0, 2}, kD = {"dsplit", 2, 3};

int64_t fixed_dim(const FixedSplit& s, const Tensor& t) {
  if (t->dim() < s.rank) {
    fail(s.name, ": expects a tensor of ", s.rank, s.rank == 1 ? " dimension" : " dimensions", " or more, got shape ",
         to_string(t->sizes));
  }
  return t->dim() == 1 ? 0 : s.dim;
}

template <const FixedSplit& kSplit>
LuaResults fixed_parts(Args& a) {
  const Tensor t = a[0].tensor();
  const int64_t dim = fixed_dim(kSplit, t), parts = a[1].sym_int().guard(), size = t->sizes[size_t(dim)].guard();
  if (parts > 0 && size % parts != 0) {
    fail(kSplit.name, ": dimension ", dim, " of size ", size, " cannot be divided into ", parts, " equal parts");
  }
  return {split_parts(kSplit.name, t, dim, parts)};
}

template <const FixedSplit& kSplit>
LuaResults fixed_cuts(Args& a) {
  const Tensor t = a[0].tensor();
  return {split_cuts(t, fixed_dim(kSplit, t), a[1].as<Sizes>())};
}

// -- broadcasting together

LuaResults broadcast_tensors(Args& a) {
  const List& list = a[0].as<List>();
  Sizes sizes;
  for (const Tensor& t : list) sizes = broadcast(OpId::expand, sizes, t->sizes);
  List out;
  for (const Tensor& t : list) out.push_back(op1(OpId::expand, {t, sizes}));
  return {out};
}

LuaResults meshgrid(Args& a) {
  List list = a[0].as<List>();
  const std::string& indexing = a[1].as<std::string>();
  if (list.empty()) fail("meshgrid: expects a list of at least one tensor");
  if (indexing != "ij" && indexing != "xy") {
    fail("meshgrid: indexing must be 'xy' or 'ij', got '", indexing, "'");
  }
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
  for (size_t i = 0; i < list.size(); ++i) {
    Sizes lying(list.size(), SymInt(1));
    lying[i] = shape[i];
    Tensor grid = op1(OpId::expand, {op1(OpId::view, {list[i], lying}), shape});
    out.push_back(grid);
  }
  if (swap) std::swap(out[0], out[1]);
  return {out};
}

// -- at least so many dimensions: a tensor, or a list of them

Tensor widened(const Tensor& t, int64_t n) {
  const int64_t have = t->dim();
  if (have >= n) return t;
  if (have == 0) return op1(OpId::reshape, {t, Sizes(size_t(n), SymInt(1))});
  if (n == 2) return op1(OpId::unsqueeze, {t, vdim(0)});
  const Tensor wide = have == 1 ? op1(OpId::unsqueeze, {t, vdim(0)}) : t;
  return op1(OpId::unsqueeze, {wide, vdim(-1)});
}

template <int64_t kRank>
LuaResults at_least(Args& a) {
  return {widened(a[0].tensor(), kRank)};
}
template <int64_t kRank>
LuaResults all_at_least(Args& a) {
  List out;
  for (const Tensor& t : a[0].as<List>()) out.push_back(widened(t, kRank));
  return {out};
}

// -- repeat_interleave

LuaResults interleave_number(Args& a) {
  const SymInt n = a[1].sym_int();
  if (n < 0) fail("repeat_interleave: repeats must not be negative, got ", n.hint);
  Tensor t = a[0].tensor();
  if (a[2].is_none()) t = op1(OpId::reshape, {t, Sizes{t->numel()}});
  const int64_t dim = a[2].is_none() ? 0 : wrap_dim("repeat_interleave", a[2].sym_int().guard(), t->dim());
  if (t->dim() == 0) t = op1(OpId::unsqueeze, {t, vdim(0)});
  Sizes wide = t->sizes, sizes = t->sizes;
  wide.insert(size_t(dim) + 1, n);
  sizes[size_t(dim)] = sizes[size_t(dim)] * n;
  t = op1(OpId::expand, {op1(OpId::unsqueeze, {t, vdim(dim + 1)}), wide});
  return {op1(OpId::reshape, {op1(OpId::clone, {t, std::string("contiguous_format")}), sizes})};
}

// The positions that repeats [2, 0, 1] stand for: 0 0 2.
Tensor positions(const Tensor& repeats, const Value& total) {
  need_data("repeat_interleave", repeats);
  if (repeats->dtype != DType::kInt64 && repeats->dtype != DType::kInt32) {
    fail("repeat_interleave: repeats must be int64 or int32, got ", name(repeats->dtype));
  }
  if (repeats->dim() != 1) fail("repeat_interleave: repeats must be a vector, got shape ", to_string(repeats->sizes));
  const Elements elements(repeats);
  int64_t sum = 0;
  for (int64_t i = 0; i < elements.size(0); ++i) {
    const int64_t n = elements.at(i * elements.stride(0)).to_int();
    if (n < 0) fail("repeat_interleave: repeats must not be negative, got ", n, " at ", i);
    if (__builtin_add_overflow(sum, n, &sum)) fail("repeat_interleave: the repeats add up to more than 64 bits hold");
  }
  if (!total.is_none() && total.sym_int().guard() != sum) {
    fail("repeat_interleave: output_size is ", total.sym_int().hint, ", the repeats add up to ", sum);
  }
  Tensor out = make_tensor({sum}, repeats->dtype);
  auto fill = [&](auto* p) {
    for (int64_t i = 0; i < elements.size(0); ++i) {
      for (int64_t n = elements.at(i * elements.stride(0)).to_int(); n > 0; --n) *p++ = std::decay_t<decltype(*p)>(i);
    }
  };
  repeats->dtype == DType::kInt64 ? fill(out->data_as<int64_t>()) : fill(out->data_as<int32_t>());
  return copy_to(out, repeats->device());
}

LuaResults interleave_tensor(Args& a) {
  Tensor t = a[0].tensor(), repeats = a[1].tensor();
  if (a[2].is_none()) t = op1(OpId::reshape, {t, Sizes{t->numel()}});
  const int64_t dim = a[2].is_none() ? 0 : wrap_dim("repeat_interleave", a[2].sym_int().guard(), t->dim());
  if (t->dim() == 0) t = op1(OpId::unsqueeze, {t, vdim(0)});
  if (repeats->numel() == 1)
    repeats = op1(OpId::expand, {op1(OpId::reshape, {repeats, Sizes{1}}), Sizes{t->sizes[size_t(dim)]}});
  if (repeats->dim() == 1 && repeats->sizes[0] != t->sizes[size_t(dim)]) {
    fail("repeat_interleave: ", repeats->sizes[0].hint, " repeats do not fit dimension ", dim, " of shape ",
         to_string(t->sizes));
  }
  return {op1(OpId::index_select, {t, vdim(dim), positions(repeats, a[3])})};
}

LuaResults interleave_positions(Args& a) { return {positions(a[0].tensor(), a[1])}; }

// -- one_hot

LuaResults one_hot(Args& a) {
  const Tensor t = a[0].tensor();
  if (t->dtype != DType::kInt64) fail("one_hot: expects an int64 tensor of classes, got ", name(t->dtype));
  SymInt classes = a[1].sym_int();
  if (classes == -1) {
    need_data("one_hot", t);
    if (t->numel() == 0) fail("one_hot: num_classes must be given for an empty tensor");
    classes = Elements(op1(OpId::amax, {t})).at(0).to_int() + 1;
  } else if (classes < 1) {
    fail("one_hot: num_classes must be positive, got ", classes.hint);
  }
  // A class that is too large becomes a negative one, which is found when it runs.
  const Tensor small = op1(OpId::lt, {t, Scalar::of_sym(classes)});
  const Tensor at = op1(OpId::check_values, {op1(OpId::where, {small, t, vint(-1)}), std::string("nonnegative"),
                                             std::string("one_hot: classes must be at least 0 and smaller than "
                                                         "num_classes")});
  const Tensor all = op1(OpId::arange, {vdim(0), Scalar::of_sym(classes), vdim(1), DType::kInt64, t->device()});
  return {op1(OpId::to_dtype, {op1(OpId::eq, {op1(OpId::unsqueeze, {at, vdim(-1)}), all}), DType::kInt64})};
}

// -- positions of triangles

LuaResults triangle_indices(const char* fn, Args& a, bool lower) {
  const int64_t rows = a[0].sym_int().guard(), columns = a[1].sym_int().guard(), offset = a[2].sym_int().guard();
  if (rows < 0 || columns < 0) fail(fn, ": sizes must not be negative, got ", rows, " and ", columns);
  const DType dtype = a[3].is_none() ? DType::kInt64 : a[3].as<DType>();
  if (dtype != DType::kInt64 && dtype != DType::kInt32) fail(fn, ": not defined for ", name(dtype), " tensors");
  std::vector<int64_t> at[2];
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t split = lower ? r + offset + 1 : r + offset;
    const int64_t from = lower ? 0 : std::clamp<int64_t>(split, 0, columns);
    const int64_t to = lower ? std::clamp<int64_t>(split, 0, columns) : columns;
    for (int64_t c = from; c < to; ++c) at[0].push_back(r), at[1].push_back(c);
  }
  Tensor t = make_tensor({2, int64_t(at[0].size())}, DType::kInt64);
  std::copy(at[1].begin(), at[1].end(), std::copy(at[0].begin(), at[0].end(), t->data_as<int64_t>()));
  if (const Value where = a[4].is_none() ? default_device_value() : a[4]; !where.is_none()) {
    t = copy_to(t, where.as<Device>());
  }
  // In a graph it is a fresh tensor of each run, not the constant itself.
  if (current_mode()) t = op1(OpId::clone, {t});
  return {to_dtype(t, dtype)};
}

// Tuples of r of the vector's elements, in their order.
LuaResults combinations(Args& a) {
  const Tensor t = a[0].tensor();
  const int64_t r = a[1].sym_int().guard();
  const bool again = a[2].as<bool>();
  if (t->dim() != 1) fail("combinations: expects a vector, got shape ", to_string(t->sizes));
  if (r < 0) fail("combinations: r must not be negative, got ", r);
  if (r == 0) return {op1(OpId::empty, {Sizes{0}, t->dtype, t->device()})};
  const int64_t n = t->sizes[0].guard();
  std::vector<int64_t> picks, flat;
  const auto extend = [&](auto& self, int64_t from) -> void {
    if (int64_t(picks.size()) == r) return void(flat.insert(flat.end(), picks.begin(), picks.end()));
    for (int64_t i = from; i < n; ++i) {
      picks.push_back(i);
      self(self, again ? i : i + 1);
      picks.pop_back();
    }
  };
  extend(extend, 0);
  Tensor index = make_tensor({int64_t(flat.size())}, DType::kInt64);
  std::copy(flat.begin(), flat.end(), index->data_as<int64_t>());
  index = copy_to(index, t->device());
  if (current_mode()) index = op1(OpId::clone, {index});
  return {op1(OpId::view, {op1(OpId::index_select, {t, vdim(0), index}), Sizes{int64_t(flat.size()) / r, r}})};
}

#define FIXED_SPLIT(fn, split)                                               \
  {#fn, "Tensor input, int indices_or_sections", kBoth, fixed_parts<split>}, \
      {#fn, "Tensor input, int[] indices_or_sections", kBoth, fixed_cuts<split>},

const Composite kRows[] = {
    {"split", "Tensor input, int split_size, int dim=0", kBoth, split_by_size},
    {"split", "Tensor input, int[] split_size, int dim=0", kBoth, split_by_list},
    {"split_with_sizes", "Tensor input, int[] split_sizes, int dim=0", kBoth, split_by_list},
    {"chunk", "Tensor input, int chunks, int dim=0", kBoth, chunk},
    {"unbind", "Tensor input, int dim=0", kBoth, unbind},
    {"tensor_split", "Tensor input, int sections, int dim=0", kBoth, tensor_split_parts},
    {"tensor_split", "Tensor input, int[] indices, int dim=0", kBoth, tensor_split_cuts},
    {"tensor_split", "Tensor input, Tensor tensor_indices_or_sections, int dim=0", kBoth, tensor_split_tensor},
    FIXED_SPLIT(hsplit, kH) FIXED_SPLIT(vsplit, kV)
        FIXED_SPLIT(dsplit, kD){"broadcast_tensors", "Tensor[] tensors", kFunctionOf, broadcast_tensors},
    {"meshgrid", "Tensor[] tensors, *, str indexing='ij'", kFunctionOf, meshgrid},
    {"atleast_1d", "Tensor input", kFunctionOf, at_least<1>},
    {"atleast_1d", "Tensor[] tensors", kFunctionOf, all_at_least<1>},
    {"atleast_2d", "Tensor input", kFunctionOf, at_least<2>},
    {"atleast_2d", "Tensor[] tensors", kFunctionOf, all_at_least<2>},
    {"atleast_3d", "Tensor input", kFunctionOf, at_least<3>},
    {"atleast_3d", "Tensor[] tensors", kFunctionOf, all_at_least<3>},
    {"repeat_interleave", "Tensor input, int repeats, int? dim=None, *, int? output_size=None", kBoth,
     interleave_number},
    {"repeat_interleave", "Tensor input, Tensor repeats, int? dim=None, *, int? output_size=None", kBoth,
     interleave_tensor},
    {"repeat_interleave", "Tensor repeats, *, int? output_size=None", kBoth, interleave_positions},
    {"one_hot", "Tensor input, int num_classes=-1", kFunctionOf, one_hot},
    {"combinations", "Tensor input, int r=2, bool with_replacement=False", kBoth, combinations},
    {"tril_indices", "int row, int col, int offset=0, *, dtype? dtype=None, Device? device=None", kFunctionOf,
     [](Args& a) { return triangle_indices("tril_indices", a, true); }},
    {"triu_indices", "int row, int col, int offset=0, *, dtype? dtype=None, Device? device=None", kFunctionOf,
     [](Args& a) { return triangle_indices("triu_indices", a, false); }},
};

}  // namespace

std::span<const Composite> split_rows() { return kRows; }

}  // namespace lutra
