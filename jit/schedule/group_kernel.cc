// One kernel for a group of units: loops over what is kept, reductions level by level, then stores.
#include "jit/schedule/group_kernel.h"

#include "jit/device/cost.h"
#include "jit/schedule/compile_limits.h"
#include "ops/core/interrupt.h"

#include <algorithm>

namespace lutra {
namespace {

// The cost of computing an address outside vectors, relative to one in a vector, if a processor runs one thread. It
// takes a whole instruction, and the row at that address waits for it.
constexpr double kIndexCost = 8;

// Ends the body of a fused kernel as soon as it is too long. Windows of windows would take hours to the end.
struct TooLong {};

using loop::LoopMode;

std::string value_key(char kind, int32_t unit) {
  std::string key(1, kind);
  key.append(reinterpret_cast<const char*>(&unit), sizeof unit);
  return key;
}

}  // namespace

GroupKernel::GroupKernel(ComputeUnits& units, const std::vector<int32_t>& members, const std::vector<int32_t>& roots)
    : body(units.facts), units_(units), facts_(units.facts), members_(members), roots_(roots) {}

const Sizes& GroupKernel::domain_of(int32_t unit) const {
  const ComputeUnit& u = units_[unit];
  return u.low.kind == Lowered::kReduce ? u.low.reduction.sizes : u.value->sizes;
}

// Returns the strides that order the loops of a group without reductions: the lead's. If a window reads several
// elements for each result, returns those of the tensor that it reads.
const Sizes& GroupKernel::flat_strides(int32_t lead) const {
  for (int32_t u : members_) {
    const Lowered& low = units_[u].low;
    if (!low.window) continue;
    const Tensor& read = low.reads[0];
    const bool same_rank = read->dim() == units_[lead].value->dim();
    if (same_rank && read->numel().hint > units_[u].value->numel().hint) return read->strides;
  }
  return units_[lead].value->strides;
}

// Takes the axes from the first reduction, or from the first root if nothing reduces.
bool GroupKernel::find_shape() {
  int32_t lead = -1;
  for (int32_t u : members_) {
    if (units_[u].low.kind == Lowered::kReduce && lead < 0) lead = u;
  }
  const Reduction* r = lead >= 0 ? &units_[lead].low.reduction : nullptr;
  if (r) shape_.kind = r->rows ? GroupShape::kRows : GroupShape::kColumns;
  if (lead < 0) lead = roots_[0];
  const Sizes& sizes = domain_of(lead);
  std::vector<int> axis_of(sizes.size(), -1);
  for (size_t d = 0; d < sizes.size(); d++) {
    if (facts_.is_one(sizes[d])) continue;
    axis_of[d] = int(shape_.axes.size());
    shape_.axes.push_back({sizes[d], r && r->reduced[d]});
  }
  axis_loops_.assign(shape_.axes.size(), -1);
  if (r) {
    for (int d : r->kept) {
      if (axis_of[size_t(d)] >= 0) row_order_.push_back(axis_of[size_t(d)]);
    }
  } else {
    row_order_ = axis_order(sizes, flat_strides(lead), false);
  }
  for (int32_t u : members_) {
    if (units_[u].low.kind != Lowered::kReduce) continue;
    const Reduction& other = units_[u].low.reduction;
    if (other.rows != r->rows) return false;
    size_t a = 0;
    for (size_t d = 0; d < other.sizes.size(); d++) {
      if (facts_.is_one(other.sizes[d])) continue;
      if (a == shape_.axes.size() || !facts_.equal(other.sizes[d], shape_.axes[a].size)) return false;
      if (other.reduced[d] != shape_.axes[a++].reduced) return false;
    }
    if (a != shape_.axes.size()) return false;
  }
  return true;
}

bool GroupKernel::matches(const Sizes& sizes, bool full) const {
  size_t a = 0;
  auto skip = [&] {
    while (!full && a < shape_.axes.size() && shape_.axes[a].reduced) a++;
  };
  for (SymInt s : sizes) {
    if (facts_.is_one(s)) continue;
    skip();
    if (a == shape_.axes.size() || !facts_.equal(s, shape_.axes[a++].size)) return false;
  }
  skip();
  return a == shape_.axes.size();
}

// Returns the index over the open loops. Dimensions of size one have index 0.
Index GroupKernel::canonical(const Sizes& sizes, bool full) const {
  Index index(sizes.size());
  size_t a = 0;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (facts_.is_one(sizes[d])) continue;
    while (!full && shape_.axes[a].reduced) a++;
    index[d] = Affine::loop(axis_loops_[a++]);
  }
  return index;
}

