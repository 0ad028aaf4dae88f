// Registers as the value types of jit/loop/math.h. Its algorithms emit code if they are instantiated with these types.
#pragma once
#include "jit/codegen/x64/vectors.h"
#include "jit/loop/functions.h"

namespace lutra::x64 {

// The emitter for the operators, set while a kernel is being compiled.
inline thread_local Vectors* t_vectors = nullptr;

// A constant, as the bits of one lane; or a register.
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
  // Returns a register, or a repeated constant in memory.
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
  Mask k;
};

using F32 = VecFloat<32>;
using F64 = VecFloat<64>;
using I64 = VecInt<64>;

// Emits a op b. b may be a constant in memory; swaps the operands if that helps and the operation commutes.
template <class V>
V emit_binary(Vop op, const V& a, const V& b, bool commutes) {
  const bool swap = commutes && a.constant && !b.constant;
  const V &x = swap ? b : a, &y = swap ? a : b;
  return V(t_vectors->binary(op, V::kWide, x.in_register(), y.operand()));
}

#define LUTRA_VECTOR_OP(type, op, vop, commutes)               \
  template <int kB>                                            \
  type<kB> operator op(const type<kB>& a, const type<kB>& b) { \
    return emit_binary(Vop::vop, a, b, commutes);              \
  }
LUTRA_VECTOR_OP(VecFloat, +, kAddF, true)
LUTRA_VECTOR_OP(VecFloat, -, kSubF, false)
LUTRA_VECTOR_OP(VecFloat, *, kMulF, true)
LUTRA_VECTOR_OP(VecFloat, /, kDivF, false)
LUTRA_VECTOR_OP(VecInt, +, kAddI, true)
LUTRA_VECTOR_OP(VecInt, -, kSubI, false)
LUTRA_VECTOR_OP(VecInt, &, kAnd, true)
LUTRA_VECTOR_OP(VecInt, |, kOr, true)
LUTRA_VECTOR_OP(VecInt, ^, kXor, true)
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
    return {t_vectors->mask_op(MaskOp::id, a.k, b.k)};                  \
  }
LUTRA_MASK_OP(&, kAnd)
LUTRA_MASK_OP(|, kOr)
LUTRA_MASK_OP(^, kXor)
#undef LUTRA_MASK_OP
template <int kB>
VecMask<kB> operator!(const VecMask<kB>& a) {
  return {t_vectors->mask_not(a.k)};
}

// p = p * x + c, in place. The caller must own p's register.
template <int kB>
void fma_into(VecFloat<kB>& p, const VecFloat<kB>& x, const VecFloat<kB>& c) {
  if (p.constant) p = VecFloat<kB>(p.in_register());
  t_vectors->multiply_add(kB == 64, p.reg, x.in_register(), c.operand());
}
template <int kB>
VecFloat<kB> mul_add(const VecFloat<kB>& a, const VecFloat<kB>& b, const VecFloat<kB>& c) {
  const VecFloat<kB>&x = a.constant ? b : a, &y = a.constant ? a : b;
  if (c.constant) {
    // A constant factor needs a register anyway, which may as well be the result's.
    VecFloat<kB> r(y.constant ? y.in_register() : t_vectors->copy(y.reg, kB == 64));
    fma_into(r, x, c);
    return r;
  }
  x86::Vec r = t_vectors->copy(c.reg, kB == 64);
  t_vectors->add_product(kB == 64, r, x.in_register(), y.operand());
  return VecFloat<kB>(r);
}
template <int kB>
VecFloat<kB> root(const VecFloat<kB>& x) {
  return VecFloat<kB>(t_vectors->root(kB == 64, x.operand()));
}
template <int kB>
VecFloat<kB> rounded(const VecFloat<kB>& x, Rounding how) {
  return VecFloat<kB>(t_vectors->round(kB == 64, x.operand(), how));
}
template <int kB>
VecFloat<kB> floor_of(const VecFloat<kB>& x) {
  return rounded(x, kDown);
}
template <int kB>
VecFloat<kB> ceil_of(const VecFloat<kB>& x) {
  return rounded(x, kUp);
}
// vmin and vmax return their second operand if one is NaN or both are zeros.
template <int kB>
VecFloat<kB> lower(const VecFloat<kB>& c, const VecFloat<kB>& x) {
  return emit_binary(Vop::kMinF, c, x, false);
}
template <int kB>
VecFloat<kB> raise(const VecFloat<kB>& c, const VecFloat<kB>& x) {
  return emit_binary(Vop::kMaxF, c, x, false);
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
  return VecInt<kB>(t_vectors->shift_left(kB == 64, i.in_register(), n));
}
template <int kB>
VecInt<kB> shr(const VecInt<kB>& i, int n) {
  return VecInt<kB>(t_vectors->shift_right(kB == 64, i.in_register(), n));
}
template <int kB>
VecInt<kB> xor_of(const VecInt<kB>& a, const VecInt<kB>& b, const VecInt<kB>& c) {
  const bool wide = kB == 64;
  return VecInt<kB>(t_vectors->exclusive_or(wide, a.in_register(), b.in_register(), c.in_register()));
}
inline I64 mul32(const I64& a, const I64& b) { return emit_binary(Vop::kMul32, a, b, true); }
inline F64 widen(const F32& x) { return F64(t_vectors->convert(Conv::kF32ToF64, x.in_register())); }
inline F32 narrow(const F64& x) { return F32(t_vectors->convert(Conv::kF64ToF32, x.in_register())); }

