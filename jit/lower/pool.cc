// Pools. pool_max, pool_tap, pool_sum and pool_take map windows of an image to values. pool_put and pool_spread map
// back to the image: each element of the image finds the windows that contain it, so nothing is scattered.
//
// Invariant: taps are visited in row-major order; few taps are unrolled, many are loops. The choice depends on the
// attributes alone, so bits do not depend on layout.
#include <array>
#include <limits>

#include "jit/lower/lower.h"
#include "ops/core/half.h"
#include "ops/core/numerics.h"

namespace lutra {
namespace {

using loop::Op;
using numerics::kUnrolledTaps;

struct Axis {
  int64_t kernel, stride, padding, dilation;
  SymInt image, map;
  // Returns how many windows an element of the image may be in.
  int64_t windows() const { return ((kernel - 1) * dilation + stride) / stride; }
};

struct Pool {
  const Node* node;
  Tensor from;  // the tensor that is read
  Tensor tap;
  Axis axes[2];
  DType type;  // of the arithmetic
};

Pool pool_of(const Node& node, bool to_map) {
  Pool p{&node, node.args[0].tensor(), {}, {}, DType::kNone};
  if (node.args.size() > 6) p.tap = node.args[6].tensor();
  const auto number = [&](size_t arg, size_t i) { return node.args[arg].as<Sizes>()[i].hint; };
  for (size_t i = 0; i < 2; i++) {
    const SymInt in = p.from->sizes[i + 2], out = node.results[0]->sizes[i + 2];
    p.axes[i] = {number(2, i), number(3, i), number(4, i), number(5, i), to_map ? in : out, to_map ? out : in};
  }
  p.type = opmath_type(p.from->dtype);
  return p;
}

// A position along one axis. inside: whether it is valid (-1: always).
struct Spot {
  Affine at;
  int32_t inside = -1;
};

int32_t both(FunctionBuilder& b, int32_t x, int32_t y) {
  if (x < 0 || y < 0) return x < 0 ? y : x;
  return b.op(Op::kAnd, DType::kBool, x, y);
}

// Clamps v into [0, n), and notes whether it was inside. above, below: false if v >= 0 or v < n is known to hold; then
// it is not tested.
Spot bounded(FunctionBuilder& b, int32_t v, SymInt n, bool above = true, bool below = true) {
  Spot s;
  if (above) {
    const int32_t zero = b.constant_int(DType::kInt64, 0);
    s.inside = b.op(Op::kGe, DType::kBool, v, zero);
    v = b.op(Op::kMax, DType::kInt64, v, zero);
  }
  if (below) {
    const int32_t last = b.int_value(n - 1);
    s.inside = both(b, s.inside, b.op(Op::kLe, DType::kBool, v, last));
    v = b.op(Op::kMin, DType::kInt64, v, last);
  }
  s.at = Affine::value(v);
  return s;
}

// Returns the position in the image of a window's tap. map: the window.
Spot image_spot(RuleContext& e, const Axis& a, const Affine& map, const Affine& tap, bool all_inside) {
  const Affine at = map * a.stride + tap * a.dilation + Affine::constant(-a.padding);
  if (all_inside) return {at};
  return bounded(e.body, e.body.index(at), a.image);
}

// Returns true if no window leaves the image. Guards on the answer, since it changes the code.
bool all_inside(const Axis& a, SymFacts& facts) {
  if (a.padding != 0) return false;
  return facts.ask_less((a.map - 1) * a.stride + a.dilation * (a.kernel - 1), a.image);
}

struct Taps {
  std::array<bool, 2> inside;
  // Returns the value under a tap. valid: whether there is one.
  int32_t read(RuleContext& e, const Pool& p, const Index& at, const Affine& kh, const Affine& kw,
               int32_t& valid) const {
    const Spot h = image_spot(e, p.axes[0], at[2], kh, inside[0]), w = image_spot(e, p.axes[1], at[3], kw, inside[1]);
    valid = both(e.body, h.inside, w.inside);
    return e.body.cast(e.operand(p.from, {at[0], at[1], h.at, w.at}), p.type);
  }
};

// -- windows to a map

int32_t lowest(FunctionBuilder& b, DType t) {
  if (is_float(t)) return b.constant(t, -std::numeric_limits<double>::infinity());
  return b.constant_int(t, least_integer(t));
}

// As in PyTorch: a larger value or a NaN replaces the best one so far. The first element inside is the initial one.
struct Best {
  int32_t value = -1, tap = -1, found = -1;
};
void take(FunctionBuilder& b, Best& best, DType t, int32_t value, int32_t tap, int32_t valid) {
  if (best.value < 0) {
    best = {valid < 0 ? value : b.op(Op::kSelect, t, valid, value, lowest(b, t)), tap, valid};
    return;
  }
  int32_t wins = b.op(Op::kGt, DType::kBool, value, best.value);
  if (is_float(t)) wins = b.op(Op::kOr, DType::kBool, wins, b.op(Op::kNe, DType::kBool, value, value));
  if (best.found >= 0) wins = b.op(Op::kOr, DType::kBool, wins, b.op(Op::kNot, DType::kBool, best.found));
  if (valid >= 0) wins = b.op(Op::kAnd, DType::kBool, wins, valid);
  best.value = b.op(Op::kSelect, t, wins, value, best.value);
  best.tap = b.op(Op::kSelect, DType::kInt32, wins, tap, best.tap);
  if (best.found >= 0) best.found = valid < 0 ? -1 : b.op(Op::kOr, DType::kBool, best.found, valid);
}

int32_t emit_max(const Pool& p, const Taps& taps, RuleContext& e, const Index& at) {
  Best best;
  for (int64_t kh = 0; kh < p.axes[0].kernel; kh++) {
    for (int64_t kw = 0; kw < p.axes[1].kernel; kw++) {
      int32_t valid;
      const int32_t v = taps.read(e, p, at, Affine::constant(kh), Affine::constant(kw), valid);
      take(e.body, best, p.type, v, e.body.constant_int(DType::kInt32, kh * p.axes[1].kernel + kw), valid);
    }
  }
  const DType result = p.node->results[0]->dtype;
  return e.body.cast(p.node->op == OpId::pool_tap ? best.tap : best.value, result);
}

int32_t emit_sum(const Pool& p, const Taps& taps, RuleContext& e, const Index& at) {
  int32_t total = -1;
  for (int64_t kh = 0; kh < p.axes[0].kernel; kh++) {
    for (int64_t kw = 0; kw < p.axes[1].kernel; kw++) {
      int32_t valid;
      int32_t v = taps.read(e, p, at, Affine::constant(kh), Affine::constant(kw), valid);
      if (valid >= 0) v = e.body.op(Op::kSelect, p.type, valid, v, e.body.constant(p.type, 0));
      total = total < 0 ? v : e.body.op(Op::kAdd, p.type, total, v);
    }
  }
  return e.body.cast(total, p.node->results[0]->dtype);
}

// Makes l a reduction over two further dimensions, innermost and in order.
void as_reduction(Lowered& l, const Tensor& result, SymFacts& facts, int64_t h, int64_t w, loop::RedOp op, DType type) {
  l.kind = Lowered::kReduce;
  Reduction& r = l.reduction;
  r.sizes = result->sizes;
  r.sizes.push_back(h), r.sizes.push_back(w);
  r.reduced = {false, false, false, false, true, true};
  r.kept = stride_order(facts, result->strides);
  r.nest = {{4}, {5}};
  r.op = op;
  r.type = type;
}

}  // namespace

Lowered lower_pool_map(const Node& node, SymFacts& facts) {
  Lowered l;
  const Pool p = pool_of(node, true);
  l.reads = {p.from};
  l.heavy = l.window = true;
  const Taps taps{{all_inside(p.axes[0], facts), all_inside(p.axes[1], facts)}};
  const bool sums = node.op == OpId::pool_sum;
  const int64_t kh = p.axes[0].kernel, kw = p.axes[1].kernel;
  if (kh * kw <= kUnrolledTaps) {
    l.element = element_function(l, facts, 4, [&](RuleContext& e, const Index& at) {
      return sums ? emit_sum(p, taps, e, at) : emit_max(p, taps, e, at);
    });
    return l;
  }
  const loop::RedOp op = sums                        ? loop::RedOp::kSum
                         : node.op == OpId::pool_tap ? loop::RedOp::kArgMax
                                                     : loop::RedOp::kMax;
  as_reduction(l, node.results[0], facts, kh, kw, op, p.type);
  l.element = element_function(l, facts, 6, [&](RuleContext& e, const Index& at) {
    int32_t valid;
    const int32_t v = taps.read(e, p, at, at[4], at[5], valid);
    if (valid < 0) return v;
    return e.body.op(Op::kSelect, p.type, valid, v, sums ? e.body.constant(p.type, 0) : lowest(e.body, p.type));
  });
  return l;
}

// Reads one element for each result, at the place that its tap gives.
Lowered lower_pool_take(const Node& node, SymFacts& facts) {
  Lowered l;
  const Pool p = pool_of(node, true);
  l.reads = {p.from, p.tap};
  l.heavy = true;
  l.element = element_function(l, facts, 4, [&](RuleContext& e, const Index& at) {
    FunctionBuilder& b = e.body;
    const int32_t tap = b.cast(e.operand(p.tap, at), DType::kInt64);
    const int32_t wide = b.constant_int(DType::kInt64, p.axes[1].kernel);
    const int32_t kh = b.op(Op::kFloorDiv, DType::kInt64, tap, wide);
    const int32_t kw = b.op(Op::kSub, DType::kInt64, tap, b.op(Op::kMul, DType::kInt64, kh, wide));
    const auto position = [&](const Axis& a, const Affine& map, int32_t k) {
      const int32_t origin = b.index(map * a.stride + Affine::constant(-a.padding));
      const int32_t step = b.op(Op::kMul, DType::kInt64, k, b.constant_int(DType::kInt64, a.dilation));
      return bounded(b, b.op(Op::kAdd, DType::kInt64, origin, step), a.image).at;
    };
    return e.operand(p.from, {at[0], at[1], position(p.axes[0], at[2], kh), position(p.axes[1], at[3], kw)});
  });
  return l;
}

namespace {

// -- a map back to the image

// The j-th window, counted backwards, that may contain the element: its position in the map, and the tap at which the
// element is. j is `number` if that is not negative. reaches: the map's last window ends where the image does.
struct Window {
  Spot map;
  int32_t tap;
};
struct Back {
  Affine j;
  int64_t number = -1;
};
Window window_of(RuleContext& e, const Axis& a, const Affine& image, const Back& back, bool reaches) {
  FunctionBuilder& b = e.body;
  const auto number = [&](int64_t v) { return b.constant_int(DType::kInt64, v); };
  const int32_t x = b.index(image + Affine::constant(a.padding));
  int32_t w = a.stride == 1 ? x : b.op(Op::kFloorDiv, DType::kInt64, x, number(a.stride));
  if (back.number) w = b.op(Op::kSub, DType::kInt64, w, back.number < 0 ? b.index(back.j) : number(back.number));
  const int32_t inner = b.op(Op::kSub, DType::kInt64, x, b.op(Op::kMul, DType::kInt64, w, number(a.stride)));
  Window found{bounded(b, w, a.map, back.number != 0, !reaches), inner};
  if (a.dilation > 1) {
    found.tap = b.op(Op::kFloorDiv, DType::kInt64, inner, number(a.dilation));
    const int32_t again = b.op(Op::kMul, DType::kInt64, found.tap, number(a.dilation));
    found.map.inside = both(b, found.map.inside, b.op(Op::kEq, DType::kBool, again, inner));
  }
  const bool always = a.dilation == 1 && back.number >= 0 && (back.number + 1) * a.stride <= a.kernel;
  if (!always) found.map.inside = both(b, found.map.inside, b.op(Op::kLt, DType::kBool, found.tap, number(a.kernel)));
  return found;
}

// Returns the contribution of the j-th windows before the last (jh, jw) to the element at an index of the image.
int32_t share(const Pool& p, const std::array<bool, 2>& reach, RuleContext& e, const Index& at, const Back& jh,
              const Back& jw) {
  FunctionBuilder& b = e.body;
  const Window h = window_of(e, p.axes[0], at[2], jh, reach[0]), w = window_of(e, p.axes[1], at[3], jw, reach[1]);
  int32_t valid = both(b, h.map.inside, w.map.inside);
  const Index from = {at[0], at[1], h.map.at, w.map.at};
  if (p.tap) {
    const int32_t row = b.op(Op::kMul, DType::kInt64, h.tap, b.constant_int(DType::kInt64, p.axes[1].kernel));
    const int32_t own = b.cast(b.op(Op::kAdd, DType::kInt64, row, w.tap), DType::kInt32);
    valid = both(b, b.op(Op::kEq, DType::kBool, e.operand(p.tap, from), own), valid);
  }
  const int32_t v = b.cast(e.operand(p.from, from), p.type);
  return valid < 0 ? v : b.op(Op::kSelect, p.type, valid, v, b.constant(p.type, 0));
}

}  // namespace

Lowered lower_pool_image(const Node& node, SymFacts& facts) {
  Lowered l;
  const Pool p = pool_of(node, false);
  l.reads = {p.from};
  if (p.tap) l.reads.push_back(p.tap);
  l.heavy = l.window = true;
  const int64_t mh = p.axes[0].windows(), mw = p.axes[1].windows();
  // True if every element lies before the end of the last window's step. Guards on the answer, since it changes the
  // code.
  std::array<bool, 2> reach;
  for (size_t i = 0; i < 2; i++) {
    const Axis& a = p.axes[i];
    reach[i] = facts.ask_less(a.image + (a.padding - 1), a.map * a.stride);
  }
  if (mh * mw > kUnrolledTaps) {
    as_reduction(l, node.results[0], facts, mh, mw, loop::RedOp::kSum, p.type);
    l.element = element_function(
        l, facts, 6, [&](RuleContext& e, const Index& at) { return share(p, reach, e, at, {at[4]}, {at[5]}); });
    return l;
  }
  l.element = element_function(l, facts, 4, [&](RuleContext& e, const Index& at) {
    int32_t total = -1;
    for (int64_t jh = 0; jh < mh; jh++) {
      for (int64_t jw = 0; jw < mw; jw++) {
        const int32_t v = share(p, reach, e, at, {{}, jh}, {{}, jw});
        total = total < 0 ? v : e.body.op(Op::kAdd, p.type, total, v);
      }
    }
    return e.body.cast(total, node.results[0]->dtype);
  });
  return l;
}

}  // namespace lutra