Index GroupKernel::result_index(int32_t unit) const {
  const Reduction& r = units_[unit].low.reduction;
  if (r.kept.empty()) return Index(units_[unit].value->sizes.size());
  Index index;
  size_t a = 0;
  for (size_t d = 0; d < r.sizes.size(); d++) {
    Affine at;
    if (!facts_.is_one(r.sizes[d])) {
      if (!r.reduced[d]) at = Affine::loop(axis_loops_[a]);
      a++;
    }
    if (!r.reduced[d] || r.keepdim) index.push_back(at);
  }
  return index;
}

std::vector<int> GroupKernel::axis_order(const Sizes& sizes, const Sizes& strides, bool full) const {
  std::vector<std::pair<int64_t, int>> order;
  size_t a = 0;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (facts_.is_one(sizes[d])) continue;
    while (!full && shape_.axes[a].reduced) a++;
    order.push_back({-strides[d].hint, int(a++)});
  }
  std::stable_sort(order.begin(), order.end(), [](auto& x, auto& y) { return x.first < y.first; });
  std::vector<int> axes;
  for (auto& [stride, axis] : order) axes.push_back(axis);
  return axes;
}

bool GroupKernel::place_roots() {
  for (int32_t u : roots_) {
    if (units_[u].is_empty()) continue;
    bool reduced = units_[u].low.kind == Lowered::kReduce;
    if (reduced || matches(units_[u].value->sizes, false)) {
      row_roots_.push_back(u);
    } else if (matches(units_[u].value->sizes, true)) {
      full_roots_.push_back(u);
    } else {
      return false;
    }
  }
  stores_all_ = !full_roots_.empty();
  // Threads of a column would each store all of it.
  return !stores_all_ || shape_.kind != GroupShape::kColumns || !units_.backend.preferences.column_threads;
}

int GroupKernel::level_of_operands(const ComputeUnit& u) {
  int level = 0;
  for (const Tensor& t : u.low.reads) {
    const ViewSource& s = units_.resolve(t);
    if (units_.is_input(s.id)) continue;
    int32_t from = units_.unit_of(s.id);
    bool member = std::binary_search(members_.begin(), members_.end(), from);
    if (member || units_[from].inlined) level = std::max(level, level_of(from));
  }
  return level;
}

// Returns the number of reductions of the group on the longest path to this value.
int GroupKernel::level_of(int32_t unit) {
  auto it = levels_.find(unit);
  if (it != levels_.end()) return it->second;
  int level = level_of_operands(units_[unit]) + (units_[unit].low.kind == Lowered::kReduce);
  return levels_[unit] = level;
}

std::vector<GroupKernel::Batch> GroupKernel::batches(int level) {
  std::vector<Batch> out;
  for (int32_t u : members_) {
    if (units_[u].low.kind != Lowered::kReduce || level_of(u) != level) continue;
    const Reduction& r = units_[u].low.reduction;
    std::vector<int> axis_of;
    int next = 0;
    for (SymInt s : r.sizes) axis_of.push_back(facts_.is_one(s) ? -1 : next++);
    Batch b;
    b.lanes = r.lanes;
    for (const std::vector<int>& dims : r.nest) {
      b.nest.emplace_back();
      for (int d : dims) {
        if (axis_of[size_t(d)] >= 0) b.nest.back().push_back(axis_of[size_t(d)]);
      }
      if (b.nest.back().empty()) b.nest.back().push_back(-1);
    }
    auto same = std::find_if(out.begin(), out.end(), [&](const Batch& o) { return o.nest == b.nest; });
    if (same == out.end()) same = out.insert(out.end(), b);
    same->units.push_back(u);
  }
  return out;
}

