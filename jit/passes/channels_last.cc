// channels_last: lays out images with their channels innermost if only convolutions, pools, pointwise ops and sums by
// channel read them. So none of these ops reorders its operands. The bits do not change: these ops compute the same in
// any layout.
//
// Invariants:
// 1. A value keeps its eager strides if it leaves the graph, is viewed, written or reduced. (A reduction by channel is
//    allowed on devices where its order does not depend on the layout.) A pool's result gets a copy with the eager
//    strides, since a pool runs along the channels of its operand.
// 2. A value gets the new layout only in three cases: a convolution makes it; a pool makes it, and a convolution (or
//    another pool, if it has many channels) reads values computed from it; a pool or a pointwise op makes it from
//    values in the new layout.
// 3. A convolution's result keeps its layout if it reaches a reduction or an op like cat, and no other convolution.
//    Strided reads in such kernels take longer than reordering the convolution's result.
#include <unordered_set>

#include "jit/device/backend.h"
#include "jit/lower/lower.h"
#include "jit/passes/passes.h"
#include "ops/defs/each_tensor.h"
#include "ops/meta/spatial.h"

namespace lutra {
namespace {

bool is_spatial(const Node& n) { return info(n.op).has(kSpatial); }

bool is_free(const Node& n) { return is_spatial(n) || is_pointwise(n); }

// Returns true for four dimensions in row-major order. Compares expressions, so it adds no guards.
bool is_row_major_image(const Tensor& t) {
  if (t->dim() != 4) return false;
  const Sizes want = contiguous_strides(t->sizes);
  for (size_t d = 0; d < 4; d++) {
    if (want[d].expr != t->strides[d].expr || want[d].hint != t->strides[d].hint) return false;
  }
  return true;
}

using TensorSet = std::unordered_set<const TensorImpl*>;

// Returns the values whose layout some reader depends on.
TensorSet fixed_values(const Graph& g) {
  TensorSet fixed;
  const auto fix = [&](const Tensor& t) { fixed.insert(t.get()); };
  each_tensor(g.outputs, fix);
  for (const auto& n : g.nodes) {
    if (is_free(*n) || is_by_channel(*n)) continue;
    each_tensor(n->args, fix);
  }
  return fixed;
}

// A pool gains from this many channels: the number of elements of the widest vector.
constexpr int64_t kManyChannels = 16;

// Returns the values that convolutions read, or pools if the values have many channels. A read counts through pools and
// pointwise ops.
TensorSet convolved_values(const Graph& g) {
  TensorSet convolved;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = *g.nodes[i];
    bool leads = is_spatial(n) && info(n.op).has(kContraction), pools = is_spatial(n);
    for (const Tensor& r : n.results) leads |= is_free(n) && convolved.count(r.get());
    each_tensor(n.args, [&](const Tensor& t) {
      const bool many = pools && t->dim() == 4 && t->sizes[1].hint >= kManyChannels;
      if (leads || many) convolved.insert(t.get());
    });
  }
  return convolved;
}

// Returns the values that a reduction or an op like cat reads. A read counts through free ops and views. Returns none
// for devices where sums by channel do not depend on the layout.
TensorSet walked_values(const Graph& g) {
  TensorSet walked;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = *g.nodes[i];
    bool walks = is_reduction(n) || (info(n.op).has(kMoves) && !is_free(n) && !info(n.op).has(kView));
    for (const Tensor& r : n.results) walks |= (is_free(n) || info(n.op).has(kView)) && walked.count(r.get());
    each_tensor(n.args, [&](const Tensor& t) {
      if (walks && !backend_of(t->device()).reductions.around_lanes) walked.insert(t.get());
    });
  }
  return walked;
}

struct LayoutChoice {
  TensorSet last;    // values with channels innermost
  TensorSet copied;  // those of `last` that other readers see as a row-major copy
};

LayoutChoice choose(const Graph& g) {
  const TensorSet fixed = fixed_values(g), convolved = convolved_values(g), walked = walked_values(g);
  LayoutChoice choice;
  for (const auto& n : g.nodes) {
    if (!is_free(*n) || n->results.size() != 1) continue;
    const Tensor& r = n->results[0];
    if (!is_row_major_image(r)) continue;
    bool operand = false;
    each_tensor(n->args, [&](const Tensor& t) { operand |= choice.last.count(t.get()) > 0; });
    const bool pools = n->op == OpId::pool_max || n->op == OpId::pool_sum;
    if (fixed.count(r.get())) {
      if (!pools || !operand) continue;
      choice.copied.insert(r.get());
    }
    const bool makes = info(n->op).has(kContraction) && !walked.count(r.get());
    const bool leads = is_spatial(*n) && (makes || convolved.count(r.get()));
    if (operand || leads) choice.last.insert(r.get());
  }
  return choice;
}

}  // namespace

GraphPtr channels_last(const Graph& g) {
  SymScope symbols(g.env.get());
  const LayoutChoice choice = choose(g);
  std::unordered_map<const TensorImpl*, Tensor> inner;  // by copy: its original
  return rebuild(g, [&](Rebuilder& b, const Node& n, Args& args, Results& results) {
    if (is_free(n)) {
      for (Value& v : args) {
        auto it = v.is<Tensor>() && v.tensor() ? inner.find(v.tensor().get()) : inner.end();
        if (it != inner.end()) v = it->second;
      }
    }
    if (n.inplace || info(n.op).has(kView) || info(n.op).has(kMutates)) return false;
    results = b.copy(n, args);
    for (size_t i = 0; i < results.size(); i++) {
      const Tensor& old = n.results[i];
      results[i]->strides = choice.last.count(old.get()) ? channels_last_strides(old->sizes) : old->strides;
      if (!choice.copied.count(old.get())) continue;
      Args copy = {results[i], std::string("contiguous_format")};
      const Tensor made = b.recorder.call(OpId::clone, copy)[0];
      inner[made.get()] = results[i];
      results[i] = made;
    }
    return true;
  });
}

}  // namespace lutra
