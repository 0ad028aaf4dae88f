// The scalar instructions of loop IR on cells, exact or wide. This is the plain definition of each instruction.
#pragma once
#include <algorithm>
#include <limits>

#include "jit/loop/cell.h"
#include "jit/loop/loop.h"
#include "jit/loop/scalar_math.h"
#include "ops/core/element_types.h"
#include "ops/core/error.h"

namespace lutra::loop {

inline int64_t wrap(DType t, int64_t v) {
  return with_element_type(t, [v]<class T>() -> int64_t {
    if constexpr (std::is_same_v<T, Bool8>) return v != 0;
    if constexpr (std::is_integral_v<T>) return T(v);
    return v;
  });
}

template <class F>
F minimum(F a, F b) {
  return a != a ? a : b != b ? b : a > b ? b : a;
}
template <class F>
F maximum(F a, F b) {
  return a != a ? a : b != b ? b : a < b ? b : a;
}

template <class F>
F float_op(Op op, F a, F b) {
  switch (op) {
    case Op::kAdd: return a + b;
    case Op::kSub: return a - b;
    case Op::kMul: return a * b;
    case Op::kDiv: return a / b;
    case Op::kRem: return remainder_of(a, b);
    case Op::kFloorDiv: return floor_divide_of(a, b);
    case Op::kPow: return pow_of(a, b);
    case Op::kMin: return minimum(a, b);
    case Op::kMax: return maximum(a, b);
    case Op::kNeg: return -a;
    case Op::kAbs: return std::fabs(a);
    case Op::kExp: return exp_of(a);
    case Op::kLog: return log_of(a);
    case Op::kTanh: return tanh_of(a);
    case Op::kSqrt: return std::sqrt(a);
    case Op::kFloor: return std::floor(a);
    case Op::kCeil: return std::ceil(a);
    case Op::kSin: return sin_of(a);
    case Op::kCos: return cos_of(a);
    case Op::kErf: return erf_of(a);
    case Op::kErfc: return erfc_of(a);
    case Op::kExpm1: return expm1_of(a);
    case Op::kLog1p: return log1p_of(a);
    case Op::kAtan2: return atan2_of(a, b);
    case Op::kTan: return tan_of(a);
    case Op::kAtan: return atan_of(a);
    case Op::kAsin: return asin_of(a);
    case Op::kAcos: return acos_of(a);
    case Op::kExp2: return exp2_of(a);
    case Op::kLog2: return log2_of(a);
    case Op::kLog10: return log10_of(a);
    case Op::kErfinv: return erfinv_of(a);
    case Op::kAtanh: return atanh_of(a);
    case Op::kNormalCdf: return normal_cdf_of(a);
    case Op::kNextAfter: return nextafter_of(a, b);
    case Op::kFmod: return fmod_of(a, b);
    case Op::kCopysign: return with_sign_of(magnitude(a), b);
    default: fail_internal("interpreter: ", name(op), " of floats");
  }
}

// Computes in float64 with the C library's functions: the reference for the definitions in math.h.
inline double wide_op(Op op, double a, double b) {
  switch (op) {
    case Op::kPow: return std::pow(a, b);
    case Op::kExp: return std::exp(a);
    case Op::kLog: return std::log(a);
    case Op::kTanh: return std::tanh(a);
    case Op::kSin: return std::sin(a);
    case Op::kCos: return std::cos(a);
    case Op::kErf: return std::erf(a);
    case Op::kErfc: return std::erfc(a);
    case Op::kAtanh: return std::atanh(a);
    case Op::kNormalCdf: return 0.5 * std::erfc(a * -M_SQRT1_2);
    case Op::kExpm1: return std::expm1(a);
    case Op::kLog1p: return std::log1p(a);
    case Op::kAtan2: return std::atan2(a, b);
    case Op::kTan: return std::tan(a);
    case Op::kAtan: return std::atan(a);
    case Op::kAsin: return std::asin(a);
    case Op::kAcos: return std::acos(a);
    case Op::kExp2: return std::exp2(a);
    case Op::kLog2: return std::log2(a);
    case Op::kLog10: return std::log10(a);
    default: return float_op(op, a, b);
  }
}

inline int64_t int_pow(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  uint64_t r = 1, b = uint64_t(base);
  for (uint64_t e = uint64_t(exponent); e; e >>= 1) {
    if (e & 1) r *= b;
    b *= b;
  }
  return int64_t(r);
}

inline int64_t int_divide(Op op, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return op == Op::kRem ? 0 : int64_t(0 - uint64_t(a));
  int64_t q = a / b, r = a % b;
  if (op == Op::kDiv) return q;
  const bool down = r != 0 && (r < 0) != (b < 0);
  if (op == Op::kRem) return down ? r + b : r;
  return down ? q - 1 : q;
}

inline int64_t int_gcd(int64_t a, int64_t b) {
  uint64_t x = a < 0 ? 0 - uint64_t(a) : uint64_t(a), y = b < 0 ? 0 - uint64_t(b) : uint64_t(b);
  while (y) {
    const uint64_t rest = x % y;
    x = y, y = rest;
  }
  return int64_t(x);
}

inline int64_t int_op(Op op, int64_t a, int64_t b) {
  const uint64_t x = uint64_t(a), y = uint64_t(b);
  switch (op) {
    case Op::kAdd: return int64_t(x + y);
    case Op::kSub: return int64_t(x - y);
    case Op::kMul: return int64_t(x * y);
    case Op::kDiv:
    case Op::kRem:
    case Op::kFloorDiv: return int_divide(op, a, b);
    case Op::kPow: return int_pow(a, b);
    case Op::kGcd: return int_gcd(a, b);
    case Op::kMin: return std::min(a, b);
    case Op::kMax: return std::max(a, b);
    case Op::kNeg: return int64_t(0 - x);
    case Op::kAbs: return a < 0 ? int64_t(0 - x) : a;
    case Op::kAnd: return a & b;
    case Op::kOr: return a | b;
    case Op::kXor: return a ^ b;
    case Op::kNot: return ~a;
    default: fail_internal("interpreter: ", name(op), " of integers");
  }
}

template <class T>
bool compare(Op op, T a, T b) {
  switch (op) {
    case Op::kEq: return a == b;
    case Op::kNe: return a != b;
    case Op::kLt: return a < b;
    case Op::kLe: return a <= b;
    case Op::kGt: return a > b;
    case Op::kGe: return a >= b;
    default: fail_internal("interpreter: comparison ", name(op));
  }
}

template <bool kWide>
double round_to(DType t, double v) {
  return kWide || t == DType::kFloat64 ? v : double(round_to_half(t, float(v)));
}

// Arithmetic and functions (add, exp, and, ...): operands and result have type t.
template <bool kWide>
Cell arithmetic(Op op, DType t, Cell a, Cell b) {
  Cell r;
  if (is_bool(t) && op == Op::kNot) {
    r.i = !a.i;
  } else if (!is_float(t)) {
    r.i = wrap(t, int_op(op, a.i, b.i));
  } else if (kWide) {
    r.f = wide_op(op, a.f, b.f);
  } else if (t == DType::kFloat64) {
    r.f = float_op(op, a.f, b.f);
  } else {
    r.f = round_to_half(t, float_op(op, float(a.f), float(b.f)));
  }
  return r;
}

inline int64_t truncate(DType to, double v) {
  const bool wide = to == DType::kInt64;
  const double limit = wide ? 9223372036854775808.0 : 2147483648.0;
  const double whole = std::trunc(v);
  const bool fits = whole < limit && whole >= -limit;
  const int64_t lowest = wide ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  return wrap(to, fits ? int64_t(whole) : lowest);
}

template <bool kWide>
Cell cast(DType from, DType to, Cell a) {
  Cell r;
  if (is_bool(to)) {
    r.i = is_float(from) ? a.f != 0 : a.i != 0;
  } else if (is_float(to)) {
    if (is_float(from))
      r.f = round_to<kWide>(to, a.f);
    else
      r.f = kWide || to == DType::kFloat64 ? double(a.i) : double(round_to_half(to, float(a.i)));
  } else {
    r.i = is_float(from) ? truncate(to, a.f) : wrap(to, a.i);
  }
  return r;
}

// Like normal_single, with the same random bits.
inline double normal_wide(const Words<uint64_t>& w) {
  const double u = 1 - double(w.word(0)) * 0x1p-32, turns = double(w.word(2) >> 8) * 0x1p-24;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * turns);
}

