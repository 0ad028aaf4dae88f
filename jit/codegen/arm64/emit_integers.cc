// Operations of several instructions: division that rounds down, powers, greatest common divisors, fmod of floats.
#include "jit/codegen/arm64/emitter.h"

namespace lutra::arm64 {

// Returns a / b, rounded towards zero or down, or the remainder; x / 0 gives 0, as sdiv does.
a64::Gp KernelEmitter::divide(Op op, const a64::Gp& a, const a64::Gp& b) {
  a64::Gp quotient = cc_.newInt64();
  cc_.sdiv(quotient, a, b);
  if (op == Op::kDiv) return quotient;
  const a64::Gp zero = number(0), rest = cc_.newInt64(), adjusted = cc_.newInt64(), signs = cc_.newInt64();
  cc_.msub(rest, quotient, b, a);
  cc_.cmp(b, 0);
  const a64::Gp remainder = choose(CondCode::kEQ, zero, rest);
  if (op == Op::kRem)
    cc_.add(adjusted, remainder, b);
  else
    cc_.sub(adjusted, quotient, 1);
  // Adjusts the result if there is a remainder whose sign differs from b's.
  cc_.eor(signs, remainder, b);
  cc_.cmp(signs, 0);
  const a64::Gp down = choose(CondCode::kLT, adjusted, op == Op::kRem ? remainder : quotient);
  cc_.cmp(remainder, 0);
  return choose(CondCode::kNE, down, op == Op::kRem ? remainder : quotient);
}

// Computes powers by squaring. With a negative exponent, 1 and -1 have an inverse; other bases give 0.
a64::Gp KernelEmitter::power(const a64::Gp& base, const a64::Gp& exponent) {
  a64::Gp r = number(1), b = cc_.newInt64(), e = cc_.newInt64(), times = cc_.newInt64();
  const asmjit::Label top = cc_.newLabel(), even = cc_.newLabel(), done = cc_.newLabel();
  cc_.mov(b, base);
  cc_.mov(e, exponent);
  cc_.bind(top);
  cc_.cbz(e, done);
  cc_.and_(times, e, 1);
  cc_.cbz(times, even);
  cc_.mul(r, r, b);
  cc_.bind(even);
  cc_.mul(b, b, b);
  cc_.lsr(e, e, 1);
  cc_.b(top);
  cc_.bind(done);
  const a64::Gp zero = number(0), one = number(1), minus = number(-1), odd = cc_.newInt64();
  cc_.and_(odd, exponent, 1);
  cc_.cmp(odd, 0);
  const a64::Gp sign = choose(CondCode::kNE, minus, one);
  cc_.cmp(base, 1);
  const a64::Gp unit = choose(CondCode::kEQ, one, zero);
  cc_.cmn(base, 1);
  const a64::Gp inverse = choose(CondCode::kEQ, sign, unit);
  cc_.cmp(exponent, 0);
  return choose(CondCode::kLT, inverse, r);
}

a64::Gp KernelEmitter::magnitude(const a64::Gp& a) {
  a64::Gp minus = cc_.newInt64();
  cc_.neg(minus, a);
  cc_.cmp(a, 0);
  return choose(CondCode::kLT, minus, a);
}

// Euclid's algorithm.
a64::Gp KernelEmitter::gcd(const a64::Gp& a, const a64::Gp& b) {
  a64::Gp x = magnitude(a), y = magnitude(b), quotient = cc_.newInt64(), rest = cc_.newInt64();
  const asmjit::Label top = cc_.newLabel(), done = cc_.newLabel();
  cc_.bind(top);
  cc_.cbz(y, done);
  cc_.udiv(quotient, x, y);
  cc_.msub(rest, quotient, y, x);
  cc_.mov(x, y);
  cc_.mov(y, rest);
  cc_.b(top);
  cc_.bind(done);
  return x;
}

namespace {

// A double's mantissa with its leading bit at bit 52, and its exponent, below 1 for denormals.
struct Parts {
  a64::Gp mantissa, exponent;
};
Parts split(a64::Compiler& cc, const a64::Gp& magnitude) {
  a64::Gp mantissa = cc.newInt64(), exponent = cc.newInt64(), zeros = cc.newInt64();
  const asmjit::Label normal = cc.newLabel(), done = cc.newLabel();
  cc.lsr(exponent, magnitude, 52);
  cc.and_(mantissa, magnitude, (uint64_t(1) << 52) - 1);
  cc.cbnz(exponent, normal);
  cc.clz(zeros, mantissa);
  cc.sub(zeros, zeros, 11);
  cc.lsl(mantissa, mantissa, zeros);
  cc.mov(exponent, number(1));
  cc.sub(exponent, exponent, zeros);
  cc.b(done);
  cc.bind(normal);
  cc.orr(mantissa, mantissa, uint64_t(1) << 52);
  cc.bind(done);
  return {mantissa, exponent};
}

// Writes the bits of mantissa * 2^(exponent - 1075), which a double represents exactly.
void join(a64::Compiler& cc, const a64::Gp& out, const a64::Gp& mantissa, const a64::Gp& exponent) {
  a64::Gp zeros = cc.newInt64(), shift = cc.newInt64();
  const asmjit::Label denormal = cc.newLabel(), done = cc.newLabel();
  cc.clz(zeros, mantissa);
  cc.sub(zeros, zeros, 11);
  cc.lsl(out, mantissa, zeros);
  cc.sub(shift, exponent, zeros);
  cc.cmp(shift, 1);
  cc.b(CondCode::kLT, denormal);
  cc.and_(out, out, (uint64_t(1) << 52) - 1);
  cc.lsl(shift, shift, 52);
  cc.orr(out, out, shift);
  cc.b(done);
  cc.bind(denormal);
  cc.neg(shift, shift);
  cc.add(shift, shift, 1);
  cc.lsr(out, out, shift);
  cc.bind(done);
}

}  // namespace

F64 emit_fmod(const F64& a, const F64& b) {
  a64::Compiler& cc = *t_compiler;
  const a64::Gp x = bits(loop::magnitude(a)).reg, y = bits(loop::magnitude(b)).reg;
  const a64::Gp infinite = number(0x7ff0000000000000ll), r = cc.newInt64();
  const asmjit::Label none = cc.newLabel(), top = cc.newLabel(), less = cc.newLabel(), last = cc.newLabel(),
                      end = cc.newLabel(), zero = cc.newLabel(), done = cc.newLabel(), next = cc.newLabel();
  const F64 result = F64::fresh();
  // The result is NaN if b = 0, a is infinite, or either is a NaN.
  cc.cbz(y, none);
  cc.cmp(x, infinite);
  cc.b(CondCode::kHS, none);
  cc.cmp(y, infinite);
  cc.b(CondCode::kHI, none);
  cc.mov(r, x);
  cc.cmp(x, y);
  cc.b(CondCode::kLO, end);
  const Parts p = split(cc, x), q = split(cc, y);
  const a64::Gp difference = cc.newInt64();
  cc.bind(top);
  cc.cmp(p.exponent, q.exponent);
  cc.b(CondCode::kLE, last);
  cc.subs(difference, p.mantissa, q.mantissa);
  cc.b(CondCode::kLO, less);
  cc.cbz(difference, zero);
  cc.mov(p.mantissa, difference);
  cc.bind(less);
  cc.lsl(p.mantissa, p.mantissa, 1);
  cc.sub(p.exponent, p.exponent, 1);
  cc.b(top);
  cc.bind(last);
  cc.subs(difference, p.mantissa, q.mantissa);
  cc.b(CondCode::kLO, next);
  cc.mov(p.mantissa, difference);
  cc.cbz(difference, zero);
  cc.bind(next);
  join(cc, r, p.mantissa, q.exponent);
  cc.b(end);
  cc.bind(zero);
  cc.mov(r, number(0));
  cc.bind(end);
  const I64 sign = bits(a) & I64(int64_t(1ull << 63));
  cc.fmov(result.view(), floating(I64(r) | sign).view());
  cc.b(done);
  cc.bind(none);
  cc.fmov(result.view(), F64(loop::kNaN).view());
  cc.bind(done);
  return result;
}

}  // namespace lutra::arm64
