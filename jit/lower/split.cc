// A reduction in; the parts that it is cut into, so that it runs on all threads, out. Which parts there are is a part
// of the reduction's order: a function of op, sizes, strides and the device's numerics policy.
#include <optional>

#include "jit/device/backend.h"
#include "jit/lower/lower.h"
#include "ops/core/half.h"

namespace lutra {
namespace {

using numerics::kChunkSteps, numerics::kLargeReduction, numerics::kShortRow;

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

bool is_position(loop::RedOp op) { return op == loop::RedOp::kArgMax || op == loop::RedOp::kArgMin; }

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
  std::optional<Lowered> rows(const Reduction& r);
  bool chunks(const Lowered& low);
  const numerics::Reductions& policy() const { return backend_of(n_.results[0]->device()).reductions; }
  Tensor add(Lowered low);
  Lowered joined(const Reduction& r, const Tensor& parts, size_t d);
  Lowered last(const Reduction& r, const Tensor& sum, const Tensor& tail);

  const Node& n_;
  SymFacts& facts_;
  std::vector<LoweredNode> parts_;
};

// A large tensor is reduced to one value in two steps, of which the first reduces all but the outermost dimension:
// the second is returned, where there are two.
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

// A part with a node of its own; its value is laid out as its loops go.
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

// The reduction of the chunks' results, of which there is one more dimension, before dimension d of the domain.
Lowered Splitter::joined(const Reduction& r, const Tensor& parts, size_t d) {
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
  for (int k : stride_order(facts_, parts->strides)) {
    if (k != at) w.kept.push_back(k);
  }
  w.rows = w.kept.empty();
  w.lanes = w.rows || policy().keeps_lanes ? r.lanes : 1;
  w.block = r.block;
  whole.element = element_function(whole, facts_, w.sizes.size(),
                                   [&](Emitter& e, const Index& index) { return e.operand(parts, index); });
  return whole;
}

// The result: that of the chunks, and of the rest where there is one.
Lowered Splitter::last(const Reduction& r, const Tensor& sum, const Tensor& tail) {
  Lowered low;
  low.reads = {sum};
  if (tail) low.reads.push_back(tail);
  low.element = element_function(low, facts_, n_.results[0]->sizes.size(), [&](Emitter& e, const Index& index) {
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

// A large reduction with few results is cut along its outermost dimension into chunks, which run on all threads, and a
// rest; then the chunks' results are reduced and the rest's is added.
bool Splitter::chunks(const Lowered& low) {
  const Reduction& r = low.reduction;
  if (r.nest.empty()) return false;
  SymInt all = 1, kept = 1;
  for (size_t d = 0; d < r.sizes.size(); d++) {
    all = all * r.sizes[d];
    if (!r.reduced[d]) kept = kept * r.sizes[d];
  }
  const size_t d = size_t(r.nest[0][0]);
  const numerics::Reductions& cut = policy();
  const int64_t chunks = r.rows ? cut.chunks : cut.column_chunks, most = r.rows ? 1 : cut.columns;
  if (all < SymInt(kLargeReduction) || kept > SymInt(most) || r.sizes[d] < SymInt(kChunkSteps * chunks)) return false;
  const SymInt length = floor_div(r.sizes[d], chunks), rest = r.sizes[d] - length * chunks;
  Tensor parts = add(part_of(low, d, {SymInt(chunks), length}, 0));
  Tensor tail = rest.is_constant() && rest.hint == 0 ? Tensor() : add(part_of(low, d, {rest}, length * chunks));
  Tensor sum = add(joined(r, parts, d));
  parts_.push_back({&n_, nullptr, n_.results[0], last(r, sum, tail)});
  return true;
}

}  // namespace

std::vector<LoweredNode> split_reduction(const Node& node, const Lowered& low, SymFacts& facts) {
  return Splitter(node, facts).split(low);
}

}  // namespace lutra
