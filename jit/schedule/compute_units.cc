// Makes the units of a graph. Finds what each reads, and the order that writes to inputs require.
#include "jit/schedule/compute_units.h"

#include <algorithm>

#include "jit/schedule/compile_limits.h"
#include "jit/schedule/schedule.h"
#include "ops/core/interrupt.h"

namespace lutra {
namespace {

void add_once(std::vector<int32_t>& list, int32_t v) {
  if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
}

bool is_random(const Node& n) { return info(n.op).has(kRandom); }

}  // namespace

double likely_bytes(const Tensor& t) {
  auto bytes = double(size_of(t->dtype));
  for (const SymInt& n : t->sizes) bytes *= double(n.hint);
  return bytes;
}

ComputeUnits::ComputeUnits(const Graph& g, LoweredGraph& lowered, bool fuse, const Machine* machine)
    : graph(g),
      facts(lowered.facts),
      device(device_of(g)),
      backend(backend_of(device)),
      machine(machine ? *machine : backend.stated),
      fuse_(fuse) {
  add_units(lowered);
  break_swaps();
  link();
  write_in_place();
}

void ComputeUnits::add_units(LoweredGraph& lowered) {
  for (size_t i = 0; i < graph.inputs.size(); i++) sources_[graph.inputs[i].value.get()] = int32_t(i);
  units_.reserve(lowered.nodes.size());
  for (LoweredNode& n : lowered.nodes) {
    if (n.low.kind == Lowered::kView) {
      views_.emplace(n.node, std::move(n.low));
      continue;
    }
    if (n.own) own_nodes_.push_back(std::move(n.own));
    add_unit(*n.node, n.value, std::move(n.low));
  }
}

void ComputeUnits::add_unit(const Node& n, const Tensor& value, Lowered&& low) {
  if (low.kind != Lowered::kCopy) sources_[value.get()] = source_of(size());
  ComputeUnit& u = units_.emplace_back();
  u.node = &n;
  u.value = value;
  u.low = std::move(low);
}

const ViewSource& ComputeUnits::resolve(const Tensor& t) const {
  std::vector<std::pair<const TensorImpl*, const Node*>> views;  // from t down to one that is known
  Tensor at = t;
  auto it = resolved_.find(at.get());
  while (it == resolved_.end()) {
    auto source = sources_.find(at.get());
    if (source != sources_.end()) {
      it = resolved_.emplace(at.get(), ViewSource{source->second}).first;
      break;
    }
    const Node* n = at->node;
    const bool copy = n->is_copy();
    LUTRA_CHECK(copy || views_.count(n), "a tensor that nothing makes");
    views.push_back({at.get(), copy ? nullptr : n});
    at = n->args[0].tensor();
    it = resolved_.find(at.get());
  }
  while (!views.empty()) {
    const auto [value, node] = views.back();
    views.pop_back();
    const ViewSource& below = it->second;
    ViewSource s = below;
    if (node) s = {below.id, below.depth + 1, node, &below};
    it = resolved_.emplace(value, s).first;
  }
  return it->second;
}

bool ComputeUnits::map_index(const ViewSource& s, const Index& index, Index& out) const {
  if (s.depth > compile_limits::kViews) return false;
  out = index;
  for (const ViewSource* v = &s; v->view; v = v->next) {
    const Lowered& view = views_.at(v->view);
    if (!view.affine) return false;
    Index next;
    next.reserve(view.map.size());
    for (const Affine& at : view.map) {
      next.push_back(substitute(at, [&](const Affine::Term& t) { return out[size_t(t.id)]; }));
    }
    out = std::move(next);
  }
  return true;
}

const Tensor& ComputeUnits::value_of(int32_t source) const {
  return is_input(source) ? graph.inputs[size_t(source)].value : units_[size_t(unit_of(source))].value;
}

namespace {

// Converts an offset in elements of `from` to elements of `to`.
SymInt in_units_of(DType to, SymInt offset, DType from) {
  const int64_t a = bytes_of(from, 2), b = bytes_of(to, 2);
  return a >= b ? offset * (a / b) : floor_div(offset, b / a);
}

}  // namespace

SymInt ComputeUnits::offset_of(const ViewSource& s, const Tensor& t) const {
  if (!s.view) return 0;
  const Tensor& from = value_of(s.id);
  return t->offset - in_units_of(t->dtype, from->offset, from->dtype);
}

bool ComputeUnits::same_memory(int32_t a, int32_t b) const {
  return a == b || graph.inputs[size_t(a)].value->storage == graph.inputs[size_t(b)].value->storage;
}

void ComputeUnits::mark(const Tensor& t) {
  const ViewSource& s = resolve(t);
  if (!is_input(s.id)) units_[size_t(unit_of(s.id))].needs_memory = true;
}

void ComputeUnits::find_memory() {
  for (const Value& v : graph.outputs) {
    if (v.is<Tensor>() && v.tensor()) mark(v.tensor());
  }
  for (ComputeUnit& u : units_) {
    for (const Tensor& t : u.low.reads) {
      if (u.low.kind == Lowered::kExtern) {
        mark(t);
        continue;
      }
      const ViewSource& s = resolve(t);
      Index probe(t->sizes.size()), out;
      for (size_t d = 0; d < probe.size(); d++) probe[d] = Affine::loop(int32_t(d));
      if (!is_input(s.id) && !map_index(s, probe, out)) mark(t);
    }
  }
}

// Returns the elementwise units that are read once for each element, by one part of a join only. They are computed
// where that part is written.
std::vector<bool> ComputeUnits::join_operands() const {
  std::vector<bool> found(units_.size(), false);
  std::vector<int> reads(units_.size(), 0), reader(units_.size(), -1), depth(units_.size(), 0);
  for (size_t i = 0; i < units_.size(); i++) {
    for (const Tensor& t : units_[i].low.reads) {
      const ViewSource& s = resolve(t);
      if (is_input(s.id)) continue;
      const auto u = size_t(unit_of(s.id));
      reads[u]++, reader[u] = int(i);
      if (t->numel().hint > units_[u].value->numel().hint) reads[u]++;  // read more than once, through an expanded view
    }
  }
  for (size_t i = units_.size(); i-- > 0;) {
    const ComputeUnit& u = units_[i];
    if (u.low.kind != Lowered::kPointwise || u.needs_memory || u.stays || u.checks || u.low.checks || reads[i] != 1)
      continue;
    const auto by = size_t(reader[i]);
    depth[i] = depth[by] + 1;
    found[i] = units_[by].low.kind == Lowered::kJoin || (found[by] && depth[i] <= compile_limits::kJoinedChain);
  }
  return found;
}

// Returns the elementwise units that a split reduction reads, directly or through others. Its loop nest differs from
// theirs, so no kernel could have both.
std::vector<bool> ComputeUnits::cut_operands() const {
  std::vector<bool> found(units_.size(), false);
  for (size_t i = units_.size(); i-- > 0;) {
    const ComputeUnit& u = units_[i];
    const Reduction& r = u.low.reduction;
    const bool cut = u.low.kind == Lowered::kReduce && r.lanes > 1 && u.node && !u.node->args.empty() &&
                     u.node->args[0].is<Tensor>() && r.sizes.size() > u.node->args[0].tensor()->sizes.size();
    if (!cut && !(found[i] && u.low.kind == Lowered::kPointwise)) continue;
    for (const Tensor& t : u.low.reads) {
      const ViewSource& s = resolve(t);
      if (!is_input(s.id)) found[size_t(unit_of(s.id))] = true;
    }
  }
  return found;
}

bool ComputeUnits::is_cheap(const ComputeUnit& u) const {
  return u.low.kind == Lowered::kPointwise && !u.needs_memory && !u.stays && !u.low.heavy && !u.low.checks && u.node &&
         !is_random(*u.node);
}

// Returns the sources that the unit reads from memory, directly or through inlined units, except those much smaller
// than its own value.
std::vector<int32_t> ComputeUnits::large_sources(const ComputeUnit& u,
                                                 const std::vector<std::vector<int32_t>>& of_inlined) const {
  std::vector<int32_t> out;
  for (const Tensor& t : u.low.reads) {
    const ViewSource& s = resolve(t);
    if (value_of(s.id)->numel().hint * 16 <= u.value->numel().hint) continue;
    const bool through = !is_input(s.id) && units_[size_t(unit_of(s.id))].inlined;
    if (!through) {
      add_once(out, s.id);
      continue;
    }
    for (int32_t from : of_inlined[size_t(unit_of(s.id))]) add_once(out, from);
  }
  return out;
}

// Returns how many kernels would compute each unit's value if it were inlined.
std::vector<int> ComputeUnits::readers() const {
  std::vector<int> count(units_.size(), 0);
  for (size_t i = units_.size(); i-- > 0;) {
    const ComputeUnit& u = units_[i];
    const bool passes_on = is_cheap(u) && u.low.reads.size() <= 1;
    for (const Tensor& t : u.low.reads) {
      const ViewSource& s = resolve(t);
      if (!is_input(s.id)) count[size_t(unit_of(s.id))] += passes_on ? count[i] : 1;
    }
  }
  return count;
}

// Returns true if kernels that each read the sources move no more bytes than kernels that read a stored value.
bool ComputeUnits::saves_bytes(const ComputeUnit& u, const std::vector<int32_t>& sources, int readers) const {
  double read = 0;
  for (int32_t from : sources) read += likely_bytes(value_of(from));
  return readers * read <= read + (1 + readers) * likely_bytes(u.value);
}

void ComputeUnits::choose_inlined() {
  if (!fuse_) return;
  std::vector<int> chain(units_.size(), 0);
  std::vector<std::vector<int32_t>> sources(units_.size());
  const std::vector<bool> joined = join_operands(), cut = cut_operands();
  const std::vector<int> readers = this->readers();
  for (size_t i = 0; i < units_.size(); i++) {
    ComputeUnit& u = units_[i];
    u.inlined = joined[i];
    if (u.inlined || !is_cheap(u) || (u.low.reads.size() > 1 && !cut[i])) continue;
    for (const Tensor& t : u.low.reads) {
      const ViewSource& s = resolve(t);
      if (is_input(s.id) || !units_[size_t(unit_of(s.id))].inlined) continue;
      chain[i] = std::max(chain[i], chain[size_t(unit_of(s.id))] + 1);
    }
    sources[i] = large_sources(u, sources);
    const bool pays = u.low.reads.size() <= 1 ||
                      (sources[i].size() <= compile_limits::kCutOperands && saves_bytes(u, sources[i], readers[i]));
    u.inlined = chain[i] < compile_limits::kInlinedChain && pays;
  }
}

void ComputeUnits::trace(const Tensor& t, ComputeUnit& into) const {
  const ViewSource& s = resolve(t);
  if (is_input(s.id)) return add_once(into.inputs, s.id);
  const ComputeUnit& from = units_[size_t(unit_of(s.id))];
  if (!from.inlined) return add_once(into.reads, unit_of(s.id));
  for (const Tensor& r : from.low.reads) trace(r, into);
}

// Orders writes after reads of the old value and after everything that may fail.
void ComputeUnits::order_writes() {
  for (int32_t c = 0; c < size(); c++) {
    check_stop();
    const ComputeUnit& unit = units_[size_t(c)];
    const bool in_place = unit.in_place >= 0;
    if (!unit.is_copy() && !in_place) continue;
    int32_t target = in_place ? unit.in_place : resolve(unit.value).id;
    LUTRA_CHECK(is_input(target), "a copy into what is no input");
    for (int32_t u = 0; u < (in_place ? c : size()); u++) {
      const ComputeUnit& other = units_[size_t(u)];
      if (u == c || other.inlined) continue;
      bool before = other.checks && !other.is_copy();
      for (int32_t i : other.inputs) before |= same_memory(i, target);
      if (other.is_copy()) before &= u < c;
      if (before) add_once(units_[size_t(c)].after, u);
    }
  }
}

// Orders all later units after an op with an unbacked size. What the program does next may depend on that size without
// reading the op's result.
void ComputeUnits::order_unbacked() {
  for (int32_t dynamic = 0; dynamic < size(); dynamic++) {
    const ComputeUnit& t = units_[size_t(dynamic)];
    if (t.low.kind != Lowered::kExtern || !info(t.node->op).dynamic) continue;
    for (int32_t u = dynamic + 1; u < size(); u++) add_once(units_[size_t(u)].after, dynamic);
  }
}

void ComputeUnits::link() {
  find_memory();
  choose_inlined();
  for (int32_t i = 0; i < size(); i++) {
    ComputeUnit& u = units_[size_t(i)];
    u.reads.clear(), u.inputs.clear(), u.after.clear();
    u.checks = u.low.checks;
    for (size_t k = u.is_copy() ? 1 : 0; k < u.low.reads.size(); k++) trace(u.low.reads[k], u);
    // A copy counts as a reader of the memory that it writes, for other copies into it.
    if (u.is_copy()) add_once(u.inputs, resolve(u.value).id);
  }
  drop_dead();
  order_writes();
  order_unbacked();
}

// Marks units that nothing needs and that cannot fail as inlined.
void ComputeUnits::drop_dead() {
  std::vector<bool> live(units_.size(), false);
  for (size_t i = units_.size(); i-- > 0;) {
    ComputeUnit& u = units_[i];
    if (u.inlined) continue;
    if (!live[i] && !u.needs_memory && !u.is_copy() && !u.low.checks) {
      u.inlined = true;
      continue;
    }
    for (int32_t r : u.reads) live[size_t(r)] = true;
  }
}

void ComputeUnits::materialise(int32_t unit) {
  units_[size_t(unit)].needs_memory = true;
  link();
}

void ComputeUnits::buffer_copy(int32_t copy) {
  Tensor src = units_[size_t(copy)].low.reads[1];
  auto node = std::make_unique<Node>();
  node->op = OpId::clone;
  node->file = units_[size_t(copy)].node->file, node->line = units_[size_t(copy)].node->line;
  node->args = {src};
  Tensor value = make_fake(src->sizes, contiguous_strides(src->sizes), src->dtype, src->device());
  value->node = node.get();
  node->results = {value};
  ComputeUnit u;
  u.node = node.get();
  u.value = value;
  u.low = lower(*node, facts);
  u.low.heavy = true;  // never inlined
  // It is inserted before the copies, so the source numbers of later units change.
  int32_t at = 0;
  while (!units_[size_t(at)].is_copy()) at++;
  sources_[value.get()] = source_of(at);
  resolved_.clear();
  units_.insert(units_.begin() + at, std::move(u));
  ComputeUnit& c = units_[size_t(copy) + 1];
  auto args = std::make_unique<Node>(*c.node);
  args->args[1] = value;
  c.node = args.get();
  c.low = lower(*args, facts);
  own_nodes_.push_back(std::move(node));
  own_nodes_.push_back(std::move(args));
}

// Gives a copy a buffer of its own if its source is overwritten by another copy.
void ComputeUnits::break_swaps() {
  find_memory();
  choose_inlined();
  for (int32_t c = 0; c < size(); c++) {
    if (!units_[size_t(c)].is_copy()) continue;
    ComputeUnit reads;
    trace(units_[size_t(c)].low.reads[1], reads);
    bool swap = false;
    for (int32_t o = 0; o < size(); o++) {
      if (o == c || !units_[size_t(o)].is_copy()) continue;
      for (int32_t i : reads.inputs) swap |= same_memory(i, resolve(units_[size_t(o)].value).id);
    }
    if (swap) buffer_copy(c++);
  }
}

}  // namespace lutra
