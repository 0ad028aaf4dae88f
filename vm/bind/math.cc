// Functions of values that are made of other ops: overloads of max and min, norms, comparisons of whole tensors.
#include <cmath>

#include "vm/bind/composite.h"
#include "vm/bind/element.h"

namespace lutra {

Tensor to_dtype(const Tensor& t, DType dtype) { return t->dtype == dtype ? t : op1(OpId::to_dtype, {t, dtype}); }

void need_data(const char* fn, const Tensor& t) {
  if (t->is_fake()) throw NeedsData(str(fn, ": reads the elements of a tensor"));
}

namespace {

Tensor binary(OpId op, const Value& a, const Value& b) { return call_op(op, {a, b})[0]; }

template <OpId kOp>
LuaResults op_of(Args& a) {
  LuaResults out;
  for (const Tensor& t : call_op(kOp, a)) out.push_back(t);
  return out;
}

bool truth(const char* fn, const Tensor& t) {
  need_data(fn, t);
  return Elements(t).at(0).to_double() != 0;
}

bool all_true(const char* fn, const Tensor& t) { return truth(fn, op1(OpId::all, {t})); }

bool same_sizes(const Tensor& a, const Tensor& b) {
  if (a->dim() != b->dim()) return false;
  for (int64_t d = 0; d < a->dim(); ++d) {
    if (a->sizes[d] != b->sizes[d]) return false;
  }
  return true;
}

LuaResults equal(Args& a) {
  const Tensor x = a[0].tensor(), y = a[1].tensor();
  need_data("equal", x), need_data("equal", y);
  if (!same_sizes(x, y)) return {false};
  if (x->dtype != y->dtype) fail("equal: dtypes ", name(x->dtype), " and ", name(y->dtype), " differ");
  GradModeScope off(false);
  return {all_true("equal", binary(OpId::eq, x, y))};
}

LuaResults allclose(Args& a) {
  need_data("allclose", a[0].tensor()), need_data("allclose", a[1].tensor());
  if (a[0].tensor()->dtype != a[1].tensor()->dtype) {
    fail("allclose: dtypes ", name(a[0].tensor()->dtype), " and ", name(a[1].tensor()->dtype), " differ");
  }
  GradModeScope off(false);
  return {all_true("allclose", op1(OpId::isclose, a))};
}

// a < b of two one-element tensors.
template <OpId kOp>
LuaResults compare_one(Args& a) {
  const Tensor x = a[0].tensor(), y = a[1].tensor();
  if (x->numel() != 1 || y->numel() != 1) {
    const std::string method = str(":", name(kOp), "()");
    fail(kOp == OpId::lt ? "<" : "<=", ": compares two tensors of one element, got shapes ", to_string(x->sizes),
         " and ", to_string(y->sizes), "; ", method, " compares element by element");
  }
  GradModeScope off(false);
  return {truth(name(kOp), binary(kOp, x, y))};
}

template <OpId kReduce>
LuaResults reduce_all(Args& a) {
  return {op1(kReduce, {a[0]})};
}

const Composite kRows[] = {
    {"max", "Tensor input", kBoth, reduce_all<OpId::amax>},
    {"max", "Tensor input, int dim!, bool keepdim!=False", kBoth, op_of<OpId::max_dim>},
    {"max", "Tensor input, Tensor other", kBoth, op_of<OpId::maximum>},
    {"min", "Tensor input", kBoth, reduce_all<OpId::amin>},
    {"min", "Tensor input, int dim!, bool keepdim!=False", kBoth, op_of<OpId::min_dim>},
    {"min", "Tensor input, Tensor other", kBoth, op_of<OpId::minimum>},
    {"equal", "Tensor input, Tensor other", kBoth | kNeedsData, equal},
    {"allclose", "Tensor input, Tensor other, Scalar rtol=1e-05, Scalar atol=1e-08, bool equal_nan=False",
     kBoth | kNeedsData, allclose},
    {"__lt", "Tensor input, Tensor other", kNeedsData, compare_one<OpId::lt>},
    {"__le", "Tensor input, Tensor other", kNeedsData, compare_one<OpId::le>},
};

}  // namespace

std::span<const Composite> math_rows() { return kRows; }

}  // namespace lutra
