// Decomposes scaled_dot_product_attention: into the attention kernel if it accepts the operands, else into the formula.
#include <cmath>
#include <limits>

#include "ops/core/half.h"
#include "ops/decompose/emit.h"
#include "ops/meta/rules.h"

namespace lutra {

// Returns the given scale, or 1 / sqrt(the query's features).
Scalar attention_scale(const Tensor& q, const Value& scale) {
  if (!scale.is_none()) return scale.as<Scalar>();
  return Scalar(1 / std::sqrt(double(q->sizes.back().guard())));
}

// Repeats each head of t (..., shared heads, position, feature) for the heads that it serves.
Tensor repeat_heads(const Tensor& t, SymInt heads) {
  Sizes to = t->sizes, five = t->sizes;
  const size_t at = t->sizes.size() - 3;
  if (to[at].hint == heads.hint && to[at] == heads) return t;
  SymInt each = floor_div(heads, to[at]);
  to[at] = heads;
  five.push_back(five.back());
  five[at + 2] = five[at + 1], five[at + 1] = each;
  return reshape(expand(unsqueeze(t, int_arg(int64_t(at) + 1)), five), to);
}

// Returns softmax(q k^T * scale + mask) over the last dimension. A query that sees no key has weights of zero.
Tensor attention_weights(const Tensor& q, const Tensor& k, const Value& mask, bool causal, const Value& scale) {
  Tensor s = op1(OpId::matmul, {mul(q, attention_scale(q, scale)), transpose(k, int_arg(-2), int_arg(-1))});
  const double hidden = -std::numeric_limits<double>::infinity();
  if (causal) {
    const auto count = [&](size_t from_end) { return counting(s->sizes[s->sizes.size() - from_end], q); };
    s = where(ge(unsqueeze(count(2), int_arg(1)), count(1)), s, Scalar(hidden));
  }
  if (mask.is_none()) return op1(OpId::softmax, {s, int_arg(-1)});
  const Tensor& m = mask.as<Tensor>();
  s = is_bool(m->dtype) ? where(m, s, Scalar(hidden)) : add(s, to_dtype(m, s->dtype));
  if (s->sizes.back() == 0) return s;
  Tensor blind = eq(op1(OpId::amax, {op1(OpId::detach, {s}), Sizes{-1}, true}), Scalar(hidden));
  return where(blind, Scalar(0.0), op1(OpId::softmax, {where(blind, Scalar(0.0), s), int_arg(-1)}));
}

namespace {

struct Call {
  Tensor q, k, v;
  Value mask, scale;
  Scalar dropout;
  bool causal, gqa;
};

bool equal(SymInt a, SymInt b) { return a.hint == b.hint && a == b; }

bool same_lead(const Tensor& a, const Tensor& b, size_t count) {
  if (a->sizes.size() != b->sizes.size()) return false;
  for (size_t d = 0; d < count; d++) {
    if (!equal(a->sizes[d], b->sizes[d])) return false;
  }
  return true;
}

// Returns whether the device has a kernel for the dtypes.
bool has_kernel(const Call& c) {
  if (c.q->dtype == DType::kFloat32) return true;
  return is_half(c.q->dtype) && c.q->device().type == DeviceType::kCUDA && c.q->sizes.back().guard() <= 256 &&
         c.v->sizes.back().guard() <= 256;
}

// Returns whether the kernel accepts the call: no dropout, no mask to be trained, and no broadcasting among q, k and v
// except of heads.
bool takes_kernel(const Call& c) {
  if (!has_kernel(c) || !scalar_ask(SymCmp::kEq, c.dropout, Scalar(0.0))) return false;
  if (!c.mask.is_none() && c.mask.as<Tensor>()->requires_grad && grad_enabled()) return false;
  const size_t dims = c.q->sizes.size(), lead = dims - 2;
  const size_t compared = c.gqa ? lead - 1 : lead;
  if (!same_lead(c.q, c.k, compared) || !same_lead(c.q, c.v, compared)) return false;
  return !c.gqa || equal(c.k->sizes[lead - 1], c.v->sizes[lead - 1]);
}

// Returns t in four dimensions: adds leading ones of size 1, or joins leading ones.
Tensor in_four(Tensor t) {
  while (t->sizes.size() < 3) t = unsqueeze(t, int_arg(0));
  if (t->sizes.size() == 3) return unsqueeze(t, int_arg(1));
  if (t->sizes.size() == 4) return t;
  const size_t n = t->sizes.size();
  SymInt batch = 1;
  for (size_t d = 0; d + 3 < n; d++) batch = batch * t->sizes[d];
  return reshape(t, Sizes{batch, t->sizes[n - 3], t->sizes[n - 2], t->sizes[n - 1]});
}

Tensor by_kernel(const Call& c) {
  Value mask;
  if (!c.mask.is_none()) {
    Tensor m = c.mask.as<Tensor>();
    if (!is_bool(m->dtype)) m = to_dtype(m, DType::kFloat32);
    Sizes scores = c.q->sizes;
    scores.back() = c.k->sizes[c.k->sizes.size() - 2];
    mask = in_four(same_sizes(m->sizes, scores) ? m : expand(m, scores));
  }
  Tensor out = call_op(OpId::flash_attention, {in_four(c.q), in_four(c.k), in_four(c.v), mask, c.causal, c.scale})[0];
  if (c.q->sizes.size() == 4) return out;
  Sizes sizes = c.q->sizes;
  sizes.back() = c.v->sizes.back();
  return reshape(out, sizes);
}

Tensor dropped(const Tensor& p, const Scalar& rate) {
  if (scalar_ask(SymCmp::kEq, rate, Scalar(0.0))) return p;
  if (scalar_ask(SymCmp::kEq, rate, Scalar(1.0))) return mul(p, Scalar(0.0));
  Tensor kept = ge(op1(OpId::rand, {p->sizes, p->dtype, p->device()}), rate);
  Scalar factor = scalar_binary(SymOp::kNDiv, Scalar(1.0), scalar_binary(SymOp::kNSub, Scalar(1.0), rate));
  return mul(mul(p, to_dtype(kept, p->dtype)), factor);
}

Tensor by_formula(const Call& c) {
  Tensor k = c.k, v = c.v;
  if (c.gqa) {
    const SymInt heads = c.q->sizes[c.q->sizes.size() - 3];
    k = repeat_heads(k, heads), v = repeat_heads(v, heads);
  }
  return op1(OpId::matmul, {dropped(attention_weights(c.q, k, c.mask, c.causal, c.scale), c.dropout), v});
}

}  // namespace

// Half types are computed in float32 and rounded once, by a kernel that accepts them or on float32 copies.
Results decompose_scaled_dot_product_attention(const Args& args) {
  const OpId op = OpId::scaled_dot_product_attention;
  check_attention(op, args);
  const DType type = args[0].as<Tensor>()->dtype;
  const auto call_in = [&](DType t) {
    const auto in = [&](size_t i) { return to_dtype(args[i].tensor(), t); };
    return Call{in(0), in(1), in(2), args[3], args[6], args[4].as<Scalar>(), args[5].as<bool>(), args[7].as<bool>()};
  };
  Call c = call_in(type);
  if (takes_kernel(c)) return {by_kernel(c)};
  if (!is_half(type)) return {by_formula(c)};
  c = call_in(DType::kFloat32);
  return {to_dtype(takes_kernel(c) ? by_kernel(c) : by_formula(c), type)};
}

}  // namespace lutra
