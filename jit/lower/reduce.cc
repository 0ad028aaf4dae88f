// Reductions: chooses the loops, their order and the number of partial results. These depend only on the op, the sizes,
// the operand's eager strides and the device's numerics policy. So fusion never changes a bit.
#include <algorithm>

#include "jit/device/backend.h"
#include "jit/lower/lower.h"
#include "ops/core/half.h"
#include "ops/meta/spatial.h"

namespace lutra {
namespace {

struct ReduceRow {
  OpId op;
  loop::RedOp red;
};
const ReduceRow kRows[] = {
    {OpId::sum, loop::RedOp::kSum},       {OpId::amax, loop::RedOp::kMax},      {OpId::amin, loop::RedOp::kMin},
    {OpId::argmax, loop::RedOp::kArgMax}, {OpId::argmin, loop::RedOp::kArgMin}, {OpId::any, loop::RedOp::kAny},
    {OpId::all, loop::RedOp::kAll},       {OpId::prod, loop::RedOp::kProd},
};

// Returns which dimensions are reduced. None means all of them; {} does, too, if empty_is_all.
std::vector<bool> reduced_dims(const Value& dims, int64_t rank, bool empty_is_all) {
  std::vector<bool> reduced(size_t(rank), true);
  if (dims.is_none() || (empty_is_all && dims.is<Sizes>() && dims.as<Sizes>().empty())) return reduced;
  reduced.assign(size_t(rank), false);
  auto mark = [&](int64_t d) {
    if (rank) reduced[size_t(wrap_dim(d, rank))] = true;
  };
  if (dims.is<Sizes>()) {
    for (SymInt d : dims.as<Sizes>()) mark(d.hint);
  } else {
    mark(dims.sym_int().hint);
  }
  return reduced;
}

// Returns the strides that determine the order.
Sizes ordering_strides(const Node& node, SymFacts& facts) {
  const Tensor in = node.args[0].tensor();
  if (!is_by_channel(node)) return in->strides;
  // Asks about a stride with another hint first: its answer settles the question, without equations that help nobody
  // later.
  const Sizes last = channels_last_strides(in->sizes);
  for (size_t d = 0; d < 4; d++) {
    if (in->strides[d].hint != last[d].hint && !facts.ask_equal(in->strides[d], last[d])) return in->strides;
  }
  for (size_t d = 0; d < 4; d++) {
    if (!facts.ask_equal(in->strides[d], last[d])) return in->strides;
  }
  return contiguous_strides(in->sizes);
}

// Nests the reduced dimensions in `order`. Neighbours that are adjacent by both kinds of strides become one loop.
void build_nest(Reduction& r, const Sizes& ordering, const Sizes& strides, const std::vector<int>& order,
                SymFacts& facts) {
  int last = -1;
  for (int d : order) {
    if (!r.reduced[size_t(d)]) continue;
    const auto are_one = [&](const Sizes& s) {
      return facts.ask_equal(s[size_t(last)], s[size_t(d)] * r.sizes[size_t(d)]);
    };
    const bool joins = last >= 0 && are_one(ordering) && are_one(strides);
    if (!joins) r.nest.emplace_back();
    r.nest.back().push_back(d);
    last = d;
  }
}

DType accumulator_type(loop::RedOp op, DType input, DType result) {
  if (op == loop::RedOp::kAny || op == loop::RedOp::kAll) return DType::kBool;
  if (is_position(op)) return is_bool(input) ? DType::kUInt8 : input;
  return opmath_type(result);
}

}  // namespace

bool is_reduction(const Node& node) {
  return std::any_of(std::begin(kRows), std::end(kRows), [&](const ReduceRow& r) { return r.op == node.op; });
}

bool is_by_channel(const Node& node) {
  const bool reduces = std::any_of(std::begin(kRows), std::end(kRows),
                                   [&](const ReduceRow& r) { return r.op == node.op && !is_position(r.red); });
  if (!reduces || !node.args[0].is<Tensor>()) return false;
  const Tensor in = node.args[0].tensor();
  if (in->dim() != 4 || !backend_of(in->device()).reductions.around_lanes) return false;
  return reduced_dims(node.args[1], 4, true) == std::vector<bool>{true, false, true, true};
}

Lowered lower_reduce(const Node& node, SymFacts& facts) {
  Lowered l;
  l.kind = Lowered::kReduce;
  Tensor in = node.args[0].tensor();
  l.reads = {in};
  Reduction& r = l.reduction;
  for (const ReduceRow& row : kRows) {
    if (row.op == node.op) r.op = row.red;
  }
  r.sizes = in->sizes;
  r.reduced = reduced_dims(node.args[1], in->dim(), node.op != OpId::any && node.op != OpId::all);
  r.keepdim = node.args[2].as<bool>();
  r.type = accumulator_type(r.op, in->dtype, node.results[0]->dtype);
  if (is_bool(r.type))
    r.op = r.op == loop::RedOp::kMax || r.op == loop::RedOp::kSum    ? loop::RedOp::kAny
           : r.op == loop::RedOp::kMin || r.op == loop::RedOp::kProd ? loop::RedOp::kAll
                                                                     : r.op;
  const Sizes strides = ordering_strides(node, facts);
  std::vector<int> order = stride_order(facts, in->strides);
  for (int d : order) {
    if (!r.reduced[size_t(d)]) r.kept.push_back(d);
  }
  const numerics::Reductions& policy = backend_of(in->device()).reductions;
  if (r.op == loop::RedOp::kSum && r.type == DType::kFloat32) r.block = policy.block;
  r.rows = !order.empty() && r.reduced[size_t(order.back())];
  if (!order.empty()) r.lanes = r.rows ? policy.row_lanes : policy.column_lanes;
  if (is_position(r.op)) {
    // positions are counted in row-major order
    for (size_t d = 0; d < order.size(); d++) order[d] = int(d);
  } else {
    order = stride_order(facts, strides);
  }
  build_nest(r, strides, in->strides, order, facts);
  const bool around = r.nest.size() > 1 && !r.kept.empty() && !is_position(r.op);
  if (around && policy.around_lanes) r.lanes = policy.around_lanes;
  if (r.nest.empty() && is_position(r.op)) {
    // The position of a single element is 0.
    l.kind = Lowered::kPointwise;
    l.reads = {};
    l.element = element_function(l, facts, size_t(node.results[0]->dim()),
                                 [](RuleContext& e, const Index&) { return e.body.constant_int(DType::kInt64, 0); });
    return l;
  }
  l.element = element_function(l, facts, r.sizes.size(), [&](RuleContext& e, const Index& index) {
    return e.body.cast(e.operand(in, index), r.type);
  });
  return l;
}

}  // namespace lutra
