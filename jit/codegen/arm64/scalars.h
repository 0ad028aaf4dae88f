// Registers as the value types of jit/loop/math.h, one number each. Its algorithms emit code if they are instantiated
// with these types.
#pragma once
#include <asmjit/arm.h>
#include <asmjit/arm/a64compiler.h>

#include "jit/codegen/arm64/numbers.h"
#include "jit/loop/functions.h"

namespace lutra::arm64 {

namespace a64 = asmjit::a64;
using a64::CondCode;

// The compiler for the operators, set while a kernel is being compiled.
inline thread_local a64::Compiler* t_compiler = nullptr;

inline a64::Gp number(int64_t v) {
  a64::Gp r = t_compiler->newInt64();
  set_number(*t_compiler, r, uint64_t(v));
  return r;
}

inline a64::Gp view_of(const a64::Gp& r, bool wide) {
  if (wide) return r.x();
  return r.w();
}
inline a64::Vec view_of(const a64::Vec& v, bool wide) {
  if (wide) return v.d();
  return v.s();
}

// 0 or 1.
struct Mask {
  a64::Gp reg;
};

// Integers of both widths are in 64-bit registers. Instructions for 32 bits clear the upper half.
template <int kB>
struct Int {
  a64::Gp reg;
  Int() = default;
  explicit Int(int64_t v) : reg(number(kB == 64 ? v : int64_t(uint32_t(v)))) {}
  explicit Int(const a64::Gp& r) : reg(r) {}
  a64::Gp view() const { return view_of(reg, kB == 64); }
  static Int fresh() { return Int(t_compiler->newInt64()); }
};

template <int kB>
struct Float {
  a64::Vec reg;
  Float() = default;
  explicit Float(double v) : reg(fresh().reg) {
    const auto local = asmjit::ConstPoolScope::kLocal;
    t_compiler->ldr(view(),
                    kB == 64 ? t_compiler->newDoubleConst(local, v) : t_compiler->newFloatConst(local, float(v)));
  }
  explicit Float(const a64::Vec& r) : reg(r) {}
  a64::Vec view() const { return view_of(reg, kB == 64); }
  static Float fresh() { return Float(kB == 64 ? t_compiler->newVecD() : t_compiler->newVecS()); }
};

using F32 = Float<32>;
using F64 = Float<64>;
using I64 = Int<64>;

#define LUTRA_SCALAR_OP(type, op, instruction)                 \
  template <int kB>                                            \
  type<kB> operator op(const type<kB>& a, const type<kB>& b) { \
    const type<kB> r = type<kB>::fresh();                      \
    t_compiler->instruction(r.view(), a.view(), b.view());     \
    return r;                                                  \
  }
LUTRA_SCALAR_OP(Float, +, fadd)
LUTRA_SCALAR_OP(Float, -, fsub)
LUTRA_SCALAR_OP(Float, *, fmul)
LUTRA_SCALAR_OP(Float, /, fdiv)
LUTRA_SCALAR_OP(Int, +, add)
LUTRA_SCALAR_OP(Int, -, sub)
LUTRA_SCALAR_OP(Int, &, and_)
LUTRA_SCALAR_OP(Int, |, orr)
LUTRA_SCALAR_OP(Int, ^, eor)
#undef LUTRA_SCALAR_OP

inline Mask set_if(CondCode when) {
  a64::Gp r = t_compiler->newInt64();
  t_compiler->cset(r, when);
  return {r};
}

// Conditions that are false if an operand is NaN, except "not equal".
#define LUTRA_SCALAR_COMPARE(op, condition)                  \
  template <int kB>                                          \
  Mask operator op(const Float<kB>& a, const Float<kB>& b) { \
    t_compiler->fcmp(a.view(), b.view());                    \
    return set_if(CondCode::condition);                      \
  }
LUTRA_SCALAR_COMPARE(==, kEQ)
LUTRA_SCALAR_COMPARE(!=, kNE)
LUTRA_SCALAR_COMPARE(<, kMI)
LUTRA_SCALAR_COMPARE(<=, kLS)
LUTRA_SCALAR_COMPARE(>, kGT)
LUTRA_SCALAR_COMPARE(>=, kGE)
#undef LUTRA_SCALAR_COMPARE

#define LUTRA_MASK_OP(op) \
  inline Mask operator op(const Mask& a, const Mask& b) { return {(I64(a.reg) op I64(b.reg)).reg}; }
LUTRA_MASK_OP(&)
LUTRA_MASK_OP(|)
LUTRA_MASK_OP(^)
#undef LUTRA_MASK_OP
inline Mask operator!(const Mask& a) {
  a64::Gp r = t_compiler->newInt64();
  t_compiler->eor(r, a.reg, 1);
  return {r};
}

template <int kB>
Float<kB> mul_add(const Float<kB>& a, const Float<kB>& b, const Float<kB>& c) {
  const auto r = Float<kB>::fresh();
  t_compiler->fmadd(r.view(), a.view(), b.view(), c.view());
  return r;
}
template <int kB>
void fma_into(Float<kB>& p, const Float<kB>& x, const Float<kB>& c) {
  p = mul_add(p, x, c);
}

#define LUTRA_SCALAR_UNARY(name, instruction)    \
  template <int kB>                              \
  Float<kB> name(const Float<kB>& x) {           \
    const auto r = Float<kB>::fresh();           \
    t_compiler->instruction(r.view(), x.view()); \
    return r;                                    \
  }
LUTRA_SCALAR_UNARY(root, fsqrt)
LUTRA_SCALAR_UNARY(floor_of, frintm)
LUTRA_SCALAR_UNARY(ceil_of, frintp)
#undef LUTRA_SCALAR_UNARY

// Returns a if the flags, already set, fulfil `when`; otherwise b.
template <int kB>
Float<kB> choose(CondCode when, const Float<kB>& a, const Float<kB>& b) {
  const auto r = Float<kB>::fresh();
  t_compiler->fcsel(r.view(), a.view(), b.view(), when);
  return r;
}
inline a64::Gp choose(CondCode when, const a64::Gp& a, const a64::Gp& b) {
  a64::Gp r = t_compiler->newInt64();
  t_compiler->csel(r, a, b, when);
  return r;
}
template <int kB>
Float<kB> lower(const Float<kB>& c, const Float<kB>& x) {
  t_compiler->fcmp(c.view(), x.view());
  return choose(CondCode::kMI, c, x);
}
template <int kB>
Float<kB> raise(const Float<kB>& c, const Float<kB>& x) {
  t_compiler->fcmp(c.view(), x.view());
  return choose(CondCode::kGT, c, x);
}
template <int kB>
Float<kB> select(const Mask& m, const Float<kB>& a, const Float<kB>& b) {
  t_compiler->cmp(m.reg, 0);
  return choose(CondCode::kNE, a, b);
}

template <int kB>
Int<kB> bits(const Float<kB>& x) {
  const auto r = Int<kB>::fresh();
  t_compiler->fmov(r.view(), x.view());
  return r;
}
template <int kB>
Float<kB> floating(const Int<kB>& x) {
  const auto r = Float<kB>::fresh();
  t_compiler->fmov(r.view(), x.view());
  return r;
}
template <int kB>
Int<kB> shl(const Int<kB>& i, int n) {
  const auto r = Int<kB>::fresh();
  t_compiler->lsl(r.view(), i.view(), n);
  return r;
}
template <int kB>
Int<kB> shr(const Int<kB>& i, int n) {
  const auto r = Int<kB>::fresh();
  t_compiler->lsr(r.view(), i.view(), n);
  return r;
}
inline I64 mul32(const I64& a, const I64& b) {
  const I64 r = I64::fresh();
  t_compiler->umull(r.reg, a.reg.w(), b.reg.w());
  return r;
}
inline F64 widen(const F32& x) {
  const F64 r = F64::fresh();
  t_compiler->fcvt(r.view(), x.view());
  return r;
}
inline F32 narrow(const F64& x) {
  const F32 r = F32::fresh();
  t_compiler->fcvt(r.view(), x.view());
  return r;
}

// For one lane this costs no more than a branch around it.
template <class G>
F32 by_double(const Mask& m, const F32& r, const F32& x, const G& f) {
  return select(m, narrow(f(widen(x))), r);
}

template <class F, class G>
F rarely(const Mask& m, const F& r, const F& x, const G& f) {
  const F result = F::fresh();
  const asmjit::Label done = t_compiler->newLabel();
  t_compiler->fmov(result.view(), r.view());
  t_compiler->cbz(m.reg, done);
  t_compiler->fmov(result.view(), f(x).view());
  t_compiler->bind(done);
  return result;
}

// Long division of the bits, since there is no such instruction. Defined in emit_integers.cc.
F64 emit_fmod(const F64& a, const F64& b);
inline F64 fmod_of(const F64& a, const F64& b) { return emit_fmod(a, b); }
// Exact in doubles, and the remainder of two floats is a float.
inline F32 fmod_of(const F32& a, const F32& b) { return narrow(emit_fmod(widen(a), widen(b))); }

}  // namespace lutra::arm64

namespace lutra::loop {
template <int kB>
struct FloatTraits<arm64::Float<kB>> {
  using Int = arm64::Int<kB>;
  using Mask = arm64::Mask;
  static constexpr int kBits = kB;
};
}  // namespace lutra::loop
