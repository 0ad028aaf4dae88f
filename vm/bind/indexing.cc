// x[index] and x[index] = value: integers become select, slices slice, lt.newaxis unsqueeze. The remaining tensor
// indices become one `index` or `index_put`. A mask stands for the positions of its true elements.
#include "vm/bind/indexing.h"

#include <algorithm>

#include "jit/graph/unbacked.h"
#include "ops/decompose/emit.h"
#include "ops/defs/element.h"
#include "vm/bind/functions.h"

namespace lutra {
namespace {

bool is_mask(const IndexItem& item) { return item.kind == IndexItem::kTensor && is_bool(item.tensor->dtype); }

int64_t dims_taken(const IndexItem& item) {
  if (item.kind == IndexItem::kNewAxis || item.kind == IndexItem::kEllipsis) return 0;
  return is_mask(item) ? item.tensor->dim() : 1;
}

constexpr const char* kTableForms =
    " (x[{0, 2}] is x[0, 2]; a list of positions is a tensor: x[lt.tensor({0, 2}, {dtype=\"int64\"})])";

// Returns the number of dimensions that the ellipsis stands for.
int64_t count_dims(const Tensor& self, const std::vector<IndexItem>& items) {
  int64_t taken = 0, ellipses = 0;
  for (const IndexItem& item : items) {
    taken += dims_taken(item);
    ellipses += item.kind == IndexItem::kEllipsis;
  }
  if (ellipses > 1) fail("index: more than one ellipsis");
  if (taken > self->dim()) {
    fail("index: ", taken, taken == 1 ? " index" : " indices", " for a tensor of ", self->dim(),
         self->dim() == 1 ? " dimension" : " dimensions", kTableForms);
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

// The view that the basic items make, and the remaining masks and positions. With keep_masks a mask stays one item.
struct View {
  Tensor tensor;
  std::vector<Advanced> advanced;
};

Value optional_int(const std::optional<SymInt>& v) { return v ? vint(*v) : Value(); }

// Returns one int64 vector for each dimension of the mask. The number of true elements of a FakeTensor is unknown; a
// trace may continue with an unbacked symbol.
std::vector<Tensor> positions_of(const Tensor& mask) {
  UnbackedSizes* const sizes = UnbackedSizes::current();
  if (mask->is_fake() && !(sizes && sizes->takes(false))) {
    throw NeedsData(
        "the shape of x[mask] depends on the elements of the mask; lt.where(mask, x, other) keeps the shape");
  }
  const Tensor positions = op1(OpId::nonzero, {mask});
  std::vector<Tensor> out;
  for (int64_t d = 0; d < mask->dim(); ++d) out.push_back(op1(OpId::select, {positions, vdim(1), vdim(d)}));
  return out;
}

// Adds a tensor index at dimension d of the view, and advances d. A 0-dim mask adds a new dimension, of size 1 or 0.
void add_tensor(View& view, int64_t& d, Tensor index, bool keep_masks) {
  if (!is_bool(index->dtype)) return view.advanced.push_back({d++, index});
  const bool without_dims = index->dim() == 0;
  if (without_dims) {
    view.tensor = op1(OpId::unsqueeze, {view.tensor, vdim(d)});
    index = op1(OpId::unsqueeze, {index, vdim(0)});
  }
  check_mask(view.tensor, d, index);
  if (keep_masks) {
    view.advanced.push_back({d, index});
    d += index->dim();
    return;
  }
  if (without_dims && index->is_fake()) throw NeedsData("a mask without dimensions says whether there is an element");
  for (const Tensor& positions : positions_of(index)) view.advanced.push_back({d++, positions});
}

// Throws if an index is out of range. `dim` is a dimension of self. It uses the current sizes of a FakeTensor; the
// select adds the guard.
void check_position(const Tensor& self, int64_t dim, const SymInt& at, const std::vector<IndexItem>& items) {
  const int64_t size = self->sizes[dim].hint;
  if (at.hint >= -size && at.hint < size) return;
  // It is out of range. The comparison adds a guard, so that a trace knows on what the error depends.
  const SymInt end = self->sizes[dim];
  (void)(at.hint < 0 ? at < 0 - end : at < end);
  const bool all = std::all_of(items.begin(), items.end(), [](auto& item) { return item.kind == IndexItem::kInt; });
  fail("index: index ", at.hint, " is out of range for dim ", dim, " of shape ", to_string(self->sizes),
       all && items.size() > 1 ? kTableForms : "");
}

View apply_basic(const Tensor& self, const std::vector<IndexItem>& items, bool keep_masks) {
  const int64_t open = count_dims(self, items);
  View view{self};
  int64_t d = 0, own = 0;  // dimension of the view, dimension of self
  for (const IndexItem& item : items) {
    switch (item.kind) {
      case IndexItem::kInt:
        check_position(self, own, item.at, items);
        view.tensor = op1(OpId::select, {view.tensor, vdim(d), vint(item.at)});
        break;
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
      case IndexItem::kTensor: add_tensor(view, d, item.tensor, keep_masks); break;
    }
    own += item.kind == IndexItem::kEllipsis ? open : dims_taken(item);
  }
  return view;
}

// -- tensor indices

Value list_of(const View& view) {
  std::vector<Tensor> list;
  for (const Advanced& a : view.advanced) list.push_back(a.positions);
  return list;
}

Value dims_of(const View& view) {
  Sizes dims;
  for (const Advanced& a : view.advanced) dims.push_back(a.dim);
  return dims;
}

bool is_empty(SymInt size) { return size == 0; }

// Returns whether the index selects no elements, because a remaining dimension or the positions have none.
bool nothing_at(const View& view) {
  size_t next = 0;
  for (int64_t d = 0; d < view.tensor->dim(); ++d) {
    const bool indexed = next < view.advanced.size() && view.advanced[next].dim == d;
    if (!indexed && is_empty(view.tensor->sizes[d])) return true;
    next += indexed;
  }
  return std::any_of(view.advanced.begin(), view.advanced.end(), [](const Advanced& a) {
    return std::any_of(a.positions->sizes.begin(), a.positions->sizes.end(), is_empty);
  });
}

// Checks the positions of 0-dim tensors if the index selects no elements. Other positions are checked where they are
// used. PyTorch treats 0-dim tensors like integers, so they can be out of range even then.
void check_unused(const View& view) {
  const auto one = [](const Advanced& a) { return a.positions->dim() == 0; };
  if (std::none_of(view.advanced.begin(), view.advanced.end(), one) || !nothing_at(view)) return;
  for (const Advanced& a : view.advanced) {
    if (!one(a)) continue;
    need_data("index", a.positions);
    const int64_t at = Elements(a.positions).at(0).to_int(), size = view.tensor->sizes[a.dim].guard();
    if (at < -size || at >= size) {
      fail("index: index ", at, " is out of bounds for dimension ", a.dim, " with size ", size);
    }
  }
}

// -- assignment

Tensor value_tensor(const Tensor& like, ArgReader& in, ArgReader::H value) {
  switch (in.kind(value)) {
    case LuaKind::kTensor: return in.tensor(value);
    case LuaKind::kNumber:
    case LuaKind::kInt64: {
      const Scalar v = in.number(value);
      if (converts(v, like->dtype)) return full({}, v, single(like->dtype), like->device());
      // Floats overflow to infinity here, as in PyTorch.
      if (is_float(like->dtype)) return to_dtype(full({}, v, DType::kFloat64, like->device()), like->dtype);
      fail("index: the assigned number ", to_string(v), " cannot be converted to ", name(like->dtype),
           " without overflow");
    }
    case LuaKind::kComplex: {
      if (!is_complex(like->dtype)) fail("index: the assigned number is complex, ", name(like->dtype), " is not");
      const Tensor t = make_tensor({}, like->dtype);
      store_element(t->data(), like->dtype, in.number(value));
      return copy_to(t, like->device());
    }
    case LuaKind::kBoolean: return full({}, Scalar::of_bool(in.boolean(value)), single(like->dtype), like->device());
    default: fail("index: the assigned value must be a Tensor or a number, got ", in.describe(value));
  }
}

// Drops leading dimensions of size 1 of the value, as PyTorch does.
Tensor dropped(Tensor value, int64_t rank) {
  while (value->dim() > rank && value->sizes[0] == 1) value = op1(OpId::select, {value, vdim(0), vdim(0)});
  return value;
}

[[noreturn]] void misfit(const Tensor& value, const std::string& target) {
  fail("index: shape mismatch: a value of shape ", to_string(value->sizes), " cannot be assigned to ", target);
}

// Implements x[mask] = value. The result of indexing has one dimension for the mask's, whose size is the number of true
// elements. A value that lacks that dimension, or has size 1 there, is assigned to every position (where); else its
// elements are assigned in turn.
void assign_masked(const Tensor& view, const Advanced& at, Tensor value) {
  const int64_t rows = at.positions->dim(), rank = view->dim() - rows + 1, after = rank - at.dim - 1;
  if (value->dtype != view->dtype) {
    fail("index: an assignment through a tensor needs a value of the tensor's dtype ", name(view->dtype), ", got ",
         name(value->dtype));
  }
  value = dropped(value, rank);
  Tensor mask = at.positions;
  for (int64_t k = 0; k < after; ++k) mask = op1(OpId::unsqueeze, {mask, vdim(-1)});
  const std::string target = str("places of shape ", to_string(view->sizes), " where a mask of shape ",
                                 to_string(at.positions->sizes), " is true");
  if (value->dim() > rank) misfit(value, target);
  const int64_t place = value->dim() - after - 1;  // the value's dimension for the mask's true elements
  Sizes sizes;
  for (int64_t d = 0; d < value->dim(); ++d) {
    const SymInt have = value->sizes[d],
                 room = view->sizes[d > place ? view->dim() - value->dim() + d : at.dim - place + d];
    if (d != place && have != 1 && have != room) misfit(value, target);
    sizes.push_back(d == place ? have : room);
  }
  if (place < 0 || value->sizes[place] == 1) {
    Sizes spread;
    for (int64_t d = 0; d < value->dim(); ++d) {
      for (int64_t k = 0; d == place && k + 1 < rows; ++k) spread.push_back(1);
      spread.push_back(value->sizes[d]);
    }
    if (value->dim() == 0) {
      call_inplace(OpId::masked_fill, {view, mask, value});
    } else {
      call_inplace(OpId::copy_, {view, op1(OpId::where, {mask, op1(OpId::reshape, {value, spread}), view})});
    }
    return;
  }
  // Adds the leading dimensions that the value lacks.
  Sizes full;
  for (int64_t d = 0; d < at.dim - place; ++d) full.push_back(view->sizes[d]);
  for (SymInt s : sizes) full.push_back(s);
  Tensor wide = op1(OpId::expand, {value, full});
  call_inplace(OpId::masked_assign, {view, mask, wide});
}

void assign_positions(const View& view, const Tensor& value) {
  int64_t places = 0;
  for (const Advanced& a : view.advanced) places = std::max(places, a.positions->dim());
  const int64_t rank = view.tensor->dim() - int64_t(view.advanced.size()) + places;
  call_inplace(OpId::index_put,
               {view.tensor, list_of(view), dims_of(view), dropped(value, rank), false, std::string("index")});
}

// -- rows

// Makes a view whose first dimensions are indexed by index_put's list of tensors.
View listed(Args& a) {
  std::vector<IndexItem> items;
  for (const Tensor& t : a[1].as<std::vector<Tensor>>()) {
    IndexItem item{IndexItem::kTensor};
    item.tensor = index_tensor(t);
    items.push_back(item);
  }
  if (items.empty()) fail("index_put: argument 'indices' is an empty list");
  return apply_basic(a[0].tensor(), items, false);
}

LuaResults index_put(Args& a) {
  const View view = listed(a);
  return {op1(OpId::index_put, {view.tensor, list_of(view), dims_of(view), a[2], a[3]})};
}

LuaResults index_put_inplace(Args& a) {
  const View view = listed(a);
  call_inplace(OpId::index_put, {view.tensor, list_of(view), dims_of(view), a[2], a[3]});
  return {a[0]};
}

LuaResults nonzero(Args& a) {
  if (!a[1].as<bool>()) return {written_out("nonzero", a[2], op1(OpId::nonzero, {a[0]}))};
  if (!a[2].is_none()) fail("nonzero: as_tuple=true takes no out=");
  return {call_op(OpId::nonzero_tuple, {a[0]})};
}

// Computes unique along a dim of a FakeTensor by moving that dim to the front, since a graph has a symbol for the size
// of the first dimension only.
Results unique_slices(OpId op, Args& a) {
  const Tensor x = a[0].tensor();
  const int64_t dim = wrap_dim(name(op), a.back().sym_int().guard(), x->dim());
  Sizes first{dim}, back;
  for (int64_t d = 0; d < x->dim(); d++) {
    if (d != dim) first.push_back(d);
    back.push_back(d == dim ? 0 : d < dim ? d + 1 : d);
  }
  a[0] = op1(OpId::permute, {x, first}), a.back() = vdim(0);
  Results r = call_op(op, a);
  r[0] = op1(OpId::permute, {r[0], back});
  return r;
}

// Returns the values, then the inverse and the counts if requested.
LuaResults unique_of(OpId op, Args& a, size_t inverse) {
  const bool slices = a[0].tensor()->is_fake() && !a.back().is_none() && a[0].tensor()->dim() > 0;
  const Results r = slices ? unique_slices(op, a) : call_op(op, a);
  LuaResults out{r[0]};
  if (a[inverse].as<bool>()) out.push_back(r[1]);
  if (a[inverse + 1].as<bool>()) out.push_back(r[2]);
  return out;
}

const HostFunction kIndexRows[] = {
    {"index_put", "Tensor input, Tensor[] indices, Tensor values, bool accumulate=False", kBoth, index_put},
    {"index_put_", "Tensor input, Tensor[] indices, Tensor values, bool accumulate=False", kBoth, index_put_inplace},
    {"nonzero", "Tensor input, *, bool as_tuple=False, Tensor? out=None", kBoth, nonzero},
    {"unique", "Tensor input, bool sorted=True, bool return_inverse=False, bool return_counts=False, int? dim=None",
     kBoth, [](Args& a) { return unique_of(OpId::unique, a, 2); }},
    {"unique_consecutive", "Tensor input, bool return_inverse=False, bool return_counts=False, int? dim=None", kBoth,
     [](Args& a) { return unique_of(OpId::unique_consecutive, a, 1); }},
};

}  // namespace

Tensor index_get(const Tensor& self, ArgReader& in, ArgReader::H index) {
  const View view = apply_basic(self, read_index(in, index), false);
  check_unused(view);
  if (!view.advanced.empty()) return op1(OpId::index, {view.tensor, list_of(view), dims_of(view)});
  // An index that changes nothing returns a new tensor over the same elements, as in PyTorch.
  return view.tensor.same(self) ? op1(OpId::alias, {self}) : view.tensor;
}

void index_set(const Tensor& self, ArgReader& in, ArgReader::H index, ArgReader::H value) {
  const std::vector<IndexItem> items = read_index(in, index);
  const Tensor source = value_tensor(self, in, value);
  const auto tensors = std::count_if(items.begin(), items.end(), [](auto& i) { return i.kind == IndexItem::kTensor; });
  if (tensors == 0) {
    const Tensor view = apply_basic(self, items, true).tensor;
    call_inplace(OpId::copy_, {view, dropped(source, view->dim())});
    return;
  }
  if (tensors == 1 && std::any_of(items.begin(), items.end(), is_mask)) {
    const View view = apply_basic(self, items, true);
    const Sizes& sizes = view.tensor->sizes;
    // In a tensor without elements the value must still match the number of positions.
    if (std::none_of(sizes.begin(), sizes.end(), is_empty)) {
      return assign_masked(view.tensor, view.advanced[0], source);
    }
  }
  const View view = apply_basic(self, items, false);
  check_unused(view);
  assign_positions(view, source);
}

std::span<const HostFunction> index_rows() { return kIndexRows; }

}  // namespace lutra