void GroupKernel::emit_batch(const Batch& batch) {
  size_t outer = body.depth();
  for (size_t g = 0; g < batch.nest.size(); g++) {
    for (size_t k = 0; k < batch.nest[g].size(); k++) {
      bool innermost = g + 1 == batch.nest.size() && k + 1 == batch.nest[g].size();
      int axis = batch.nest[g][k];
      LoopMode mode = innermost && batch.lanes > 1 ? LoopMode::kLanes : LoopMode::kSerial;
      SymInt size = axis < 0 ? SymInt(1) : shape_.axes[size_t(axis)].size;
      int32_t id = body.open(size, mode, k + 1 < batch.nest[g].size());
      if (axis >= 0) axis_loops_[size_t(axis)] = id;
    }
  }
  std::vector<int32_t> results;
  for (int32_t u : batch.units) {
    const Reduction& r = units_[u].low.reduction;
    int32_t v = inlined(units_[u].low.element, u, canonical(r.sizes, true));
    if (body.depth() == outer) {
      results.push_back(v);  // it has no dimensions
      continue;
    }
    int32_t acc = body.accumulator(outer + 1, r.op, r.type, r.lanes, r.block);
    body.accum(acc, v);
    results.push_back(acc);
  }
  keep_elements();
  while (body.depth() > outer) body.close();
  for (size_t i = 0; i < batch.units.size(); i++) {
    int32_t u = batch.units[i];
    int32_t v = body.cast(results[i], units_[u].value->dtype);
    std::string key = value_key('r', u);
    append_key(key, result_index(u));
    body.remember(key, v);
  }
}

// Finds the values that the full roots need from the group without a reduction in between.
void GroupKernel::find_wanted(const Tensor& t) {
  const ViewSource& s = units_.resolve(t);
  if (units_.is_input(s.id)) return;
  int32_t u = units_.unit_of(s.id);
  bool member = std::binary_search(members_.begin(), members_.end(), u);
  if (!(member || units_[u].inlined) || units_[u].low.kind == Lowered::kReduce) return;
  if (std::count(wanted_.begin(), wanted_.end(), u)) return;
  wanted_.push_back(u);
  for (const Tensor& r : units_[u].low.reads) find_wanted(r);
}

// Returns true if loops that a reduction treats as one are contiguous in the root's memory, too.
bool GroupKernel::walks_as_one(int32_t root) const {
  const Tensor& t = units_[root].value;
  Sizes strides;
  for (size_t d = 0; d < t->sizes.size(); d++) {
    if (!facts_.is_one(t->sizes[d])) strides.push_back(t->strides[d]);
  }
  for (size_t a = 1; a < shape_.axes.size(); a++) {
    if (!shape_.axes[a].reduced || !shape_.axes[a - 1].reduced) continue;
    if (!facts_.equal(strides[a - 1], strides[a] * shape_.axes[a].size)) return false;
  }
  return shape_.axes.back().reduced && facts_.is_one(strides.back());
}

// Returns a root whose memory can hold the unit's elements until the root's own are stored; -1 if there is none.
int32_t GroupKernel::keeper(int32_t unit) const {
  const auto fits = [&](int32_t r) { return units_[r].value->dtype == units_[unit].value->dtype; };
  const auto self = std::find(keepers_.begin(), keepers_.end(), unit);
  if (self != keepers_.end() && fits(unit)) return unit;
  const auto other = std::find_if(keepers_.begin(), keepers_.end(), fits);
  return other == keepers_.end() ? -1 : *other;
}

