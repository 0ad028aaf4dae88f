// Instructions without control flow: arithmetic, comparisons, casts, random numbers, loads and stores.
#include <cstddef>
#include <cstring>

#include "jit/codegen/arm64/emitter.h"
#include "jit/codegen/machine/float_ops.h"
#include "jit/loop/abi.h"
#include "ops/core/error.h"
#include "ops/core/half.h"

namespace lutra::arm64 {

using loop::info;
using loop::TypeRule;

Form form_of(DType t) {
  static const struct {
    const char* name;
    Form form;
  } kForms[] = {{"b8", Form::kBool}, {"u8", Form::kU8},   {"i8", Form::kI8},   {"i16", Form::kI16},
                {"i32", Form::kI32}, {"i64", Form::kI64}, {"f16", Form::kF16}, {"bf16", Form::kBF16},
                {"f32", Form::kF32}, {"f64", Form::kF64}};
  for (const auto& row : kForms) {
    if (std::strcmp(row.name, lutra::info(t).ir_name) == 0) return row.form;
  }
  return Form::kNone;
}

// Cuts an integer to its type's range.
a64::Gp KernelEmitter::wrapped(Form f, const a64::Gp& r) {
  a64::Gp out = cc_.newInt64();
  switch (f) {
    case Form::kU8: cc_.and_(out, r, 0xff); return out;
    case Form::kI8: cc_.sxtb(out, r.w()); return out;
    case Form::kI16: cc_.sxth(out, r.w()); return out;
    case Form::kI32: cc_.sxtw(out, r.w()); return out;
    default: return r;
  }
}

// Rounds a single to f; NaN stays NaN.
a64::Vec KernelEmitter::rounded(Form f, const a64::Vec& v) {
  if (f == Form::kF16) {
    a64::Vec half = cc_.newVecS(), out = cc_.newVecS();
    cc_.fcvt(half.h(), v.s());
    cc_.fcvt(out.s(), half.h());
    return out;
  }
  if (f != Form::kBF16) return v;
  const Int<32> u = bits(F32(v)), odd = shr(u, 16) & Int<32>(1);
  const Int<32> up = u + Int<32>(0x7fff) + odd, quiet = u | Int<32>(0x400000);
  cc_.fcmp(v.s(), v.s());
  const Int<32> either(choose(CondCode::kVS, quiet.reg, up.reg));
  return floating(either & Int<32>(0xffff0000ll)).reg;
}

Value KernelEmitter::load(Form f, const a64::Gp& at, int32_t offset) {
  const a64::Mem m = a64::ptr(at, offset);
  Value v;
  if (is_real(f))
    v.real = f == Form::kF64 ? cc_.newVecD() : cc_.newVecS();
  else
    v.whole = cc_.newInt64();
  switch (f) {
    case Form::kBool:
      cc_.ldrb(v.whole.w(), m);
      cc_.cmp(v.whole, 0);
      return {set_if(CondCode::kNE).reg, {}};
    case Form::kU8: cc_.ldrb(v.whole.w(), m); break;
    case Form::kI8: cc_.ldrsb(v.whole, m); break;
    case Form::kI16: cc_.ldrsh(v.whole, m); break;
    case Form::kI32: cc_.ldrsw(v.whole, m); break;
    case Form::kI64: cc_.ldr(v.whole, m); break;
    case Form::kF64: cc_.ldr(v.real.d(), m); break;
    case Form::kF32: cc_.ldr(v.real.s(), m); break;
    case Form::kF16: {
      const a64::Vec half = cc_.newVecS();
      cc_.ldr(half.h(), m);
      cc_.fcvt(v.real.s(), half.h());
      break;
    }
    default: {
      const a64::Gp half = cc_.newInt64();
      cc_.ldrh(half.w(), m);
      v.real = floating(shl(Int<32>(half), 16)).reg;
    }
  }
  return v;
}

void KernelEmitter::store(Form f, const a64::Gp& at, const Value& v, int32_t offset) {
  const a64::Mem m = a64::ptr(at, offset);
  switch (f) {
    case Form::kBool:
    case Form::kU8:
    case Form::kI8: cc_.strb(v.whole.w(), m); return;
    case Form::kI16: cc_.strh(v.whole.w(), m); return;
    case Form::kI32: cc_.str(v.whole.w(), m); return;
    case Form::kI64: cc_.str(v.whole, m); return;
    case Form::kF64: cc_.str(v.real.d(), m); return;
    case Form::kF32: cc_.str(v.real.s(), m); return;
    case Form::kF16: {
      const a64::Vec half = cc_.newVecS();
      cc_.fcvt(half.h(), v.real.s());
      cc_.str(half.h(), m);
      return;
    }
    default: cc_.strh(shr(bits(F32(v.real)), 16).reg.w(), m);
  }
}

Value KernelEmitter::constant(Form f, double real, int64_t whole) {
  if (f == Form::kF64) return {{}, F64(real).reg};
  if (f == Form::kF16) return {{}, F32(double(half_to_float(float_to_half(float(real))))).reg};
  if (f == Form::kBF16) return {{}, F32(double(bfloat16_to_float(float_to_bfloat16(float(real))))).reg};
  if (f == Form::kF32) return {{}, F32(real).reg};
  return {f == Form::kBool ? number(whole != 0) : wrapped(f, number(whole)), {}};
}

Value KernelEmitter::evaluate(const Inst& in) {
  const Form f = form_of(in.type);
  switch (in.op) {
    case Op::kConst: return constant(f, in.imm, in.iimm);
    case Op::kScalar: {
      const F64 d = F64::fresh();
      cc_.ldr(d.view(), head(sizeof(BlockHead) + 8 * (k_.params.size() + size_t(k_.ints) + size_t(in.arg))));
      return cast(Form::kF64, f, {{}, d.reg});
    }
    case Op::kIntArg: return {coefficient(Coef::of_arg(in.arg)), {}};
    case Op::kIndex: return {loop_regs_[size_t(in.arg)], {}};
    case Op::kLoad: return load(f, address(in));
    default: break;
  }
  const Value& a = value(in.a);
  const Form from = forms_[size_t(in.a)];
  if (info(in.op).rule == TypeRule::kRandom) return random(in, f, a.whole);
  if (info(in.op).rule == TypeRule::kCompare) return {compare(in.op, from, a, value(in.b)), {}};
  if (in.op == Op::kCast) return cast(from, f, a);
  if (in.op == Op::kSelect) {
    cc_.cmp(a.whole, 0);
    return select(f, CondCode::kNE, value(in.b), value(in.c));
  }
  return arithmetic(in.op, f, a, info(in.op).operands > 1 ? value(in.b) : a);
}

// Selects by the flags.
Value KernelEmitter::select(Form f, CondCode when, const Value& a, const Value& b) {
  if (f == Form::kF64) return {{}, choose(when, F64(a.real), F64(b.real)).reg};
  if (is_real(f)) return {{}, choose(when, F32(a.real), F32(b.real)).reg};
  return {choose(when, a.whole, b.whole), {}};
}

Value KernelEmitter::arithmetic(Op op, Form f, const Value& a, const Value& b) {
  if (!is_real(f)) return whole_op(op, f, a.whole, b.whole);
  if (op == Op::kMax || op == Op::kMin) return extreme(op == Op::kMax, f, a, b);
  if (f == Form::kF64) return {{}, apply_float(op, F64(a.real), F64(b.real)).reg};
  return {{}, rounded(f, apply_float(op, F32(a.real), F32(b.real)).reg)};
}

// Returns NaN if either is NaN, else b if it is greater (less), else a.
Value KernelEmitter::extreme(bool max, Form f, const Value& a, const Value& b) {
  const auto view = [f](const a64::Vec& v) { return view_of(v, f == Form::kF64); };
  cc_.fcmp(view(a.real), view(b.real));
  const Value r = select(f, max ? CondCode::kMI : CondCode::kGT, b, a);
  cc_.fcmp(view(b.real), view(b.real));
  const Value s = select(f, CondCode::kVS, b, r);
  cc_.fcmp(view(a.real), view(a.real));
  return select(f, CondCode::kVS, a, s);
}

Value KernelEmitter::whole_op(Op op, Form f, const a64::Gp& a, const a64::Gp& b) {
  const a64::Gp r = cc_.newInt64();
  switch (op) {
    case Op::kAdd: cc_.add(r, a, b); break;
    case Op::kSub: cc_.sub(r, a, b); break;
    case Op::kMul: cc_.mul(r, a, b); break;
    case Op::kAnd: cc_.and_(r, a, b); break;
    case Op::kOr: cc_.orr(r, a, b); break;
    case Op::kXor: cc_.eor(r, a, b); break;
    case Op::kNeg: cc_.neg(r, a); break;
    case Op::kNot:
      if (f == Form::kBool)
        cc_.eor(r, a, 1);
      else
        cc_.mvn(r, a);
      break;
    case Op::kMin:
    case Op::kMax: cc_.cmp(a, b); return {choose(op == Op::kMin ? CondCode::kLE : CondCode::kGE, a, b), {}};
    case Op::kAbs: return {wrapped(f, magnitude(a)), {}};
    case Op::kDiv:
    case Op::kRem:
    case Op::kFloorDiv: return {wrapped(f, divide(op, a, b)), {}};
    case Op::kPow: return {wrapped(f, power(a, b)), {}};
    case Op::kGcd: return {wrapped(f, gcd(a, b)), {}};
    default: fail_internal("codegen: ", name(op), " of integers");
  }
  return {wrapped(f, r), {}};
}

a64::Gp KernelEmitter::compare(Op op, Form f, const Value& a, const Value& b) {
  static const CondCode kReal[] = {CondCode::kEQ, CondCode::kNE, CondCode::kMI,
                                   CondCode::kLS, CondCode::kGT, CondCode::kGE};
  static const CondCode kWhole[] = {CondCode::kEQ, CondCode::kNE, CondCode::kLT,
                                    CondCode::kLE, CondCode::kGT, CondCode::kGE};
  const int at = int(op) - int(Op::kEq);
  if (f == Form::kF64)
    cc_.fcmp(a.real.d(), b.real.d());
  else if (is_real(f))
    cc_.fcmp(a.real.s(), b.real.s());
  else
    cc_.cmp(a.whole, b.whole);
  return set_if(is_real(f) ? kReal[at] : kWhole[at]).reg;
}

// Truncates a float to an integer. NaN, and values that do not fit, give the smallest i64 or i32.
a64::Gp KernelEmitter::truncated(Form from, Form to, const Value& a) {
  const bool wide = to == Form::kI64;
  const a64::Gp r = cc_.newInt64(), least = number(wide ? INT64_MIN : INT32_MIN);
  const double limit = wide ? 9223372036854775808.0 : 2147483648.0;
  const a64::Vec v = view_of(a.real, from == Form::kF64);
  cc_.fcvtzs(view_of(r, wide), v);
  cc_.fcmp(v, from == Form::kF64 ? F64(limit).view() : F32(limit).view());
  const a64::Gp fits = choose(CondCode::kMI, r, least);
  return wide ? fits : wrapped(to, wrapped(Form::kI32, fits));
}

Value KernelEmitter::cast(Form from, Form to, const Value& a) {
  if (from == to) return a;
  if (to == Form::kBool) {
    if (!is_real(from))
      cc_.cmp(a.whole, 0);
    else
      return {compare(Op::kNe, from, a, constant(from, 0, 0)), {}};
    return {set_if(CondCode::kNE).reg, {}};
  }
  if (!is_real(to)) return {is_real(from) ? truncated(from, to, a) : wrapped(to, a.whole), {}};
  if (!is_real(from)) {
    if (to == Form::kF64) {
      const F64 d = F64::fresh();
      cc_.scvtf(d.view(), a.whole);
      return {{}, d.reg};
    }
    const F32 s = F32::fresh();
    cc_.scvtf(s.view(), a.whole);
    return {{}, rounded(to, s.reg)};
  }
  if (to == Form::kF64) return {{}, widen(F32(a.real)).reg};
  return {{}, rounded(to, from == Form::kF64 ? narrow(F64(a.real)).reg : a.real)};
}

Value KernelEmitter::random(const Inst& in, Form f, const a64::Gp& index) {
  I64 call = I64::fresh(), seed = I64::fresh();
  cc_.ldr(call.reg, head(offsetof(BlockHead, call)));
  cc_.ldr(seed.reg, head(offsetof(BlockHead, seed)));
  if (in.arg) call = call + I64(in.arg);
  const loop::Words<I64> w = loop::philox(I64(index), call, seed);
  if (in.op == Op::kRandBits) return {loop::random_bits(w).reg, {}};
  const bool wide = f == Form::kF64;
  if (in.op == Op::kNormal) {
    return {{}, wide ? loop::normal_double<F64>(w).reg : rounded(f, loop::normal_single<F64>(w).reg)};
  }
  const F64 d = wide ? loop::unit_double<F64>(w.w[0], w.w[1]) : loop::unit_single<F64>(w.word(0));
  return {{}, wide ? d.reg : rounded(f, narrow(d).reg)};
}

}  // namespace lutra::arm64
