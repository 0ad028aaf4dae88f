// Operators and functions over tensors, so that rules and decompositions read as formulas.
#pragma once
#include "ops/core/half.h"
#include "ops/decompose/emit.h"

namespace lutra {

#define LUTRA_TENSOR_OPERATOR(sign, op)                                               \
  inline Tensor operator sign(const Tensor& a, const Tensor& b) { return op(a, b); }  \
  inline Tensor operator sign(const Tensor& a, double b) { return op(a, Scalar(b)); } \
  inline Tensor operator sign(double a, const Tensor& b) { return op(Scalar(a), b); }
LUTRA_TENSOR_OPERATOR(+, add)
LUTRA_TENSOR_OPERATOR(-, sub)
LUTRA_TENSOR_OPERATOR(*, mul)
LUTRA_TENSOR_OPERATOR(/, div)
#undef LUTRA_TENSOR_OPERATOR

#define LUTRA_FUNCTION(name) \
  inline Tensor name(const Tensor& a) { return op1(OpId::name, {a}); }
LUTRA_FUNCTION(cos)
LUTRA_FUNCTION(cosh)
LUTRA_FUNCTION(digamma)
LUTRA_FUNCTION(erf)
LUTRA_FUNCTION(erfinv)
LUTRA_FUNCTION(expm1)
LUTRA_FUNCTION(isnan)
LUTRA_FUNCTION(lgamma)
LUTRA_FUNCTION(log1p)
LUTRA_FUNCTION(logical_not)
LUTRA_FUNCTION(relu)
LUTRA_FUNCTION(rsqrt)
LUTRA_FUNCTION(sigmoid)
LUTRA_FUNCTION(sin)
LUTRA_FUNCTION(sinh)
LUTRA_FUNCTION(sqrt)
LUTRA_FUNCTION(square)
LUTRA_FUNCTION(tanh)
LUTRA_FUNCTION(trunc)
#undef LUTRA_FUNCTION
inline Tensor logical_or(const Tensor& a, const Tensor& b) { return op1(OpId::logical_or, {a, b}); }
inline Tensor maximum(const Tensor& a, const Tensor& b) { return op1(OpId::maximum, {a, b}); }
inline Tensor minimum(const Tensor& a, const Tensor& b) { return op1(OpId::minimum, {a, b}); }
inline Tensor clamp(const Tensor& t, Value low, Value high) {
  return op1(OpId::clamp, {t, std::move(low), std::move(high)});
}

// selu(x) = elu(x, alpha, scale).
inline const Scalar kSeluAlpha(1.6732632423543772848), kSeluScale(1.0507009873554804934);

// Converts half types to float32. Formulas compute in float32 and round once at the end, as PyTorch's kernels do.
inline Tensor wide(const Tensor& t) { return is_half(t->dtype) ? to_dtype(t, DType::kFloat32) : t; }
// Reduces the elements of a loss by "mean", "sum" or "none".
Tensor reduced(const Tensor& loss, const std::string& reduction);

}  // namespace lutra