// Stores the heavy values that a reduction's loop has just computed and that are needed again.
void GroupKernel::keep_elements() {
  if (shape_.kind != GroupShape::kRows || full_roots_.empty()) return;
  for (int32_t u : wanted_) {
    const ComputeUnit& unit = units_[u];
    if (!unit.low.heavy || unit.low.checks || kept_.count(u) || !matches(unit.value->sizes, true)) continue;
    std::string key = value_key('u', u);
    append_key(key, canonical(unit.value->sizes, true));
    int32_t v = body.recall(key), root = v < 0 ? -1 : keeper(u);
    if (root < 0 || body.depth_of(v) != body.depth()) continue;
    Index at = canonical(units_[root].value->sizes, true);
    body.store(loop::Op::kStore, units_.source_of(root), at_strides(at, units_[root].value->strides, 0), v);
    kept_.emplace(u, root);
    std::erase(keepers_, root);
  }
}

int32_t GroupKernel::value(int32_t unit, const Index& index) {
  const ComputeUnit& u = units_[unit];
  bool reduces = u.low.kind == Lowered::kReduce;
  std::string key = value_key(reduces ? 'r' : 'u', unit);
  append_key(key, index);
  int32_t known = body.recall(key);
  if (known >= 0) return known;
  if (reduces) {
    refuse("a reduction is used outside its row");
    return body.constant(u.value->dtype, 0);
  }
  if (auto kept = kept_.find(unit); kept != kept_.end() && identical(index, canonical(u.value->sizes, true))) {
    const Tensor& t = units_[kept->second].value;
    Index at = canonical(t->sizes, true);
    return body.load(units_.source_of(kept->second), t->dtype, at_strides(at, t->strides, 0));
  }
  if (u.low.checks) note_check(unit, index);
  int32_t v = inlined(u.low.element, unit, index);
  body.remember(key, v);
  return v;
}

// Notes that all elements of a unit that may fail are computed, even if only a part of them is used.
void GroupKernel::note_check(int32_t unit, const Index& index) {
  const Sizes& sizes = units_[unit].value->sizes;
  for (bool full : {false, true}) {
    if (!matches(sizes, full)) continue;
    bool open = true;
    for (size_t a = 0; a < shape_.axes.size(); a++) open &= axis_loops_[a] >= 0 || (!full && shape_.axes[a].reduced);
    if (open && identical(index, canonical(sizes, full))) checked_.push_back(unit);
  }
}

int32_t GroupKernel::operand(const Tensor& t, const Index& index) {
  const ViewSource& s = units_.resolve(t);
  if (!units_.is_input(s.id)) {
    int32_t u = units_.unit_of(s.id);
    if (units_[u].inlined || std::binary_search(members_.begin(), members_.end(), u)) {
      Index from;
      if (units_.map_index(s, index, from)) return value(u, from);
      refuse("a view that is not affine");
      return body.constant(t->dtype, 0);
    }
  }
  return body.load(s.id, t->dtype, at_strides(index, t->strides, units_.offset_of(s, t)));
}

void GroupKernel::check(int32_t value, SymInt bound, int32_t dim, const Node& node) {
  size_t f = 0;
  while (f < faults.size() && (faults[f].node != &node || faults[f].dim != dim)) f++;
  if (f == faults.size()) faults.push_back({dim, &node});
  body.check(value, bound, int32_t(f));
}

Affine GroupKernel::inline_place(const Affine& at, const ElementFunction& f, const Index& index, size_t base) const {
  return substitute(at, [&](const Affine::Term& t) {
    if (t.is_value) return Affine::value(inlined_[base + size_t(t.id)]);
    return t.id < f.rank ? index[size_t(t.id)] : Affine::loop(opened_[size_t(t.id - f.rank)]);
  });
}

