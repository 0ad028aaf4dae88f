// The ops that vjp rules and decompositions use, as functions over call_op.
#pragma once
#include "ops/defs/call.h"

namespace lutra {

#define LUTRA_EMIT1(op) \
  inline Tensor op(Value a) { return op1(OpId::op, {std::move(a)}); }
#define LUTRA_EMIT2(op) \
  inline Tensor op(Value a, Value b) { return op1(OpId::op, {std::move(a), std::move(b)}); }
#define LUTRA_EMIT3(op) \
  inline Tensor op(Value a, Value b, Value c) { return op1(OpId::op, {std::move(a), std::move(b), std::move(c)}); }

LUTRA_EMIT2(add)
LUTRA_EMIT2(sub)
LUTRA_EMIT2(mul)
LUTRA_EMIT2(div)
LUTRA_EMIT2(pow)
LUTRA_EMIT2(floor_divide)
LUTRA_EMIT1(neg)
LUTRA_EMIT1(abs)
LUTRA_EMIT1(exp)
LUTRA_EMIT1(log)
LUTRA_EMIT1(sign)
LUTRA_EMIT2(eq)
LUTRA_EMIT2(ne)
LUTRA_EMIT2(lt)
LUTRA_EMIT2(le)
LUTRA_EMIT2(gt)
LUTRA_EMIT2(ge)
LUTRA_EMIT2(logical_and)
LUTRA_EMIT3(where)
LUTRA_EMIT2(mm)
LUTRA_EMIT2(bmm)
LUTRA_EMIT2(view)
LUTRA_EMIT2(expand)
LUTRA_EMIT1(contiguous)
LUTRA_EMIT2(permute)
LUTRA_EMIT2(unsqueeze)
LUTRA_EMIT3(transpose)
LUTRA_EMIT3(gather)
LUTRA_EMIT3(index_select)
#undef LUTRA_EMIT1
#undef LUTRA_EMIT2
#undef LUTRA_EMIT3

// Dims and other plain ints as argument values.
inline Scalar int_arg(int64_t v) { return Scalar::of_int(v); }
inline Tensor to_dtype(const Tensor& t, DType type) { return t->dtype == type ? t : op1(OpId::to_dtype, {t, type}); }
// Returns t itself if it has these sizes.
inline Tensor reshape(const Tensor& t, const Sizes& sizes) {
  bool same = t->sizes.size() == sizes.size();
  for (size_t d = 0; same && d < sizes.size(); d++) {
    same = t->sizes[d].hint == sizes[d].hint && t->sizes[d].expr == sizes[d].expr;
  }
  return same ? t : op1(OpId::reshape, {t, sizes});
}
inline Tensor sum(const Tensor& t, const Sizes& dims, bool keepdim) {
  // An empty list would mean all dims.
  return dims.empty() ? t : op1(OpId::sum, {t, dims, keepdim});
}
// Returns 0 .. n-1 on like's device.
inline Tensor counting(SymInt n, const Tensor& like, DType type = DType::kInt64) {
  return op1(OpId::arange, {int_arg(0), Scalar::of_sym(n), int_arg(1), type, like->device()});
}
// Returns elements start .. end-1 along dim.
inline Tensor part(const Tensor& t, int64_t dim, SymInt start, SymInt end) {
  return op1(OpId::slice, {t, int_arg(dim), Scalar::of_sym(start), Scalar::of_sym(end), int_arg(1)});
}
inline Tensor flat(const Tensor& t) { return reshape(t, Sizes{t->numel()}); }
// Returns x. An element that fails the test of check_values is an error with this message.
inline Tensor checked(const Tensor& x, const char* test, const char* message) {
  if (is_bool(x->dtype)) return x;  // 0 and 1 pass every test
  return op1(OpId::check_values, {x, std::string(test), std::string(message)});
}
inline Tensor sum_all(const Tensor& t) { return op1(OpId::sum, {t}); }
inline Tensor on_device(const Tensor& t, Device device) {
  return t->device() == device ? t : op1(OpId::to_device, {t, device});
}
inline Tensor full(const Sizes& sizes, Scalar value, DType type, Device device) {
  return op1(OpId::full, {sizes, value, type, device});
}
inline Tensor zeros_like(const Tensor& t) { return full(t->sizes, 0.0, t->dtype, t->device()); }
inline Tensor scatter_add(const Tensor& t, Value dim, const Tensor& index, const Tensor& src) {
  return op1(OpId::scatter_add, {t, std::move(dim), index, src});
}
inline Tensor index_add(const Tensor& t, Value dim, const Tensor& index, const Tensor& src) {
  return op1(OpId::index_add, {t, std::move(dim), index, src});
}
// Returns r in the layout of op's meta rule. A decomposition passes its operands in another order than the op, so mixed
// layouts may give another result layout. A copy is permuted so that it is contiguous.
Tensor conform(OpId op, const Args& args, const Tensor& r);
// Returns t * s, or t itself if s is the constant one.
inline Tensor scaled(const Tensor& t, const Scalar& s) { return !s.expr && s.to_double() == 1 ? t : mul(t, s); }

}  // namespace lutra
