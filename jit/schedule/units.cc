// Graph in; units, what each reads, and the order that writes to inputs impose, out.
#include "jit/schedule/units.h"

#include <algorithm>

#include "jit/schedule/decisions.h"
#include "jit/schedule/schedule.h"
#include "ops/core/half.h"
#include "ops/core/interrupt.h"

namespace lutra {
namespace {

using numerics::kLargeReduction, numerics::kShortRow;

void add_once(std::vector<int32_t>& list, int32_t v) {
  if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
}

bool is_random(const Node& n) { return info(n.op).has(kRandom); }

}  // namespace

Device device_of(const Graph& g) {
  for (const auto& n : g.nodes) {
    for (const Tensor& t : n->results) return t->device();
  }
  return g.inputs.empty() ? Device{} : g.inputs[0].value->device();
}

double likely_bytes(const Tensor& t) {
  auto bytes = double(size_of(t->dtype));
  for (const SymInt& n : t->sizes) bytes *= double(n.hint);
  return bytes;
}

Units::Units(const Graph& g, SymFacts& facts, bool fuse, const Machine* machine)
    : graph(g),
      facts(facts),
      device(device_of(g)),
      backend(backend_of(device)),
      machine(machine ? *machine : backend.stated),
      fuse_(fuse) {
  add_units();
  break_swaps();
  link();
}

void Units::add_units() {
  for (size_t i = 0; i < graph.inputs.size(); i++) sources_[graph.inputs[i].value.get()] = int32_t(i);
  for (bool copies : {false, true}) {
    for (const auto& n : graph.nodes) {
      if (n->is_copy() != copies) continue;
      check_stop();
      Lowered low = lower(*n, facts);
      if (low.kind == Lowered::kView) {
        views_.emplace(n.get(), std::move(low));
        continue;
      }
      if (const Node* rows = split_rows(*n, low)) {
        add_unit(*rows, rows->results[0], lower(*rows, facts));
        own_nodes_.push_back(std::make_unique<Node>(*n));
        own_nodes_.back()->args[0] = rows->results[0];
        own_nodes_.back()->args[1] = Value();
        low = lower(*own_nodes_.back(), facts);
      }
      if (split_chunks(*n, low)) continue;
      add_unit(*n, copies ? n->args[0].tensor() : n->results[0], std::move(low));
      for (size_t r = 1; r < n->results.size(); r++) {
        Lowered other;
        other.kind = Lowered::kExternResult;
        other.reads = {n->results[0]};
        add_unit(*n, n->results[r], std::move(other));
      }
    }
  }
}

void Units::add_unit(const Node& n, const Tensor& value, Lowered low) {
  ComputeUnit u;
  u.node = &n;
  u.value = value;
  u.low = std::move(low);
  if (!u.is_copy()) sources_[value.get()] = source_of(size());
  units_.push_back(std::move(u));
}

// A large tensor is reduced to one value in two steps, of which the first runs on all threads: the node that reduces
// all but the outermost dimension, or null. A function of op, sizes and strides, as it is part of the reduction's
// order.
const Node* Units::split_rows(const Node& n, const Lowered& low) {
  if (low.kind != Lowered::kReduce || info(n.op).has(kContraction)) return nullptr;
  const Reduction& r = low.reduction;
  Tensor in = n.args[0].tensor();
  bool position = r.op == loop::RedOp::kArgMax || r.op == loop::RedOp::kArgMin;
  if (position || !r.kept.empty() || in->dim() < 2 || is_half(n.results[0]->dtype)) return nullptr;
  if (in->numel() < SymInt(kLargeReduction)) return nullptr;
  int outer = stride_order(facts, in->strides)[0];
  Sizes dims;
  SymInt inner = 1;
  for (int d = 0; d < int(in->dim()); d++) {
    if (d == outer) continue;
    dims.push_back(d);
    inner = inner * in->sizes[size_t(d)];
  }
  if (inner < SymInt(kShortRow)) return nullptr;
  auto rows = std::make_unique<Node>(n);
  rows->args[1] = dims;
  rows->args[2] = false;
  Tensor value = make_fake({in->sizes[size_t(outer)]}, {1}, n.results[0]->dtype, in->device());
  value->node = rows.get();
  rows->results = {value};
  own_nodes_.push_back(std::move(rows));
  return own_nodes_.back().get();
}

namespace {

loop::Op combining(loop::RedOp op) {
  switch (op) {
    case loop::RedOp::kSum: return loop::Op::kAdd;
    case loop::RedOp::kProd: return loop::Op::kMul;
    case loop::RedOp::kMax: return loop::Op::kMax;
    case loop::RedOp::kMin: return loop::Op::kMin;
    case loop::RedOp::kAny: return loop::Op::kOr;
    case loop::RedOp::kAll: return loop::Op::kAnd;
    default: fail_internal("positions have no chunks");
  }
}

// Part of the reduction: dimension d of its domain is `sizes` instead (one, or chunks and what is in one), and starts
// at `first`. The chunks come outermost.
Lowered part_of(const Lowered& low, size_t d, const Sizes& sizes, SymInt first) {
  const Reduction& r = low.reduction;
  Lowered l = low;
  Reduction& p = l.reduction;
  const bool chunks = sizes.size() > 1;
  auto moved = [&](int dim) { return dim + int(chunks && dim >= int(d)); };
  p.keepdim = false;
  p.sizes.clear(), p.reduced.clear(), p.kept.clear();
  for (size_t k = 0; k < r.sizes.size(); k++) {
    if (k == d && chunks) p.sizes.push_back(sizes[0]), p.reduced.push_back(false);
    p.sizes.push_back(k == d ? sizes.back() : r.sizes[k]);
    p.reduced.push_back(r.reduced[k]);
  }
  for (std::vector<int>& dims : p.nest) {
    for (int& dim : dims) dim = moved(dim);
  }
  if (chunks) p.kept.push_back(int(d));
  for (int dim : r.kept) p.kept.push_back(moved(dim));
  Index at, index = parameters(p.sizes.size());
  for (size_t k = 0; k < index.size(); k++) {
    if (chunks && k == d) continue;
    const bool split = k == d + size_t(chunks);
    at.push_back(!split ? index[k] : index[k] + (chunks ? index[d] * sizes.back() : Affine::constant(first)));
  }
  l.element = at_index(low.element, p.sizes.size(), at);
  return l;
}

}  // namespace

// A unit of our own for part of a reduction; its value is laid out as its loops go.
Tensor Units::add_part(const Node& n, Lowered low) {
  const Reduction& r = low.reduction;
  Sizes sizes, strides;
  std::vector<int> position(r.sizes.size(), -1);
  for (size_t d = 0; d < r.sizes.size(); d++) {
    if (r.reduced[d]) continue;
    position[d] = int(sizes.size());
    sizes.push_back(r.sizes[d]);
    strides.push_back(1);
  }
  SymInt step = 1;
  for (size_t k = r.kept.size(); k-- > 0;) {
    strides[size_t(position[size_t(r.kept[k])])] = step;
    step = step * r.sizes[size_t(r.kept[k])];
  }
  auto node = std::make_unique<Node>(n);
  Tensor value = make_fake(sizes, strides, r.type, n.results[0]->device());
  value->node = node.get();
  node->results = {value};
  own_nodes_.push_back(std::move(node));
  add_unit(*own_nodes_.back(), value, std::move(low));
  return value;
}

// A large reduction with few results is cut along its outermost dimension into chunks, which run on all threads, and a
// rest; then the chunks' results are reduced and the rest's is added. A function of op, sizes and strides, as
// split_rows.
bool Units::split_chunks(const Node& n, const Lowered& low) {
  if (low.kind != Lowered::kReduce || info(n.op).has(kContraction)) return false;
  const Reduction& r = low.reduction;
  if (r.op == loop::RedOp::kArgMax || r.op == loop::RedOp::kArgMin || r.nest.empty()) return false;
  SymInt all = 1, kept = 1;
  for (size_t d = 0; d < r.sizes.size(); d++) {
    all = all * r.sizes[d];
    if (!r.reduced[d]) kept = kept * r.sizes[d];
  }
  const size_t d = size_t(r.nest[0][0]);
  const numerics::Reductions& cut = backend.reductions;
  const int64_t chunks = r.rows ? cut.chunks : cut.column_chunks, most = r.rows ? 1 : cut.columns;
  if (all < SymInt(kLargeReduction) || kept > SymInt(most) || r.sizes[d] < SymInt(64 * chunks)) return false;
  const SymInt length = floor_div(r.sizes[d], chunks), rest = r.sizes[d] - length * chunks;
  Tensor parts = add_part(n, part_of(low, d, {SymInt(chunks), length}, 0));
  Tensor tail = rest.is_constant() && rest.hint == 0 ? Tensor() : add_part(n, part_of(low, d, {rest}, length * chunks));
  Lowered whole;
  whole.kind = Lowered::kReduce;
  whole.reads = {parts};
  Reduction& w = whole.reduction;
  w.sizes = parts->sizes, w.op = r.op, w.type = r.type;
  w.reduced.assign(parts->sizes.size(), false);
  int at = 0;
  for (size_t k = 0; k < d; k++) at += !r.reduced[k];
  w.reduced[size_t(at)] = true;
  w.nest = {{at}};
  for (int k : stride_order(facts, parts->strides)) {
    if (k != at) w.kept.push_back(k);
  }
  w.rows = w.kept.empty();
  w.lanes = w.rows || cut.keeps_lanes ? r.lanes : 1;
  w.block = r.block;
  whole.element = element_function(whole, facts, w.sizes.size(),
                                   [&](Emitter& e, const Index& index) { return e.operand(parts, index); });
  Tensor sum = add_part(n, std::move(whole));
  Lowered last;
  last.reads = {sum};
  if (tail) last.reads.push_back(tail);
  last.element = element_function(last, facts, n.results[0]->sizes.size(), [&](Emitter& e, const Index& index) {
    Index at;
    for (size_t k = 0; k < index.size(); k++) {
      if (!r.keepdim || !r.reduced[k]) at.push_back(index[k]);
    }
    int32_t v = e.operand(sum, at);
    if (tail) v = e.body.op(combining(r.op), sum->dtype, v, e.operand(tail, at));
    return e.body.cast(v, n.results[0]->dtype);
  });
  add_unit(n, n.results[0], std::move(last));
  return true;
}

const ViewSource& Units::resolve(const Tensor& t) const {
  std::vector<std::pair<const TensorImpl*, const Node*>> views;  // from t on, down to one that is known
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

bool Units::map_index(const ViewSource& s, const Index& index, Index& out) const {
  if (s.depth > budget::kViews) return false;
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

const Tensor& Units::value_of(int32_t source) const {
  return is_input(source) ? graph.inputs[size_t(source)].value : units_[size_t(unit_of(source))].value;
}

namespace {

// An offset in elements of `from`, in elements of `to`.
SymInt in_units_of(DType to, SymInt offset, DType from) {
  const int64_t a = bytes_of(from, 2), b = bytes_of(to, 2);
  return a >= b ? offset * (a / b) : floor_div(offset, b / a);
}

}  // namespace

SymInt Units::offset_of(const ViewSource& s, const Tensor& t) const {
  if (!s.view) return 0;
  const Tensor& from = value_of(s.id);
  return t->offset - in_units_of(t->dtype, from->offset, from->dtype);
}

bool Units::same_memory(int32_t a, int32_t b) const {
  return a == b || graph.inputs[size_t(a)].value->storage == graph.inputs[size_t(b)].value->storage;
}

void Units::mark(const Tensor& t) {
  const ViewSource& s = resolve(t);
  if (!is_input(s.id)) units_[size_t(unit_of(s.id))].needs_memory = true;
}

void Units::find_memory() {
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

// Elementwise units that only a part of a join reads, once an element: they are computed where that part is written.
std::vector<bool> Units::join_operands() const {
  std::vector<bool> found(units_.size(), false);
  std::vector<int> reads(units_.size(), 0), reader(units_.size(), -1), depth(units_.size(), 0);
  for (size_t i = 0; i < units_.size(); i++) {
    for (const Tensor& t : units_[i].low.reads) {
      const ViewSource& s = resolve(t);
      if (is_input(s.id)) continue;
      const auto u = size_t(unit_of(s.id));
      reads[u]++, reader[u] = int(i);
      if (t->numel().hint > units_[u].value->numel().hint) reads[u]++;  // through an expanded view: more than once
    }
  }
  for (size_t i = units_.size(); i-- > 0;) {
    const ComputeUnit& u = units_[i];
    if (u.low.kind != Lowered::kPointwise || u.needs_memory || u.checks || u.low.checks || reads[i] != 1) continue;
    const auto by = size_t(reader[i]);
    depth[i] = depth[by] + 1;
    found[i] = units_[by].low.kind == Lowered::kJoin || (found[by] && depth[i] <= budget::kJoinedChain);
  }
  return found;
}

void Units::choose_inlined() {
  std::vector<int> chain(units_.size(), 0);
  const std::vector<bool> joined = fuse_ ? join_operands() : std::vector<bool>();
  for (size_t i = 0; i < units_.size(); i++) {
    ComputeUnit& u = units_[i];
    u.inlined = fuse_ && joined[i];
    if (u.inlined) continue;
    if (!fuse_ || u.low.kind != Lowered::kPointwise || u.needs_memory || u.low.heavy || u.low.checks || !u.node ||
        is_random(*u.node) || u.low.reads.size() > 1) {
      continue;
    }
    if (!u.low.reads.empty()) {
      const ViewSource& s = resolve(u.low.reads[0]);
      if (!is_input(s.id) && units_[size_t(unit_of(s.id))].inlined) chain[i] = chain[size_t(unit_of(s.id))] + 1;
    }
    u.inlined = chain[i] < budget::kInlinedChain;
  }
}

void Units::trace(const Tensor& t, ComputeUnit& into) {
  const ViewSource& s = resolve(t);
  if (is_input(s.id)) return add_once(into.inputs, s.id);
  const ComputeUnit& from = units_[size_t(unit_of(s.id))];
  if (!from.inlined) return add_once(into.reads, unit_of(s.id));
  for (const Tensor& r : from.low.reads) trace(r, into);
}

// Writes come after what reads the old value and after all that may fail.
void Units::order_writes() {
  for (int32_t c = 0; c < size(); c++) {
    check_stop();
    if (!units_[size_t(c)].is_copy()) continue;
    int32_t target = resolve(units_[size_t(c)].value).id;
    LUTRA_CHECK(is_input(target), "a copy into what is no input");
    for (int32_t u = 0; u < size(); u++) {
      const ComputeUnit& other = units_[size_t(u)];
      if (u == c || other.inlined) continue;
      bool before = other.checks && !other.is_copy();
      for (int32_t i : other.inputs) before |= same_memory(i, target);
      if (other.is_copy()) before &= u < c;
      if (before) add_once(units_[size_t(c)].after, u);
    }
  }
}

void Units::link() {
  find_memory();
  choose_inlined();
  for (int32_t i = 0; i < size(); i++) {
    ComputeUnit& u = units_[size_t(i)];
    u.reads.clear(), u.inputs.clear(), u.after.clear();
    u.checks = u.low.checks;
    for (size_t k = u.is_copy() ? 1 : 0; k < u.low.reads.size(); k++) trace(u.low.reads[k], u);
    // What a copy writes counts as read by the others that write the same memory.
    if (u.is_copy()) add_once(u.inputs, resolve(u.value).id);
  }
  drop_dead();
  order_writes();
}

// What nothing needs and cannot fail is as good as inlined.
void Units::drop_dead() {
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

void Units::materialise(int32_t unit) {
  units_[size_t(unit)].needs_memory = true;
  link();
}

void Units::buffer_copy(int32_t copy) {
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
  // Before the copies; sources of units from there on move.
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

// A copy whose source is what another copy overwrites takes a buffer of its own.
void Units::break_swaps() {
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