int32_t GroupKernel::inline_stmt(const FunctionStmt& s, const ElementFunction& f, int32_t unit, const Index& index,
                                 size_t base) {
  const auto of = [&](int32_t v) { return v < 0 ? v : inlined_[base + size_t(v)]; };
  const auto place = [&] { return inline_place(f.places[size_t(s.place)], f, index, base); };
  switch (s.kind) {
    case FunctionStmt::kOp: return body.op(s.op, s.type, of(s.a), of(s.b), of(s.c), s.arg);
    case FunctionStmt::kCast: return body.cast(of(s.a), s.type);
    case FunctionStmt::kNumber: return body.constant(s.type, s.number);
    case FunctionStmt::kInteger: return body.constant_int(s.type, s.integer);
    case FunctionStmt::kScalar: return body.scalar(s.arg, s.type);
    case FunctionStmt::kSize: return body.int_value(s.size);
    case FunctionStmt::kIndex: return body.index(place());
    case FunctionStmt::kPart: return body.part(of(s.a), s.arg);
    case FunctionStmt::kOperand: {
      const Tensor& from = units_[unit].low.reads[size_t(s.arg)];
      const auto rank = size_t(s.places);
      if (rank == index.size() && is_same_index(f.places.data() + s.place, rank)) return operand(from, index);
      Index at;
      at.reserve(rank);
      for (int32_t k = 0; k < s.places; k++) {
        at.push_back(inline_place(f.places[size_t(s.place + k)], f, index, base));
      }
      return operand(from, at);
    }
    case FunctionStmt::kCheck: check(of(s.a), s.size, s.arg, *units_[unit].node); return -1;
    case FunctionStmt::kOpen: opened_.push_back(body.open(s.size, s.mode)); return -1;
    case FunctionStmt::kClose: body.close(); return -1;
    case FunctionStmt::kStore: body.store(loop::Op::kStore, units_.source_of(unit), place(), of(s.a)); return -1;
  }
  fail_internal("a statement of an unknown kind");
}

// Inlines the function's statements into the body, at an index. Operands become loads, or inlined functions.
int32_t GroupKernel::inlined(const ElementFunction& f, int32_t unit, const Index& index) {
  inlined_stmts_ += f.stmts.size();
  if (members_.size() > 1 && inlined_stmts_ > compile_limits::kInlinedStmts) throw TooLong();
  const size_t base = inlined_.size();
  inlined_.resize(base + f.stmts.size());
  for (size_t i = 0; i < f.stmts.size(); i++) inlined_[base + i] = inline_stmt(f.stmts[i], f, unit, index, base);
  const int32_t result = f.result < 0 ? -1 : inlined_[base + size_t(f.result)];
  inlined_.resize(base);
  return result;
}

void GroupKernel::open_rows() {
  for (size_t k = 0; k < row_order_.size(); k++) {
    bool vector = k + 1 == row_order_.size() && shape_.kind != GroupShape::kRows;
    size_t a = size_t(row_order_[k]);
    axis_loops_[a] = body.open(shape_.axes[a].size, vector ? LoopMode::kVector : LoopMode::kSerial);
  }
}

void GroupKernel::emit_roots(const std::vector<int32_t>& roots, bool full, std::vector<int32_t>& values) {
  for (int32_t u : roots) {
    Index index = units_[u].low.kind == Lowered::kReduce ? result_index(u) : canonical(units_[u].value->sizes, full);
    values.push_back(value(u, index));
  }
}

void GroupKernel::store_roots(const std::vector<int32_t>& roots, bool full, const std::vector<int32_t>& values) {
  for (size_t i = 0; i < roots.size(); i++) {
    const ComputeUnit& u = units_[roots[i]];
    bool reduces = u.low.kind == Lowered::kReduce;
    Index index = reduces ? result_index(roots[i]) : canonical(u.value->sizes, full);
    int32_t to = units_.source_of(roots[i]);
    SymInt offset = 0;
    if (u.is_copy()) {
      const ViewSource& s = units_.resolve(u.value);
      to = s.id;
      offset = units_.offset_of(s, u.value);
    }
    body.store(loop::Op::kStore, to, at_strides(index, u.value->strides, offset), values[i]);
  }
}

