// Operations without a vector instruction. Integer division uses float division. Divisions of large numbers, and float
// remainders with large quotients, go lane by lane through the stack. Integer powers square until no lane has exponent
// bits left.
#include "jit/codegen/x64/emitter.h"

namespace lutra::x64 {

namespace {
x86::Mem element(x86::Mem slot, const x86::Gp& lane, bool wide) {
  slot.setIndex(lane, wide ? 3 : 2);
  slot.setSize(wide ? 8 : 4);
  return slot;
}

// Emits a loop over lanes around the code of f.
template <class F>
void for_lanes(x86::Compiler& cc, int lanes, const F& f) {
  x86::Gp lane = cc.newInt64();
  const asmjit::Label top = cc.newLabel();
  cc.xor_(lane.r32(), lane.r32());
  cc.bind(top);
  f(lane);
  cc.inc(lane);
  cc.cmp(lane, lanes);
  cc.jl(top);
}

// Emits f for each lane of the integers a and b. f returns the register of the result, and may overwrite its operands.
template <class F>
x86::Vec by_lanes(Vectors& v, bool wide, const x86::Vec& a, const x86::Vec& b, int lanes, const F& f) {
  x86::Compiler& cc = v.cc;
  x86::Mem sa = cc.newStack(64, 64), sb = cc.newStack(64, 64);
  cc.emit(Ids::kIdVmovups, sa, a);
  cc.emit(Ids::kIdVmovups, sb, b);
  for_lanes(cc, lanes, [&](const x86::Gp& lane) {
    x86::Gp x = cc.newInt64(), y = cc.newInt64();
    for (auto [to, slot] : {std::pair(x, sa), std::pair(y, sb)}) {
      if (wide)
        cc.mov(to, element(slot, lane, true));
      else
        cc.movsxd(to, element(slot, lane, false));
    }
    const x86::Gp r = f(x, y);
    cc.mov(element(sa, lane, wide), wide ? r : x86::Gp(r.r32()));
  });
  x86::Vec result = v.fresh(wide);
  if (lanes == 1)
    cc.emit(wide ? Ids::kIdVbroadcastsd : Ids::kIdVbroadcastss, result, sa);
  else
    cc.emit(Ids::kIdVmovups, result, sa);
  return result;
}

// r = x / y, rounded towards zero or down, or the remainder; x / 0 gives 0. Overwrites x.
void divide_one(x86::Compiler& cc, Op op, const x86::Gp& r, const x86::Gp& x, const x86::Gp& y) {
  const x86::Gp hi = cc.newInt64();
  const asmjit::Label negate = cc.newLabel(), done = cc.newLabel(), exact = cc.newLabel();
  cc.xor_(r, r);
  cc.test(y, y);
  cc.jz(done);
  cc.cmp(y, -1);
  cc.je(negate);
  cc.cqo(hi, x);
  cc.idiv(hi, x, y);
  cc.mov(r, op == Op::kRem ? hi : x);
  if (op != Op::kDiv) {
    cc.test(hi, hi);
    cc.jz(exact);
    cc.xor_(hi, y);
    cc.jns(exact);
    if (op == Op::kRem)
      cc.add(r, y);
    else
      cc.dec(r);
    cc.bind(exact);
  }
  cc.jmp(done);
  cc.bind(negate);
  if (op != Op::kRem) cc.sub(r, x);
  cc.bind(done);
}
}  // namespace

namespace {
x86::Vec divide_by_lanes(Vectors& v, Op op, bool wide, const x86::Vec& a, const x86::Vec& b, int lanes) {
  return by_lanes(v, wide, a, b, lanes, [&](const x86::Gp& x, const x86::Gp& y) {
    x86::Gp r = v.cc.newInt64();
    divide_one(v.cc, op, r, x, y);
    return r;
  });
}

// Returns a / b of floats that represent both exactly, for truncation (kDiv) or rounded down. A quotient that is not an
// integer differs from the next integer by at least 1 / b. That is more than the rounding error, so the integer is
// exact.
template <int kB>
VecFloat<kB> quotient(Op op, const VecFloat<kB>& a, const VecFloat<kB>& b) {
  return op == Op::kDiv ? a / b : floor_of(a / b);
}

// Returns a - q * b, in as many bits as a and b have.
x86::Vec rest(Vectors& v, bool wide, const x86::Vec& a, const x86::Vec& q, const x86::Vec& b) {
  return v.binary(Vop::kSubI, wide, a, v.binary(Vop::kMulI, wide, q, b));
}

// Divides int64s by float64. If |a| has more bits than a float64, q is off by at most 2^11 / b + 1, and the remainder
// has few bits; its quotient corrects q. Divisors of 52 or more bits, and truncated quotients of such a, go lane by
// lane.
x86::Vec quotient64(Vectors& v, Op op, const x86::Vec& a, const x86::Vec& b, int lanes) {
  const F64 x(v.convert(Conv::kI64ToF64, a)), y(v.convert(Conv::kI64ToF64, b));
  const x86::Vec q = v.convert(Conv::kF64ToI64, quotient(op, x, y).in_register());
  const asmjit::Label large = v.cc.newLabel(), slow = v.cc.newLabel(), done = v.cc.newLabel();
  v.jump_if_any((loop::magnitude(x) >= F64(0x1p53)).k, large);
  v.cc.jmp(done);
  v.cc.bind(large);
  if (op != Op::kDiv) {
    v.jump_if_any((loop::magnitude(y) >= F64(0x1p52)).k, slow);
    const F64 left(v.convert(Conv::kI64ToF64, rest(v, true, a, q, b)));
    v.binary_into(Vop::kAddI, true, q, q, v.convert(Conv::kF64ToI64, quotient(op, left, y).in_register()), nullptr);
    v.cc.jmp(done);
    v.cc.bind(slow);
  }
  v.cc.emit(Ids::kIdVmovaps, q, divide_by_lanes(v, op == Op::kDiv ? op : Op::kFloorDiv, true, a, b, lanes));
  v.cc.bind(done);
  return q;
}
}  // namespace

// Divides by floats that represent both operands exactly: float32 for int16 and smaller types, float64 for int32.
x86::Vec KernelEmitter::divide(Op op, DType t, const x86::Vec& a, const x86::Vec& b, int lanes) {
  const bool wide = is_wide(t);
  if (lanes == 1) return divide_by_lanes(v_, op, wide, a, b, 1);
  x86::Vec q;
  if (wide) {
    q = quotient64(v_, op, a, b, lanes);
  } else if (!is_small(t)) {
    const F64 x(v_.convert(Conv::kI32ToF64, a)), y(v_.convert(Conv::kI32ToF64, b));
    q = v_.convert(Conv::kF64ToI32, quotient(op, x, y).in_register());
  } else {
    const F32 x(v_.convert(Conv::kI32ToF32, a)), y(v_.convert(Conv::kI32ToF32, b));
    q = v_.convert(Conv::kF32ToI32, quotient(op, x, y).in_register());
  }
  const x86::Vec r = op == Op::kRem ? rest(v_, wide, a, q, b) : q;
  const Mask by_zero = v_.compare_ints(Cmp::kEq, wide, b, v_.zero(wide));
  return v_.blend(wide, by_zero, v_.zero(wide), r);
}

// Euclid's algorithm on the magnitudes.
x86::Vec KernelEmitter::gcd(DType t, const x86::Vec& a, const x86::Vec& b, int lanes) {
  return by_lanes(v_, is_wide(t), a, b, lanes, [&](const x86::Gp& x, const x86::Gp& y) {
    x86::Gp rest = cc_.newInt64(), minus = cc_.newInt64();
    for (const x86::Gp& number : {x, y}) {
      cc_.mov(minus, number);
      cc_.neg(minus);
      cc_.cmovns(number, minus);
    }
    const asmjit::Label top = cc_.newLabel(), done = cc_.newLabel();
    cc_.bind(top);
    cc_.test(y, y);
    cc_.jz(done);
    cc_.xor_(rest, rest);
    cc_.div(rest, x, y);
    cc_.mov(x, y);
    cc_.mov(y, rest);
    cc_.jmp(top);
    cc_.bind(done);
    return x;
  });
}

namespace {
// Handles any quotient: the x87's partial remainder is exact, but slow. The result is in r.
void fmod_by_lanes(Vectors& v, bool wide, const x86::Vec& r, const x86::Vec& a, const x86::Vec& b) {
  x86::Compiler& cc = v.cc;
  x86::Mem sa = cc.newStack(64, 64), sb = cc.newStack(64, 64), status = cc.newStack(8, 8);
  cc.emit(Ids::kIdVmovups, sa, a);
  cc.emit(Ids::kIdVmovups, sb, b);
  status.setSize(2);
  x86::Mem high = status.cloneAdjusted(1);
  high.setSize(1);
  for_lanes(cc, wide ? v.wide_lanes() : v.lanes, [&](const x86::Gp& lane) {
    const asmjit::Label again = cc.newLabel();
    cc.fld(element(sb, lane, wide));
    cc.fld(element(sa, lane, wide));
    cc.bind(again);
    cc.fprem();
    cc.fnstsw(status);
    cc.test(high, 4);
    cc.jnz(again);
    cc.fstp(element(sa, lane, wide));
    cc.fstp(x86::st0);
  });
  cc.emit(Ids::kIdVmovups, r, sa);
}
}  // namespace

// If a float represents the quotient to the unit, the truncated quotient is off by at most one, and a - n * b is a
// float. So the remainder is exact. If one lane has a larger quotient, an infinity or a NaN, all lanes take the slow
// path.
template <int kB>
VecFloat<kB> fmod_of(const VecFloat<kB>& a, const VecFloat<kB>& b) {
  using F = VecFloat<kB>;
  Vectors& v = *t_vectors;
  const bool wide = kB == 64;
  const F x(a.in_register()), m = loop::magnitude(x), y = loop::magnitude(b), q = m / y;
  const F minus = loop::with_sign_of(y, F(-0.0));
  const F rest = mul_add(floor_of(q), minus, m);
  const F r = loop::with_sign_of(select(rest < F(0.0), rest + y, rest), x);
  const asmjit::Label slow = v.cc.newLabel(), done = v.cc.newLabel();
  const auto large = !(q < F(wide ? 0x1p52 : 0x1p23));
  v.jump_if_any((large | (rest != rest)).k, slow);
  v.cc.jmp(done);
  v.cc.bind(slow);
  fmod_by_lanes(v, wide, r.reg, x.reg, b.in_register());
  v.cc.bind(done);
  return r;
}
template VecFloat<32> fmod_of(const VecFloat<32>&, const VecFloat<32>&);
template VecFloat<64> fmod_of(const VecFloat<64>&, const VecFloat<64>&);

// With a negative exponent, 1 and -1 have an inverse; other bases give 0.
x86::Vec KernelEmitter::int_power(DType t, const x86::Vec& base, const x86::Vec& exponent) {
  const bool wide = is_wide(t);
  x86::Vec r = v_.materialise(wide, 1), b = v_.copy(base, wide), e = v_.copy(exponent, wide);
  x86::Vec one = v_.materialise(wide, 1);
  const asmjit::Label top = cc_.newLabel();
  cc_.bind(top);
  const Mask odd_bit = v_.test_bits(wide, e, one);
  v_.binary_into(Vop::kMulI, wide, r, r, b, &odd_bit);
  v_.binary_into(Vop::kMulI, wide, b, b, b, nullptr);
  cc_.emit(wide ? Ids::kIdVpsrlq : Ids::kIdVpsrld, e, e, asmjit::Imm(1));
  v_.jump_if_any(v_.test_bits(wide, e, e), top);
  x86::Vec zero = v_.zero(wide);
  x86::Vec unit = v_.blend(wide, v_.compare_ints(Cmp::kEq, wide, base, one), one, zero);
  // (-1)^e = 1 - 2 * (e & 1)
  x86::Vec odd = v_.binary(Vop::kAnd, wide, exponent, one);
  x86::Vec sign = v_.binary(Vop::kSubI, wide, v_.binary(Vop::kSubI, wide, one, odd), odd);
  x86::Vec inverse = v_.blend(wide, v_.compare_ints(Cmp::kEq, wide, base, v_.constant(wide, ~0ull)), sign, unit);
  return v_.blend(wide, v_.compare_ints(Cmp::kLt, wide, exponent, v_.constant(wide, 0)), inverse, r);
}

}  // namespace lutra::x64
