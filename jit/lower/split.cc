// Splits a reduction into parts that run on all threads. The parts belong to the reduction's order: they depend only on
// op, sizes, strides and the device's numerics policy.
#include <optional>

#include "jit/device/backend.h"
#include "jit/lower/lower.h"
#include "ops/core/half.h"

namespace lutra {
namespace {

using namespace numerics;

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

// Returns a part of a reduction that starts at `first`. `sizes` replace the size of dimension d: one size, or the
// number of chunks and the size of a chunk. The chunks are the outermost loop.
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

class Splitter {
 public:
  Splitter(const Node& n, SymFacts& facts) : n_(n), facts_(facts) {}

  std::vector<LoweredNode> split(const Lowered& low) {
    if (low.kind != Lowered::kReduce || info(n_.op).has(kContraction) || is_position(low.reduction.op)) return {};
    std::optional<Lowered> second = rows(low.reduction);
    if (!chunks(second ? *second : low) && second) parts_.push_back({&n_, nullptr, n_.results[0], std::move(*second)});
    return std::move(parts_);
  }

 private:
  // A dimension that is cut into chunks of equal length.
  struct Cut {
    size_t dim;
    SymInt chunks, length;
  };
  std::optional<Lowered> rows(const Reduction& r);
  std::vector<Cut> cuts_around(const Reduction& r) const;
  std::vector<Cut> cuts_outside(const Reduction& r) const;
  bool chunks(const Lowered& low);
  const numerics::Reductions& policy() const { return backend_of(n_.results[0]->device()).reductions; }
  Tensor add(Lowered low);
  Lowered joined(const Reduction& r, const Tensor& parts, const std::vector<bool>& reduced,
                 const std::vector<size_t>& places);
  Lowered last(const Reduction& r, const Tensor& sum, const Tensor& tail);

