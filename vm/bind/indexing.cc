// x[index] and x[index] = value: integers select, slices slice, lt.newaxis unsqueezes; what tensor indices are left
// goes through one index_select over the indexed dimensions folded into one.
#include "vm/bind/indexing.h"

#include <algorithm>

#include "vm/bind/composite.h"
#include "vm/bind/element.h"

namespace lutra {
namespace {

bool is_mask(const IndexItem& item) { return item.kind == IndexItem::kTensor && item.tensor->dtype == DType::kBool; }

int64_t dims_taken(const IndexItem& item) {
  if (item.kind == IndexItem::kNewAxis || item.kind == IndexItem::kEllipsis) return 0;
  return is_mask(item) ? item.tensor->dim() : 1;
}

// How many dimensions the ellipsis stands for.
int64_t count_dims(const Tensor& self, const std::vector<IndexItem>& items) {
  int64_t taken = 0, ellipses = 0;
  for (const IndexItem& item : items) {
    taken += dims_taken(item);
    ellipses += item.kind == IndexItem::kEllipsis;
  }
  if (ellipses > 1) fail("index: more than one ellipsis");
  if (taken > self->dim()) {
    fail("index: ", taken, " indices for a tensor of ", self->dim(), self->dim() == 1 ? " dimension" : " dimensions",
         " (x[{0, 2}] is x[0, 2]; a list of positions is a tensor: x[lt.tensor({0, 2}, {dtype=\"int64\"})])");
  }
  return self->dim() - taken;
}

void check_mask(const Tensor& view, int64_t dim, const Tensor& mask) {
  for (int64_t k = 0; k < mask->dim(); ++k) {
    if (view->sizes[dim + k] != mask->sizes[k]) {
      fail("index: the mask has shape ", to_string(mask->sizes), ", the tensor ", to_string(view->sizes));
    }
  }
}

// A view by the basic items; masks and positions are left over. With keep_masks a mask stays one item.
struct View {
  Tensor tensor;
  std::vector<Advanced> advanced;
};

Value optional_int(const std::optional<SymInt>& v) { return v ? vint(*v) : Value(); }

View apply_basic(const Tensor& self, const std::vector<IndexItem>& items, bool keep_masks) {
  const int64_t open = count_dims(self, items);
  View view{self};
  int64_t d = 0;
  for (const IndexItem& item : items) {
    switch (item.kind) {
      case IndexItem::kInt: view.tensor = op1(OpId::select, {view.tensor, vdim(d), vint(item.at)}); break;
      case IndexItem::kSlice:
        if (item.step && *item.step <= 0) fail("index: the step of a slice must be positive, got ", item.step->hint);
        if (item.start || item.stop || item.step) {
          view.tensor = op1(OpId::slice, {view.tensor, vdim(d), optional_int(item.start), optional_int(item.stop),
                                          vint(item.step.value_or(1))});
        }
        ++d;
        break;
      case IndexItem::kNewAxis: view.tensor = op1(OpId::unsqueeze, {view.tensor, vdim(d++)}); break;
      case IndexItem::kEllipsis: d += open; break;
      case IndexItem::kTensor:
        if (!is_mask(item) || keep_masks) {
          view.advanced.push_back({d, item.tensor});
          d += dims_taken(item);
          break;
        }
        check_mask(view.tensor, d, item.tensor);
        for (const Tensor& positions : nonzero_positions(item.tensor)) view.advanced.push_back({d++, positions});
        break;
    }
  }
  return view;
}

// -- positions

// Negative positions count from the end; a bad one is an error that names it. Concrete ones are looked at here, those
// of a trace by ops: a select from 0 .. size - 1 checks.
Tensor checked_positions(const Tensor& positions, SymInt size, int64_t dim, bool must_check) {
  const Value n = vint(size);
  if (positions->is_fake()) {
    Tensor below = op1(OpId::lt, {positions, vdim(0)});
    Tensor wrapped = op1(OpId::where, {below, op1(OpId::add, {positions, n, vnum(1)}), positions});
    if (!must_check) return wrapped;
    Tensor flat = op1(OpId::reshape, {wrapped, Sizes{wrapped->numel()}});
    Tensor all = op1(OpId::arange, {vdim(0), n, vdim(1), DType::kInt64, positions->device()});
    return op1(OpId::reshape, {op1(OpId::index_select, {all, vdim(0), flat}), wrapped->sizes});
  }
  bool negative = false;
  Elements(positions).each([&](const Scalar& s) {
    if (s.i < -size.hint || s.i >= size.hint) {
      throw Error(ErrorKind::kData,
                  str("index: ", s.i, " is out of range for dimension ", dim, " of size ", size.hint));
    }
    negative |= s.i < 0;
  });
  if (!negative) return positions;
  Tensor below = op1(OpId::lt, {positions, vdim(0)});
  return op1(OpId::where, {below, op1(OpId::add, {positions, n, vnum(1)}), positions});
}

// The indexed dimensions side by side: at the place of the first where they are neighbours, else in front, as PyTorch.
Tensor gather_dims(const Tensor& t, std::vector<Advanced>& advanced) {
  bool neighbours = true;
  for (size_t i = 1; i < advanced.size(); ++i) neighbours &= advanced[i].dim == advanced[i - 1].dim + 1;
  if (neighbours) return t;
  Sizes order;
  for (const Advanced& a : advanced) order.push_back(a.dim);
  for (int64_t d = 0; d < t->dim(); ++d) {
    if (std::none_of(advanced.begin(), advanced.end(), [&](auto& a) { return a.dim == d; })) order.push_back(d);
  }
  for (size_t i = 0; i < advanced.size(); ++i) advanced[i].dim = int64_t(i);
  return op1(OpId::permute, {t, order});
}

Tensor select_positions(View view) {
  Tensor t = gather_dims(view.tensor, view.advanced);
  const int64_t first = view.advanced[0].dim, count = int64_t(view.advanced.size());
  SymInt folded_size = 1;
  Tensor linear;
  for (const Advanced& a : view.advanced) {
    const SymInt size = t->sizes[a.dim];
    Tensor positions = checked_positions(a.positions, size, a.dim, count > 1);
    linear = linear ? op1(OpId::add, {op1(OpId::mul, {linear, vint(size)}), positions, vnum(1)}) : positions;
    folded_size = folded_size * size;
  }
  if (count == 1 && linear->dim() == 1) return op1(OpId::index_select, {t, vdim(first), linear});
  Sizes folded, result;
  for (int64_t d = 0; d < t->dim(); ++d) {
    if (d == first) {
      folded.push_back(folded_size);
      for (SymInt s : linear->sizes) result.push_back(s);
    }
    if (d >= first && d < first + count) continue;
    folded.push_back(t->sizes[d]), result.push_back(t->sizes[d]);
  }
  Tensor flat = op1(OpId::reshape, {linear, Sizes{linear->numel()}});
  Tensor picked = op1(OpId::index_select, {op1(OpId::reshape, {t, folded}), vdim(first), flat});
  return op1(OpId::reshape, {picked, result});
}

// -- assignment

Tensor value_tensor(const Tensor& like, ArgReader& in, ArgReader::H value) {
  switch (in.kind(value)) {
    case LuaKind::kTensor: return in.tensor(value);
    case LuaKind::kNumber:
    case LuaKind::kInt64: return full_of({}, in.number(value), like->dtype, like->device());
    case LuaKind::kBoolean: return full_of({}, Scalar::of_bool(in.boolean(value)), like->dtype, like->device());
    default: fail("index: the assigned value must be a Tensor or a number, got ", in.describe(value));
  }
}

// PyTorch drops leading dimensions of size 1 of the value.
void assign(const Tensor& view, Tensor value) {
  while (value->dim() > view->dim() && value->sizes[0] == 1) value = op1(OpId::select, {value, vdim(0), vdim(0)});
  call_inplace(OpId::copy_, {view, value});
}

void assign_masked(const Tensor& view, const Advanced& mask, const Tensor& value) {
  check_mask(view, mask.dim, mask.positions);
  Tensor m = mask.positions;
  for (int64_t d = mask.dim + m->dim(); d < view->dim(); ++d) m = op1(OpId::unsqueeze, {m, vdim(-1)});
  Tensor scalar = value->dim() == 0 ? value : op1(OpId::reshape, {value, Sizes{}});
  call_inplace(OpId::masked_fill, {view, m, scalar});
}

// One copy_ for each position, in order: the last of equal positions wins.
void assign_positions(View view, const Tensor& value) {
  for (const Advanced& a : view.advanced) need_data("index assignment", a.positions);
  Tensor t = gather_dims(view.tensor, view.advanced);
  const int64_t first = view.advanced[0].dim, count = int64_t(view.advanced.size());
  Tensor shape;
  std::vector<std::vector<int64_t>> lists(count);
  std::vector<Tensor> checked;
  for (const Advanced& a : view.advanced) {
    checked.push_back(checked_positions(a.positions, t->sizes[a.dim], a.dim, true));
    shape = shape ? op1(OpId::add, {shape, checked.back(), vnum(1)}) : checked.back();
  }
  for (int64_t k = 0; k < count; ++k) {
    Tensor wide = op1(OpId::expand, {checked[k], shape->sizes});
    Elements(wide).each([&](const Scalar& s) { lists[k].push_back(s.i); });
  }
  Sizes target;
  for (int64_t d = 0; d < t->dim(); ++d) {
    if (d == first) target.push_back(shape->numel());
    if (d < first || d >= first + count) target.push_back(t->sizes[d]);
  }
  Sizes spread;  // the value against the positions' own shape, then flat along it
  for (int64_t d = 0; d < t->dim(); ++d) {
    if (d == first) {
      for (SymInt s : shape->sizes) spread.push_back(s);
    }
    if (d < first || d >= first + count) spread.push_back(t->sizes[d]);
  }
  Tensor source = op1(OpId::reshape, {op1(OpId::expand, {value, spread}), target});
  for (size_t i = 0; i < lists[0].size(); ++i) {
    Tensor at = t;
    for (int64_t k = count; k-- > 0;) at = op1(OpId::select, {at, vdim(first + k), vdim(lists[k][i])});
    call_inplace(OpId::copy_, {at, op1(OpId::select, {source, vdim(first), vdim(int64_t(i))})});
  }
}

LuaResults nonzero(Args& a) {
  const Tensor t = a[0].tensor();
  std::vector<Tensor> columns = nonzero_positions(t);
  const int64_t rank = t->dim(), n = columns.empty() ? 0 : columns[0]->sizes[0].hint;
  Tensor out = make_tensor({n, rank}, DType::kInt64);
  auto* p = out->data_as<int64_t>();
  for (int64_t d = 0; d < rank; ++d) {
    const auto* column = columns[d]->data_as<int64_t>();
    for (int64_t i = 0; i < n; ++i) p[i * rank + d] = column[i];
  }
  return {out};
}

LuaResults masked_select(Args& a) {
  const Tensor mask = a[1].tensor();
  if (mask->dtype != DType::kBool) fail("masked_select: the mask must be bool, got ", name(mask->dtype));
  if (a[0].tensor()->dim() == 0 && mask->dim() == 0) a[0] = op1(OpId::reshape, {a[0], Sizes{SymInt(1)}});
  Tensor both = op1(OpId::logical_and, {a[1], op1(OpId::full, {a[0].tensor()->sizes, Scalar::of_bool(true)})});
  Tensor wide = op1(OpId::expand, {a[0], both->sizes});
  IndexItem item{IndexItem::kTensor};
  item.tensor = both;
  return {select_positions(apply_basic(wide, {item}, false))};
}

const Composite kRows[] = {
    {"nonzero", "Tensor input", kBoth | kNeedsData, nonzero},
    {"masked_select", "Tensor input, Tensor mask", kBoth | kNeedsData, masked_select},
};

}  // namespace

std::vector<Tensor> nonzero_positions(const Tensor& mask) {
  need_data("nonzero", mask);
  const int64_t rank = mask->dim();
  std::vector<std::vector<int64_t>> lists(rank);
  std::vector<int64_t> at(rank, 0);
  Elements(mask).each([&](const Scalar& s) {
    if (s.to_double() != 0) {
      for (int64_t d = 0; d < rank; ++d) lists[d].push_back(at[d]);
    }
    for (int64_t d = rank; d-- > 0;) {
      if (++at[d] < mask->sizes[d].hint) break;
      at[d] = 0;
    }
  });
  std::vector<Tensor> out;
  for (const auto& list : lists) {
    Tensor t = make_tensor({int64_t(list.size())}, DType::kInt64);
    std::copy(list.begin(), list.end(), t->data_as<int64_t>());
    out.push_back(t);
  }
  return out;
}

Tensor index_get(const Tensor& self, ArgReader& in, ArgReader::H index) {
  View view = apply_basic(self, read_index(in, index), false);
  if (!view.advanced.empty()) return select_positions(view);
  // An index that leaves everything as it is gives another tensor over the same elements, as in PyTorch.
  return view.tensor.same(self) ? op1(OpId::alias, {self}) : view.tensor;
}

void index_set(const Tensor& self, ArgReader& in, ArgReader::H index, ArgReader::H value) {
  const std::vector<IndexItem> items = read_index(in, index);
  const Tensor source = value_tensor(self, in, value);
  const auto tensors = std::count_if(items.begin(), items.end(), [](auto& i) { return i.kind == IndexItem::kTensor; });
  if (tensors == 0) return assign(apply_basic(self, items, true).tensor, source);
  const bool one_mask = tensors == 1 && std::any_of(items.begin(), items.end(), is_mask);
  if (one_mask && source->numel() == 1) {
    const View view = apply_basic(self, items, true);
    return assign_masked(view.tensor, view.advanced[0], source);
  }
  assign_positions(apply_basic(self, items, false), source);
}

std::span<const Composite> index_rows() { return kRows; }

}  // namespace lutra
