// Emits an instruction on floats, over the value types of jit/loop/math.h, whichever registers they represent. These
// types also have ceil_of, besides what math.h and functions.h need.
#pragma once
#include "jit/loop/functions.h"
#include "jit/loop/loop.h"
#include "ops/core/error.h"

namespace lutra {

template <class F>
F apply_float(loop::Op op, const F& a, const F& b) {
  using loop::Op;
  using I = loop::IntOf<F>;
  switch (op) {
    case Op::kAdd: return a + b;
    case Op::kSub: return a - b;
    case Op::kMul: return a * b;
    case Op::kDiv: return a / b;
    case Op::kRem: return loop::remainder_of(a, b);
    case Op::kFloorDiv: return loop::floor_divide_of(a, b);
    case Op::kPow: return loop::pow_of(a, b);
    case Op::kNeg: return floating(bits(a) ^ I(loop::FloatTraits<F>::kBits == 64 ? int64_t(1ull << 63) : 0x80000000ll));
    case Op::kAbs: return loop::magnitude(a);
    case Op::kExp: return loop::exp_of(a);
    case Op::kLog: return loop::log_of(a);
    case Op::kTanh: return loop::tanh_of(a);
    case Op::kSqrt: return root(a);
    case Op::kFloor: return floor_of(a);
    case Op::kCeil: return ceil_of(a);
    case Op::kSin: return loop::sin_of(a);
    case Op::kCos: return loop::cos_of(a);
    case Op::kErf: return loop::erf_of(a);
    case Op::kErfc: return loop::erfc_of(a);
    case Op::kExpm1: return loop::expm1_of(a);
    case Op::kLog1p: return loop::log1p_of(a);
    case Op::kAtan2: return loop::atan2_of(a, b);
    case Op::kTan: return loop::tan_of(a);
    case Op::kAtan: return loop::atan_of(a);
    case Op::kAsin: return loop::asin_of(a);
    case Op::kAcos: return loop::acos_of(a);
    case Op::kExp2: return loop::exp2_of(a);
    case Op::kLog2: return loop::log2_of(a);
    case Op::kLog10: return loop::log10_of(a);
    case Op::kErfinv: return loop::erfinv_of(a);
    case Op::kAtanh: return loop::atanh_of(a);
    case Op::kNormalCdf: return loop::normal_cdf_of(a);
    case Op::kNextAfter: return loop::nextafter_of(a, b);
    case Op::kFmod: return fmod_of(a, b);
    case Op::kCopysign: return loop::with_sign_of(loop::magnitude(a), b);
    default: fail_internal("codegen: ", name(op), " of floats");
  }
}

}  // namespace lutra
