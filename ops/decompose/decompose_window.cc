// Decomposes windows of spectral analysis into cosines and triangles over positions.
#include <cmath>

#include "ops/decompose/formula.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// Makes a window by of_positions(0 .. n - 1, last position of a period). Windows of length 0 and 1 are filled.
template <class F>
Results window(OpId op, const Value& length, bool periodic, const Value& dtype, const Value& device, F of_positions) {
  const SymInt n = length.sym_int();
  const DType type = dtype.is_none() ? DType::kFloat32 : dtype.as<DType>();
  if (n < 0) fail(name(op), ": window_length must not be negative, got ", n.hint);
  if (!is_float(type)) fail(name(op), ": dtype must be a floating point type, got ", name(type));
  if (n <= 1) return {op1(OpId::full, {Sizes{n}, vnum(1), type, device})};
  const DType work = opmath_type(type);
  const Tensor i = op1(OpId::arange, {vdim(0), vint(n), vdim(1), work, device});
  return {to_dtype(of_positions(i, periodic ? n : n - 1), type)};
}

Scalar over(double v, SymInt last) { return scalar_binary(SymOp::kNDiv, v, Scalar::of_sym(last)); }

// Returns alpha - beta * cos(2 pi i / last).
Tensor raised_cosine(const Tensor& i, SymInt last, const Scalar& alpha, const Scalar& beta) {
  return add(mul(cos(mul(i, over(2 * M_PI, last))), scalar_binary(SymOp::kNSub, -0.0, beta)), alpha);
}

}  // namespace

// All of these take (window_length, periodic, ..., dtype, device).
Results decompose_hann_window(const Args& a) {
  return window(OpId::hann_window, a[0], a[1].as<bool>(), a[2], a[3],
                [](const Tensor& i, SymInt last) { return raised_cosine(i, last, 0.5, 0.5); });
}

Results decompose_hamming_window(const Args& a) {
  return window(OpId::hamming_window, a[0], a[1].as<bool>(), a[4], a[5], [&](const Tensor& i, SymInt last) {
    return raised_cosine(i, last, a[2].as<Scalar>(), a[3].as<Scalar>());
  });
}

Results decompose_blackman_window(const Args& a) {
  return window(OpId::blackman_window, a[0], a[1].as<bool>(), a[2], a[3], [](const Tensor& i, SymInt last) {
    const Tensor x = mul(i, over(M_PI, last));
    return cos(x * 4.0) * 0.08 - cos(x * 2.0) * 0.5 + 0.42;
  });
}

Results decompose_kaiser_window(const Args& a) {
  return window(OpId::kaiser_window, a[0], a[1].as<bool>(), a[3], a[4], [&](const Tensor& i, SymInt last) {
    const Tensor place = mul(i, over(2, last)) - 1.0, beta = full({}, a[2].as<Scalar>(), i->dtype, i->device());
    const Tensor inside = op1(OpId::clamp_min, {1.0 - place * place, vnum(0)});
    return op1(OpId::i0, {sqrt(inside) * beta}) / op1(OpId::i0, {beta});
  });
}

Results decompose_bartlett_window(const Args& a) {
  return window(OpId::bartlett_window, a[0], a[1].as<bool>(), a[2], a[3], [](const Tensor& i, SymInt last) {
    const Tensor up = mul(i, over(2, last));
    return where(le(i, vint(floor_div(last, 2))), up, 2.0 - up);
  });
}

}  // namespace lutra