void GroupKernel::emit_full() {
  std::erase_if(full_roots_, [&](int32_t r) { return kept_.count(r) && kept_.at(r) == r; });
  if (full_roots_.empty()) return;
  const Tensor& lead = units_[full_roots_[0]].value;
  size_t outer = body.depth();
  std::vector<int> order;
  for (int a : axis_order(lead->sizes, lead->strides, true)) {
    if (shape_.axes[size_t(a)].reduced) order.push_back(a);
  }
  for (size_t k = 0; k < order.size(); k++) {
    bool vector = k + 1 == order.size() && (shape_.kind == GroupShape::kRows || outer == 0);
    axis_loops_[size_t(order[k])] =
        body.open(shape_.axes[size_t(order[k])].size, vector ? LoopMode::kVector : LoopMode::kSerial);
  }
  std::vector<int32_t> values;
  emit_roots(full_roots_, true, values);
  store_roots(full_roots_, true, values);
  while (body.depth() > outer) body.close();
}

const std::string& GroupKernel::build() {
  check_stop();
  try {
    build_body();
  } catch (const TooLong&) {
    refuse("too many instructions");
  }
  return why_;
}

void GroupKernel::build_body() {
  if (!find_shape()) refuse("reductions over other dimensions");
  if (why_.empty() && !place_roots()) refuse("results over other dimensions");
  if (!why_.empty()) return;
  open_rows();
  for (int32_t r : full_roots_) {
    if (shape_.kind == GroupShape::kRows && !units_[r].is_copy() && walks_as_one(r)) keepers_.push_back(r);
    wanted_.push_back(r);
    for (const Tensor& t : units_[r].low.reads) find_wanted(t);
  }
  for (int32_t u : members_) deepest_ = std::max(deepest_, level_of(u));
  for (int level = 1; level <= deepest_; level++) {
    for (const Batch& b : batches(level)) emit_batch(b);
  }
  std::vector<int32_t> values;
  emit_roots(row_roots_, false, values);
  if (!full_roots_.empty()) emit_full();
  store_roots(row_roots_, false, values);
  while (body.depth() > 0) body.close();
  judge();
}

Work GroupKernel::work() const {
  struct Traffic {
    int32_t source;
    double most = 0, all = 0;  // bytes: in the loop that accesses the most of it, and in all loops
    double jumps = 0;          // elements that are accessed in lines of their own; a written one counts twice
    bool across = false;
  };
  Work w;
  double reduced = 1;
  for (const GroupShape::Axis& a : shape_.axes) (a.reduced ? reduced : w.parallel) *= double(a.size.hint);
  w.additions = body.additions();
  if (units_.machine.threads == 1) w.additions += (kIndexCost - 1) * body.index_additions();
  const bool columns = shape_.kind == GroupShape::kColumns;
  // On a CPU, loops without reductions and with all stores along the innermost one load other directions in tiles.
  const auto jumps = [](const Body::Use& use) { return use.step >= kLine; };
  const auto stores_apart = [&](const Body::Use& use) { return use.written && jumps(use); };
  const bool core = units_.machine.threads == 1;
  const bool tiles = shape_.kind == GroupShape::kFlat && std::ranges::none_of(body.uses(), stores_apart);
  std::vector<Traffic> traffic;
  double iteration = 0;
  for (const Body::Use& use : body.uses()) {
    auto m = std::find_if(traffic.begin(), traffic.end(), [&](const Traffic& o) { return o.source == use.buffer; });
    if (m == traffic.end()) m = traffic.insert(m, {use.buffer});
    const double bytes = use.elements * double(size_of(use.type));
    m->most = std::max(m->most, bytes), m->all += bytes;
    m->across |= columns && use.written && use.elements > w.parallel;
    if (core && !columns && !tiles && jumps(use)) m->jumps += use.elements * (use.written ? 2 : 1);
    iteration += bytes / std::max(w.parallel, 1.0);
  }
  const bool is_near = iteration <= near_bytes(units_.machine);
  for (const Traffic& m : traffic) {
    const double size = likely_bytes(units_.value_of(m.source));
    const double bytes = is_near ? std::min(m.most, size) : m.all;
    m.across ? w.move_across(units_.machine, bytes, size) : w.move(units_.machine, bytes, size);
    w.jump(units_.machine, m.jumps, size);
  }
  if (shape_.kind == GroupShape::kFlat) return w;
  const numerics::Reductions& lanes = units_.backend.reductions;
  w.together = std::clamp<double>(reduced, 1, columns ? lanes.column_lanes : lanes.row_lanes);
  w.steps = (deepest_ + stores_all_) * reduced / w.together;
  return w;
}

