// Makes rows from steps, and runs the loop over rows. A row remembers where the table had its key. A table that has not
// grown still has it there, so a call compares one key for each row. A row also remembers its tensor, which is watched.
// While no watched tensor has changed (ops/core/watch.h), its tensor is not checked again.
#include "vm/guard/field_rows.h"

#include <algorithm>
#include <cstring>
#include <lua.hpp>

#include "vm/bind/tensor_box.h"

namespace lutra {

using mirror::Tab;
using mirror::TValue;

namespace {

constexpr size_t kMinRows = 4;
const uint64_t kNoTensor = mirror::make_gc(mirror::kUdata, nullptr).u64;  // no userdata has this address

TValue constant_at(const Tab* constants, int slot) { return mirror::raw_get(constants, mirror::make_number(slot)); }

bool same(const TensorSpec& a, const TensorSpec& b) {
  return a.dtype == b.dtype && a.device == b.device && a.sizes == b.sizes && a.strides == b.strides &&
         a.contiguous == b.contiguous && a.requires_grad == b.requires_grad && a.leaf == b.leaf && a.hooks == b.hooks &&
         a.in_shared_memory == b.in_shared_memory && a.written == b.written;
}

const PlainTensor* plain_of(const TensorSpec& spec, FieldRows& list) {
  for (auto known = list.plain.rbegin(); known != list.plain.rend(); ++known) {
    if (same(*(*known)->spec, spec)) return known->get();
  }
  auto plain = std::make_unique<PlainTensor>();
  plain->spec = &spec;
  plain->rank = uint32_t(spec.sizes.size());
  plain->dtype = spec.dtype, plain->requires_grad = spec.requires_grad, plain->device = spec.device;
  plain->leaf = spec.leaf && spec.strides.size() == spec.sizes.size();
  plain->layout = spec.sizes;
  plain->layout.insert(plain->layout.end(), spec.strides.begin(), spec.strides.end());
  list.plain.push_back(std::move(plain));
  return list.plain.back().get();
}

bool takes_tag(int type, uint64_t* tag) {
  switch (type) {
    case LUA_TSTRING: return *tag = mirror::kStr, true;
    case LUA_TTABLE: return *tag = mirror::kTab, true;
    case LUA_TFUNCTION: return *tag = mirror::kFunc, true;
    case LUA_TUSERDATA: return *tag = mirror::kUdata, true;
    default: return false;
  }
}

// Takes over the check that follows the row's load. Returns false if a row cannot do it.
bool take_check(const GuardProgram& p, const Tab* constants, const GuardStep& s, FieldRows& list, FieldRow& row) {
  switch (s.op) {
    case GuardOp::kNilCheck: row.check = FieldRow::kBits, row.wanted = mirror::kNilValue; return true;
    case GuardOp::kTypeCheck: row.check = FieldRow::kTag; return takes_tag(s.index, &row.wanted);
    case GuardOp::kValueCheck:
    case GuardOp::kFieldCheck:
    case GuardOp::kGlobalCheck:
    case GuardOp::kUpvalueCheck: {
      const TValue wanted = constant_at(constants, s.index);
      row.check = FieldRow::kBits, row.wanted = wanted.u64;
      return wanted.u64 != mirror::kNilValue && !(mirror::kDualNumbers && mirror::is_number(wanted));
    }
    case GuardOp::kIdentityCheck: row.check = FieldRow::kObject, row.wanted = uint64_t(s.index); return true;
    case GuardOp::kTensorCheck:
      row.check = FieldRow::kTensor, row.input = s.index, row.plain = plain_of(p.tensors[size_t(s.index)], list);
      row.wanted = kNoTensor;
      return true;
    default: return false;
  }
}

// Finds a field that is no longer at the row's node, and updates the node. Returns nil if it is absent.
[[gnu::noinline]] TValue find_field(const Tab* t, FieldRows& list, FieldRow& row) {
  const auto* key = static_cast<const mirror::Str*>(mirror::gc_pointer({row.key}));
  for (const mirror::Node* n = &t->node[key->sid & t->hmask]; n; n = n->next) {
    if (n->key.u64 != row.key) continue;
    const auto place = uint32_t(n - t->node);
    row.node = place * uint32_t(sizeof(mirror::Node));
    list.most = std::max(list.most, place);
    return n->val;
  }
  return {mirror::kNilValue};
}

[[gnu::noinline]] void forget_nodes(FieldRows& list) {
  for (FieldRow& row : list.rows) row.node = 0;
  list.most = 0;
}

inline bool is_plainly(const TensorImpl& i, const PlainTensor& plain) {
  const Storage& storage = *i.storage;
  if (!plain.leaf || i.view || i.dtype != plain.dtype || i.requires_grad != plain.requires_grad) return false;
  if (i.sizes.size() != plain.rank || storage.freed || !(storage.device == plain.device)) return false;
  const SymInt *size = i.sizes.begin(), *stride = i.strides.begin();
  const int64_t *wanted = plain.layout.data(), *const strides = wanted + plain.rank;
  for (const int64_t* stride_wanted = strides; wanted != strides; wanted++) {
    if (size++->hint != *wanted || stride++->hint != *stride_wanted++) return false;
  }
  const AutogradMeta* meta = i.autograd.get();
  return !meta || (!meta->grad_fn && meta->hooks.empty());
}

// The checks have just brought these members into the cache.
inline InputView view_of_plain(const TensorImpl& t) {
  const Storage& s = *t.storage;
  return {s.fake || t.offset.hint != 0 ? nullptr : s.data, t.sizes.begin(), t.strides.begin()};
}

// Returns the box of the userdata v; null if it holds no tensor.
inline const TensorBox* box_of(TValue v) {
  const auto* u = static_cast<const mirror::Udata*>(mirror::gc_pointer(v));
  const auto* box = static_cast<const TensorBox*>(u->payload());
  return u->len == sizeof(TensorBox) && box->magic == &kTensorMagic ? box : nullptr;
}

// Returns whether the value is the same userdata with the same tensor as before. The userdata's address is not enough:
// another one may have taken its place, and a program may have removed the finalizer that would report this.
inline bool is_known(TValue v, const FieldRow& row) {
  if (v.u64 != row.wanted) return false;
  const TensorBox* box = box_of(v);
  return box && box->tensor.get() == row.tensor;
}

// Checks a tensor, and remembers it if it plainly matches its spec.
[[gnu::noinline]] bool look_at(TValue v, FieldRow& row) {
  row.wanted = kNoTensor;
  const TensorBox* box = mirror::tag(v) == mirror::kUdata ? box_of(v) : nullptr;
  if (!box) return false;
  const TensorImpl& t = *box->tensor.get();
  row.tensor = &t;
  t.watch();
  if (is_plainly(t, *row.plain)) {
    row.view = view_of_plain(t), row.wanted = v.u64;
    return true;
  }
  row.view.data = nullptr;
  return matches(box->tensor, *row.plain->spec, nullptr);
}

// Returns 1 if the check holds.
[[gnu::noinline]] int64_t check_other(const GuardRun* run, const FieldRow& row, TValue v) {
  if (row.check == FieldRow::kNone) return 1;
  if (row.check == FieldRow::kTag) return mirror::tag(v) == row.wanted;
  if (run->weak->asize <= row.wanted) return NativeGuards::kUnsure;
  const uint64_t object = run->weak->array[row.wanted].u64;
  return object != mirror::kNilValue && object == v.u64;
}

}  // namespace

FieldRows take_field_rows(const GuardProgram& program, const Tab* constants, size_t& at, int& reg) {
  FieldRows list;
  const std::vector<GuardStep>& steps = program.steps;
  size_t next = at;
  list.table = steps[at].a;
  for (int to = reg; next < steps.size(); to++) {
    const GuardStep& load = steps[next];
    if (load.op != GuardOp::kFieldLoad || load.a != list.table) break;
    const TValue key = constant_at(constants, load.index);
    if (mirror::tag(key) != mirror::kStr) break;
    FieldRow row;
    row.key = key.u64, row.reg = to, row.step = int(next);
    const bool checks = next + 1 < steps.size() && !is_load(steps[next + 1].op) && steps[next + 1].a == to;
    if (checks && take_check(program, constants, steps[next + 1], list, row)) {
      row.step = int(++next);
    } else {
      row.check = FieldRow::kNone;
    }
    next++;
    list.rows.push_back(row);
  }
  if (list.rows.size() < kMinRows) return {};
  at = next, reg += int(list.rows.size());
  return list;
}

bool FieldRows::loads(int32_t input) const {
  return std::any_of(rows.begin(), rows.end(),
                     [&](auto& r) { return r.check == FieldRow::kTensor && r.input == input; });
}

int64_t check_field_rows(GuardRun* run, FieldRows* list) noexcept {
  TValue* const regs = run->regs;
  auto* const tensors = static_cast<const void**>(run->tensors);  // borrowed: see GuardTensors
  static_assert(sizeof(Tensor) == sizeof(void*));
  InputView* const views = run->views;
  const auto* t = static_cast<const Tab*>(mirror::gc_pointer(regs[list->table]));
  if (list->most > t->hmask) forget_nodes(*list);
  const uint64_t changes = watched_changes.load(std::memory_order_relaxed);
  const bool same = list->changes == changes;
  const char* const nodes = static_cast<const char*>(static_cast<const void*>(t->node));
  FieldRow* row = list->rows.data();
  for (const FieldRow* const end = row + list->rows.size(); row != end; row++) {
    const auto* n = static_cast<const mirror::Node*>(static_cast<const void*>(nodes + row->node));
    const TValue v = n->key.u64 == row->key ? n->val : find_field(t, *list, *row);
    regs[row->reg] = v;
    if (row->check == FieldRow::kBits) {
      if (v.u64 != row->wanted) return row->step;
    } else if (row->check == FieldRow::kTensor) {
      if (!(same && is_known(v, *row)) && !look_at(v, *row)) return row->step;
      tensors[row->input] = row->tensor, views[row->input] = row->view;
    } else if (const int64_t holds = check_other(run, *row, v); holds != 1) {
      return holds ? holds : row->step;
    }
  }
  list->changes = changes;
  return -1;
}

}  // namespace lutra