// Preferred to the function of math.h, whose two instructions are one in AVX-512.
template <int kB>
VecFloat<kB> with_sign_of(const VecFloat<kB>& x, const VecFloat<kB>& sign) {
  const bool wide = kB == 64;
  return VecFloat<kB>(t_vectors->with_bits(wide, x.in_register(), sign.in_register(), wide ? 1ull << 63 : 0x80000000u));
}

// Emits code that runs twice, on the halves of x, since their 64-bit lanes fill a register.
template <class Part>
x86::Vec emit_halves(const F32& x, const Part& part) {
  Vectors& v = *t_vectors;
  x86::Compiler& cc = v.cc;
  const std::unique_ptr<Vectors> half = v.halved();
  x86::Mem slot = cc.newStack(64, 64);
  cc.emit(Ids::kIdVmovups, slot, x.in_register());
  const x86::Gp at = cc.newInt64();
  const asmjit::Label top = cc.newLabel();
  cc.xor_(at.r32(), at.r32());
  cc.bind(top);
  x86::Mem place = slot;
  place.setIndex(at);
  place.setSize(uint32_t(half->size(false)));
  t_vectors = half.get();
  cc.emit(Ids::kIdVmovups, place, part(F32(half->unary(Ids::kIdVmovups, false, place))).in_register());
  t_vectors = &v;
  cc.add(at, half->size(false));
  cc.cmp(at, v.size(false));
  cc.jl(top);
  slot.setSize(uint32_t(v.size(false)));
  return v.unary(Ids::kIdVmovups, false, slot);
}

// Returns r, with part's result in the lanes of the mask. The code skips part if no lane is set.
template <int kB, class Part>
VecFloat<kB> emit_rarely(const VecMask<kB>& m, const VecFloat<kB>& r, const Part& part) {
  Vectors& v = *t_vectors;
  const VecFloat<kB> result(v.copy(r.in_register(), kB == 64));
  const asmjit::Label rare = v.cc.newLabel(), done = v.cc.newLabel();
  v.jump_if_any(m.k, rare);
  v.cc.jmp(done);
  v.cc.bind(rare);
  v.move_where(kB == 64, m.k, result.reg, part());
  v.cc.bind(done);
  return result;
}
template <class G>
F32 by_double(const VecMask<32>& m, const F32& r, const F32& x, const G& f) {
  const Vectors& v = *t_vectors;
  const auto part = [&f](const F32& p) { return narrow(f(widen(p))); };
  return emit_rarely(m, r, [&] { return v.lanes == v.wide_lanes() ? part(x).in_register() : emit_halves(x, part); });
}
template <int kB, class G>
VecFloat<kB> rarely(const VecMask<kB>& m, const VecFloat<kB>& r, const VecFloat<kB>& x, const G& f) {
  return emit_rarely(m, r, [&] { return f(x).in_register(); });
}

// Exact. Defined in emit_lanewise.cc.
template <int kB>
VecFloat<kB> fmod_of(const VecFloat<kB>& a, const VecFloat<kB>& b);

}  // namespace lutra::x64

namespace lutra::loop {
template <int kB>
struct FloatTraits<x64::VecFloat<kB>> {
  using Int = x64::VecInt<kB>;
  using Mask = x64::VecMask<kB>;
  static constexpr int kBits = kB;
};
}  // namespace lutra::loop