  const Node& n_;
  SymFacts& facts_;
  std::vector<LoweredNode> parts_;
};

// Reduces a large tensor to one value in two steps; the first step reduces all but the outermost dimension. Returns the
// second step, or nothing if there is only one.
std::optional<Lowered> Splitter::rows(const Reduction& r) {
  const Tensor in = n_.args[0].tensor();
  if (!r.kept.empty() || in->dim() < 2 || is_half(n_.results[0]->dtype)) return std::nullopt;
  if (in->numel() < SymInt(kLargeReduction)) return std::nullopt;
  const int outer = stride_order(facts_, in->strides)[0];
  Sizes dims;
  SymInt inner = 1;
  for (int d = 0; d < int(in->dim()); d++) {
    if (d == outer) continue;
    dims.push_back(d);
    inner = inner * in->sizes[size_t(d)];
  }
  if (inner < SymInt(kShortRow)) return std::nullopt;
  if (policy().deep && in->sizes[size_t(outer)] < SymInt(policy().chunks)) return std::nullopt;
  auto rows = std::make_unique<Node>(n_);
  rows->args[1] = dims;
  rows->args[2] = false;
  Tensor value = make_fake({in->sizes[size_t(outer)]}, {1}, n_.results[0]->dtype, in->device());
  value->node = rows.get();
  rows->results = {value};
  Lowered first = lower(*rows, facts_);
  parts_.push_back({rows.get(), std::move(rows), value, std::move(first)});
  Node rest(n_);
  rest.args[0] = value;
  rest.args[1] = Value();
  return lower(rest, facts_);
}

// Adds a part with a node of its own. Its value has the layout of its loops.
Tensor Splitter::add(Lowered low) {
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
  auto node = std::make_unique<Node>(n_);
  Tensor value = make_fake(sizes, strides, r.type, n_.results[0]->device());
  value->node = node.get();
  node->results = {value};
  parts_.push_back({node.get(), std::move(node), value, std::move(low)});
  return value;
}

// Returns the reduction of the chunks' results. It reduces along the chunks' `places` among the dimensions of a part.
Lowered Splitter::joined(const Reduction& r, const Tensor& parts, const std::vector<bool>& reduced,
                         const std::vector<size_t>& places) {
  Lowered whole;
  whole.kind = Lowered::kReduce;
  whole.reads = {parts};
  Reduction& w = whole.reduction;
  w.sizes = parts->sizes, w.op = r.op, w.type = r.type;
  w.reduced.assign(parts->sizes.size(), false);
  w.nest.emplace_back();
  for (size_t n = places.size(); n-- > 0;) {  // the later ones are outside
    int at = 0;
    for (size_t k = 0; k < places[n]; k++) at += !reduced[k];
    w.reduced[size_t(at)] = true;
    w.nest[0].push_back(at);
  }
  for (int k : stride_order(facts_, parts->strides)) {
    if (!w.reduced[size_t(k)]) w.kept.push_back(k);
  }
  w.rows = w.kept.empty();
  w.lanes = w.rows || policy().keeps_lanes ? r.lanes : 1;
  w.block = r.block;
  whole.element = element_function(whole, facts_, w.sizes.size(),
                                   [&](RuleContext& e, const Index& index) { return e.operand(parts, index); });
  return whole;
}

// Returns the lowering of the result: the chunks' sum, plus the rest if there is one.
Lowered Splitter::last(const Reduction& r, const Tensor& sum, const Tensor& tail) {
  Lowered low;
  low.reads = {sum};
  if (tail) low.reads.push_back(tail);
  low.element = element_function(low, facts_, n_.results[0]->sizes.size(), [&](RuleContext& e, const Index& index) {
    Index at;
    for (size_t k = 0; k < index.size(); k++) {
      if (!r.keepdim || !r.reduced[k]) at.push_back(index[k]);
    }
    int32_t v = e.operand(sum, at);
    if (tail) v = e.body.op(combining(r.op), sum->dtype, v, e.operand(tail, at));
    return e.body.cast(v, n_.results[0]->dtype);
  });
  return low;
}

// Returns the largest number of equal pieces, a product of small primes, into which a dimension with `terms` terms is
// cut. If the number is a power of two, no piece is shorter than kAroundLong / 2.
int64_t even_pieces(SymInt size, SymInt terms, int64_t most) {
  int64_t pieces = 1;
  for (bool found = true; found && pieces < most && terms >= SymInt(kAroundLong * pieces);) {
    found = false;
    for (int64_t prime : {2, 3, 5, 7}) {
      const int64_t next = pieces * prime;
      if (size < SymInt(next) || floor_div(size, next) * SymInt(next) != size) continue;
      pieces = next, found = true;
      break;
    }
  }
  return pieces;
}

// Cuts a reduction around kept dimensions, along its outermost dimension and then along the next inner one.
std::vector<Splitter::Cut> Splitter::cuts_around(const Reduction& r) const {
  const size_t outer = size_t(r.nest[0][0]), inner = size_t(r.nest.back()[0]);
  SymInt terms = 1;  // of one outer step
  for (size_t d = 0; d < r.sizes.size(); d++) {
    if (r.reduced[d] && d != outer) terms = terms * r.sizes[d];
  }
  const SymInt steps = r.sizes[outer];
  std::vector<Cut> cuts;
  if (steps >= SymInt(kAroundSteps) || (steps >= SymInt(2) && terms >= SymInt(kAroundLong))) {
    int64_t length = 1;
    while (terms < SymInt(kAroundTerms / length) || steps >= SymInt(kAroundParts * 2 * length)) length *= 2;
    if (steps >= SymInt(length * 2)) cuts.push_back({outer, floor_div(steps, length), length});
  }
  const int64_t pieces = even_pieces(r.sizes[inner], terms, kAroundParts);
  if (pieces > 1) cuts.push_back({inner, pieces, floor_div(r.sizes[inner], pieces)});
  return cuts;
}

// Cuts a large reduction with few results, along rows or down columns: along the outermost dimension. If this one is
// short, cuts it into its steps, and cuts the next dimension, too.
std::vector<Splitter::Cut> Splitter::cuts_outside(const Reduction& r) const {
  SymInt all = 1, kept = 1;
  for (size_t d = 0; d < r.sizes.size(); d++) {
    all = all * r.sizes[d];
    if (!r.reduced[d]) kept = kept * r.sizes[d];
  }
  const numerics::Reductions& policy = this->policy();
  if (all < SymInt(kLargeReduction) || kept > SymInt(r.rows ? policy.rows : policy.columns)) return {};
  int64_t chunks = r.rows ? policy.chunks : kept > SymInt(policy.narrow) ? policy.column_chunks : policy.narrow_chunks;
  const size_t first = size_t(r.nest[0][0]);
  const SymInt size = r.sizes[first];
  SymInt steps = size;
  for (size_t k = 1; policy.deep && k < r.nest[0].size(); k++) steps = steps * r.sizes[size_t(r.nest[0][k])];
  if (steps < SymInt((r.rows && kept > SymInt(1) ? kRowSteps : kChunkSteps) * chunks)) {
    // A part for each step, as rows() cuts other dtypes: there a part has the dtype of the result.
    const bool by_rows = !policy.deep && r.kept.empty() && r.nest[0].size() > 1 && is_half(n_.results[0]->dtype);
    if (!by_rows || size < SymInt(2) || floor_div(all, size) < SymInt(kShortRow)) return {};
    return {{first, size, 1}};
  }
  if (size >= SymInt(chunks)) {
    const SymInt length = floor_div(size, chunks);
    return {{first, chunks, length}};
  }
  std::vector<Cut> cuts;
  if (size >= SymInt(2))
    cuts.push_back({first, size, 1});
  else
    facts_.ask_equal(size, SymInt(1));  // otherwise its loop would be around a part of the next dimension
  for (SymInt n = 2; size >= n && chunks > 1; n = n * SymInt(2)) chunks /= 2;
  if (r.nest[0].size() > 1) {
    const size_t second = size_t(r.nest[0][1]);
    const int64_t pieces = even_pieces(r.sizes[second], steps, chunks);
    if (pieces > 1) cuts.push_back({second, pieces, floor_div(r.sizes[second], pieces)});
  }
  return cuts;
}

// Cuts a large reduction into chunks, which run on all threads, and a rest. The chunks' results are reduced, then the
// rest's is added.
bool Splitter::chunks(const Lowered& low) {
  const Reduction& r = low.reduction;
  if (r.nest.empty()) return false;
  const bool around = r.nest.size() > 1 && !r.kept.empty() && policy().around_lanes && r.lanes > 1;
  const std::vector<Cut> cuts = around ? cuts_around(r) : cuts_outside(r);
  if (cuts.empty()) return false;
  Lowered part = low;
  std::vector<size_t> places;  // the chunks' dimensions in the part
  for (const Cut& cut : cuts) {
    size_t d = cut.dim;
    for (size_t& place : places) d += place <= d, place += place > d;
    part = part_of(part, d, {cut.chunks, cut.length}, 0);
    places.push_back(d);
  }
  const SymInt done = cuts[0].chunks * cuts[0].length, rest = r.sizes[cuts[0].dim] - done;
  const std::vector<bool> reduced = part.reduction.reduced;
  Tensor parts = add(std::move(part));
  Tensor tail = facts_.equal(rest, SymInt(0)) ? Tensor() : add(part_of(low, cuts[0].dim, {rest}, done));
  Tensor sum = add(joined(r, parts, reduced, places));
  parts_.push_back({&n_, nullptr, n_.results[0], last(r, sum, tail)});
  return true;
}

}  // namespace

std::vector<LoweredNode> split_reduction(const Node& node, const Lowered& low, SymFacts& facts) {
  return Splitter(node, facts).split(low);
}

}  // namespace lutra