void GroupKernel::measure(ComputeUnit& unit) const {
  unit.work = work();
  unit.hoisted = body.hoisted();
  const int others = int(unit.hoisted.size() + body.uses().size());
  unit.instructions = std::max(1, body.instructions() - others);
}

void GroupKernel::build_copy(const Tensor& from, int32_t source, const Tensor& to) {
  for (SymInt s : to->sizes) {
    if (!facts_.is_one(s)) shape_.axes.push_back({s, false});
  }
  axis_loops_.assign(shape_.axes.size(), -1);
  row_order_ = axis_order(to->sizes, to->strides, false);
  open_rows();
  Index index = canonical(to->sizes, false);
  int32_t v = body.cast(operand(from, index), to->dtype);
  body.store(loop::Op::kStore, source, at_strides(index, to->strides, 0), v);
  while (body.depth() > 0) body.close();
  judge();
}

void GroupKernel::build_write(const ElementFunction& write, int32_t unit, bool parallel) {
  inlined(write, unit, {});
  LUTRA_CHECK(body.merge_loops(), "loops of a function that writes");
  if (parallel) make_parallel();
}

void GroupKernel::make_parallel() {
  body.make_parallel(units_.backend.preferences.nested_parallel, least_share(units_.backend.stated));
}

void GroupKernel::judge() {
  if (!body.merge_loops()) refuse("the order of a reduction");
  make_parallel();
  if (members_.size() > 1) {
    if (body.instructions() > compile_limits::kInstructions) refuse("too many instructions");
    std::vector<int32_t> pointers;
    for (const Body::Use& use : body.uses()) pointers.push_back(use.buffer);
    std::sort(pointers.begin(), pointers.end());
    pointers.erase(std::unique(pointers.begin(), pointers.end()), pointers.end());
    if (pointers.size() > compile_limits::kPointers) refuse("too many pointers");
    bool checks = false, writes = false;
    for (int32_t u : members_) {
      checks |= units_[u].checks;
      writes |= units_[u].is_copy();
      if (units_[u].low.checks && !std::count(checked_.begin(), checked_.end(), u)) refuse("a check in part");
    }
    if (checks && writes) refuse("a check beside a write to an input");
  }
  judge_hazards();
}

void GroupKernel::judge_hazards() {
  const auto& uses = body.uses();
  for (size_t w = 0; w < uses.size(); w++) {
    if (!uses[w].written || !units_.is_input(uses[w].buffer)) continue;
    for (size_t i = 0; i < uses.size(); i++) {
      if (i == w || !units_.is_input(uses[i].buffer)) continue;
      if (!units_.same_memory(uses[i].buffer, uses[w].buffer)) continue;
      bool harmless = uses[i].buffer == uses[w].buffer && !uses[i].written && identical(uses[i].at, uses[w].at);
      if (!harmless) refuse("an input is read where it is overwritten");
    }
  }
}

}  // namespace lutra
