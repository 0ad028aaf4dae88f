// One element of a pointwise node, as its rule sees it: rules take operands in a type and write instructions.
#pragma once
#include "jit/lower/lower.h"
#include "ops/core/half.h"

namespace lutra {

struct Element {
  const Node& node;
  RuleContext& e;
  const Index& index;

  FunctionBuilder& body() { return e.body; }
  const Tensor& result() const { return node.results[0]; }
  // The type that the op computes in. The result is rounded to its dtype once, at the end.
  DType type() const { return opmath_type(result()->dtype); }
  bool has(size_t k) const { return k < node.args.size() && !node.args[k].is_none(); }
  bool is_tensor(size_t k) const { return node.args[k].is<Tensor>(); }
  DType type_of(size_t k) const { return node.args[k].tensor()->dtype; }

  int32_t scalar(const Scalar& s, DType to);
  int32_t tensor(size_t k) {
    Tensor t = node.args[k].tensor();
    return e.operand(t, broadcast_index(e.facts, index, result()->sizes, t->sizes));
  }
  int32_t unrounded_arg(size_t k, DType to) {
    if (is_tensor(k)) return body().cast(tensor(k), to);
    return scalar(node.args[k].as<Scalar>(), to);
  }
  // If the result is of a half type, rounds the operand to it before the op computes in float32.
  int32_t arg(size_t k, DType to) {
    if (!is_half(result()->dtype) || to != type()) return unrounded_arg(k, to);
    return body().cast(unrounded_arg(k, result()->dtype), to);
  }
  int32_t op(loop::Op op, DType t, int32_t a, int32_t b = -1, int32_t c = -1) { return body().op(op, t, a, b, c); }
  int32_t number(DType t, double v) { return body().constant(t, v); }
  // Returns the row-major position of the element in the result; random numbers depend on it.
  int32_t position() { return body().index(at_strides(index, contiguous_strides(result()->sizes), 0)); }
};

// The rules for the rows of ops.def that are lowered as pointwise.
#define OP(name, ...) int32_t pointwise_##name(Element& x);
#include "ops/defs/ops.def"
#undef OP

// Converts v, of a tensor or number of dtype `from`, to its carrier in `to`. One of the two is a stored dtype
// (stored.cc).
int32_t converted(Element& x, int32_t v, DType from, DType to);
// Cuts off the fraction of v, which has float type t.
int32_t truncated(Element& x, DType t, int32_t v);

}  // namespace lutra