template <bool kWide>
Cell random(Op op, DType t, int64_t index, uint64_t call, uint64_t seed) {
  const Words<uint64_t> w = philox<uint64_t>(uint64_t(index), call, seed);
  const bool wide = t == DType::kFloat64;
  Cell r;
  if (op == Op::kRandBits)
    r.i = int64_t(random_bits(w));
  else if (op == Op::kNormal)
    r.f = wide ? normal_double<double>(w) : kWide ? normal_wide(w) : round_to<kWide>(t, normal_single<double>(w));
  else
    r.f = wide ? unit_double<double>(w.w[0], w.w[1]) : round_to<kWide>(t, unit_single<double>(w.word(0)));
  return r;
}

inline Cell load(DType t, const char* p) {
  return with_element_type(t, [p]<class T>() {
    T v;
    memcpy(&v, p, sizeof v);
    Cell r;
    if constexpr (std::is_same_v<T, Bool8>) {
      r.i = v.v != 0;
    } else if constexpr (std::is_integral_v<T>) {
      r.i = v;
    } else if constexpr (std::is_same_v<T, double>) {
      r.f = v;
    } else {
      r.f = float(v);
    }
    return r;
  });
}

inline void store(DType t, char* p, Cell c) {
  with_element_type(t, [&]<class T>() {
    const auto put = [p](T v) { memcpy(p, &v, sizeof v); };
    if constexpr (std::is_same_v<T, Bool8>) {
      put({uint8_t(c.i != 0)});
    } else if constexpr (std::is_integral_v<T>) {
      put(T(c.i));
    } else if constexpr (std::is_same_v<T, double>) {
      put(c.f);
    } else {
      put(T(float(c.f)));
    }
  });
}

