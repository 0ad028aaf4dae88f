// Registers as the value types of jit/loop/math.h: its algorithms, instantiated with these, emit themselves.
#pragma once
#include "jit/codegen/x64/avx512.h"
#include "jit/loop/math.h"

namespace lutra::x64 {

// What the operators emit into, set while a kernel is being compiled.
inline thread_local Avx512* t_vectors = nullptr;

// Bits of one lane as a constant, or a register.
struct Piece {
  x86::Vec reg;
  uint64_t pattern = 0;
  bool constant = false;
};

template <int kB>
struct Lanes : Piece {
  static constexpr bool kWide = kB == 64;
  static uint64_t pattern_of(double v) {
    uint64_t p = 0;
    if (kWide) {
      memcpy(&p, &v, 8);
    } else {
      const float f = float(v);
      memcpy(&p, &f, 4);
    }
    return p;
  }
  x86::Vec in_register() const { return constant ? t_vectors->materialise(kWide, pattern) : reg; }
  // A register or a repeated constant in memory.
  asmjit::Operand operand() const {
    if (constant) return t_vectors->constant(kWide, pattern);
    return reg;
  }
};

template <int kB>
struct VecInt : Lanes<kB> {
  VecInt() = default;
  explicit VecInt(int64_t v) {
    this->pattern = kB == 64 ? uint64_t(v) : uint32_t(v);
    this->constant = true;
  }
  explicit VecInt(const Piece& p) { static_cast<Piece&>(*this) = p; }
  explicit VecInt(const x86::Vec& r) { this->reg = r; }
};

template <int kB>
struct VecFloat : Lanes<kB> {
  VecFloat() = default;
  explicit VecFloat(double v) {
    this->pattern = Lanes<kB>::pattern_of(v);
    this->constant = true;
  }
  explicit VecFloat(const Piece& p) { static_cast<Piece&>(*this) = p; }
  explicit VecFloat(const x86::Vec& r) { this->reg = r; }
};

template <int kB>
struct VecMask {
  x86::KReg k;
};

using F32 = VecFloat<32>;
using F64 = VecFloat<64>;
using I64 = VecInt<64>;

// a op b where one may be a constant in memory; swapped if that helps and the operation commutes.
template <class V>
V emit_binary(InstId narrow_id, InstId wide_id, const V& a, const V& b, bool commutes) {
  const bool swap = commutes && a.constant && !b.constant;
  const V &x = swap ? b : a, &y = swap ? a : b;
  return V(t_vectors->binary(V::kWide ? wide_id : narrow_id, V::kWide, x.in_register(), y.operand()));
}

#define LUTRA_VECTOR_OP(type, op, id32, id64, commutes)        \
  template <int kB>                                            \
  type<kB> operator op(const type<kB>& a, const type<kB>& b) { \
    return emit_binary(Ids::id32, Ids::id64, a, b, commutes);  \
  }
LUTRA_VECTOR_OP(VecFloat, +, kIdVaddps, kIdVaddpd, true)
LUTRA_VECTOR_OP(VecFloat, -, kIdVsubps, kIdVsubpd, false)
LUTRA_VECTOR_OP(VecFloat, *, kIdVmulps, kIdVmulpd, true)
LUTRA_VECTOR_OP(VecFloat, /, kIdVdivps, kIdVdivpd, false)
LUTRA_VECTOR_OP(VecInt, +, kIdVpaddd, kIdVpaddq, true)
LUTRA_VECTOR_OP(VecInt, -, kIdVpsubd, kIdVpsubq, false)
LUTRA_VECTOR_OP(VecInt, &, kIdVpandd, kIdVpandq, true)
LUTRA_VECTOR_OP(VecInt, |, kIdVpord, kIdVporq, true)
LUTRA_VECTOR_OP(VecInt, ^, kIdVpxord, kIdVpxorq, true)
#undef LUTRA_VECTOR_OP

#define LUTRA_VECTOR_COMPARE(op, c)                                                     \
  template <int kB>                                                                     \
  VecMask<kB> operator op(const VecFloat<kB>& a, const VecFloat<kB>& b) {               \
    return {t_vectors->compare_floats(Cmp::c, kB == 64, a.in_register(), b.operand())}; \
  }
LUTRA_VECTOR_COMPARE(==, kEq)
LUTRA_VECTOR_COMPARE(!=, kNe)
LUTRA_VECTOR_COMPARE(<, kLt)
LUTRA_VECTOR_COMPARE(<=, kLe)
LUTRA_VECTOR_COMPARE(>, kGt)
LUTRA_VECTOR_COMPARE(>=, kGe)
#undef LUTRA_VECTOR_COMPARE

#define LUTRA_MASK_OP(op, id)                                           \
  template <int kB>                                                     \
  VecMask<kB> operator op(const VecMask<kB>& a, const VecMask<kB>& b) { \
    return {t_vectors->mask_op(Ids::id, a.k, b.k)};                     \
  }
LUTRA_MASK_OP(&, kIdKandw)
LUTRA_MASK_OP(|, kIdKorw)
LUTRA_MASK_OP(^, kIdKxorw)
#undef LUTRA_MASK_OP
template <int kB>
VecMask<kB> operator!(const VecMask<kB>& a) {
  return {t_vectors->mask_not(a.k)};
}

// p = p * x + c, in place: p is the caller's own.
template <int kB>
void fma_into(VecFloat<kB>& p, const VecFloat<kB>& x, const VecFloat<kB>& c) {
  if (p.constant) p = VecFloat<kB>(p.in_register());
  t_vectors->cc.emit(kB == 64 ? Ids::kIdVfmadd213pd : Ids::kIdVfmadd213ps, p.reg, x.in_register(), c.operand());
}
template <int kB>
VecFloat<kB> mul_add(const VecFloat<kB>& a, const VecFloat<kB>& b, const VecFloat<kB>& c) {
  const VecFloat<kB>&x = a.constant ? b : a, &y = a.constant ? a : b;
  if (c.constant) {
    VecFloat<kB> r(x.constant ? x.in_register() : t_vectors->copy(x.reg, kB == 64));
    fma_into(r, y, c);
    return r;
  }
  x86::Vec r = t_vectors->copy(c.reg, kB == 64);
  t_vectors->cc.emit(kB == 64 ? Ids::kIdVfmadd231pd : Ids::kIdVfmadd231ps, r, x.in_register(), y.operand());
  return VecFloat<kB>(r);
}
template <int kB>
VecFloat<kB> root(const VecFloat<kB>& x) {
  return VecFloat<kB>(t_vectors->unary(kB == 64 ? Ids::kIdVsqrtpd : Ids::kIdVsqrtps, kB == 64, x.operand()));
}
template <int kB>
VecFloat<kB> rounded(const VecFloat<kB>& x, int mode) {
  return VecFloat<kB>(
      t_vectors->unary_imm(kB == 64 ? Ids::kIdVrndscalepd : Ids::kIdVrndscaleps, kB == 64, x.operand(), mode));
}
template <int kB>
VecFloat<kB> floor_of(const VecFloat<kB>& x) {
  return rounded(x, 9);
}
template <int kB>
VecFloat<kB> ceil_of(const VecFloat<kB>& x) {
  return rounded(x, 10);
}
// vmin and vmax give their second operand where one is NaN or both are zeros.
template <int kB>
VecFloat<kB> lower(const VecFloat<kB>& c, const VecFloat<kB>& x) {
  return emit_binary(Ids::kIdVminps, Ids::kIdVminpd, c, x, false);
}
template <int kB>
VecFloat<kB> raise(const VecFloat<kB>& c, const VecFloat<kB>& x) {
  return emit_binary(Ids::kIdVmaxps, Ids::kIdVmaxpd, c, x, false);
}
template <int kB>
VecInt<kB> bits(const VecFloat<kB>& x) {
  return VecInt<kB>(static_cast<const Piece&>(x));
}
template <int kB>
VecFloat<kB> floating(const VecInt<kB>& x) {
  return VecFloat<kB>(static_cast<const Piece&>(x));
}
template <int kB>
VecFloat<kB> select(const VecMask<kB>& m, const VecFloat<kB>& a, const VecFloat<kB>& b) {
  return VecFloat<kB>(t_vectors->blend(kB == 64, m.k, a.operand(), b.in_register()));
}
template <int kB>
VecInt<kB> shl(const VecInt<kB>& i, int n) {
  return VecInt<kB>(t_vectors->unary_imm(kB == 64 ? Ids::kIdVpsllq : Ids::kIdVpslld, kB == 64, i.in_register(), n));
}
template <int kB>
VecInt<kB> shr(const VecInt<kB>& i, int n) {
  return VecInt<kB>(t_vectors->unary_imm(kB == 64 ? Ids::kIdVpsrlq : Ids::kIdVpsrld, kB == 64, i.in_register(), n));
}
inline I64 mul32(const I64& a, const I64& b) { return emit_binary(Ids::kIdVpmuludq, Ids::kIdVpmuludq, a, b, true); }
inline F64 widen(const F32& x) { return F64(t_vectors->widen(Ids::kIdVcvtps2pd, x.in_register())); }
inline F32 narrow(const F64& x) { return F32(t_vectors->narrow(Ids::kIdVcvtpd2ps, x.in_register())); }

// Lane by lane through the x87's exact partial remainder.
x86::Vec emit_fmod(Avx512& vectors, bool wide, const x86::Vec& a, const x86::Vec& b);
template <int kB>
VecFloat<kB> fmod_of(const VecFloat<kB>& a, const VecFloat<kB>& b) {
  return VecFloat<kB>(emit_fmod(*t_vectors, kB == 64, a.in_register(), b.in_register()));
}

}  // namespace lutra::x64

namespace lutra::loop {
template <int kB>
struct FloatTraits<x64::VecFloat<kB>> {
  using Int = x64::VecInt<kB>;
  using Mask = x64::VecMask<kB>;
  static constexpr int kBits = kB;
};
}  // namespace lutra::loop