// A partial result. position is used by argmax and argmin only.
struct Partial {
  Cell value;
  int64_t position = kNoPosition;
};

// Combines b into a. Order of positions: NaN before all, then the greater (less) value, then the first.
template <bool kWide>
void combine(RedOp op, DType t, Partial& a, const Partial& b) {
  switch (op) {
    case RedOp::kSum: a.value = arithmetic<kWide>(Op::kAdd, t, a.value, b.value); return;
    case RedOp::kProd: a.value = arithmetic<kWide>(Op::kMul, t, a.value, b.value); return;
    case RedOp::kMax: a.value = arithmetic<kWide>(Op::kMax, t, a.value, b.value); return;
    case RedOp::kMin: a.value = arithmetic<kWide>(Op::kMin, t, a.value, b.value); return;
    case RedOp::kAny: a.value.i |= b.value.i; return;
    case RedOp::kAll: a.value.i &= b.value.i; return;
    case RedOp::kArgMax:
    case RedOp::kArgMin: break;
  }
  const bool max = op == RedOp::kArgMax;
  bool better, same;
  if (is_float(t)) {
    const double x = a.value.f, y = b.value.f;
    better = (max ? y > x : y < x) || (y != y && x == x);
    same = x == y || (x != x && y != y);
  } else {
    better = max ? b.value.i > a.value.i : b.value.i < a.value.i;
    same = a.value.i == b.value.i;
  }
  if (better || (same && b.position < a.position)) a = b;
}

}  // namespace lutra::loop
