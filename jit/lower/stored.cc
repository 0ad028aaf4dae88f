// Converts stored dtypes to computed ones and back, as to() does, by instructions that every backend has. Unsigned
// integers are handled as the bits of signed ones; a float8 is split into its fields.
#include <cmath>

#include "jit/lower/element.h"

namespace lutra {
namespace {

using loop::Op;

constexpr DType kI64 = DType::kInt64, kF32 = DType::kFloat32, kMask = DType::kBool;

// A float8 format. mantissa, exponents: the bits of these fields. least: the exponent of the smallest normal number.
// beyond: the smallest encoding that is not finite.
struct Float8 {
  int mantissa, least, exponents, beyond;
};
Float8 format_of(DType t) { return t == DType::kFloat8E4M3FN ? Float8{3, -6, 4, 0x7f} : Float8{2, -14, 5, 0x7c}; }

struct Writer {
  Element& x;
  FunctionBuilder& b = x.body();
  int32_t op(Op o, DType t, int32_t p, int32_t q = -1, int32_t r = -1) { return b.op(o, t, p, q, r); }
  int32_t f32(double v) { return b.constant(kF32, v); }
  int32_t i64(int64_t v) { return b.constant_int(kI64, v); }
  int32_t test(Op o, int32_t p, int32_t q) { return b.op(o, kMask, p, q); }
  int32_t select(DType t, int32_t c, int32_t p, int32_t q) { return b.op(Op::kSelect, t, c, p, q); }

  // Returns an unsigned integer's value as an int64; of a uint64 its bits.
  int32_t whole(int32_t v, DType from) {
    v = b.cast(v, kI64);
    return size_of(from) == 8 ? v : op(Op::kAnd, kI64, v, i64(int64_t((uint64_t(1) << 8 * size_of(from)) - 1)));
  }

  // Converts the bits of a uint64 to a float: converts half of it, which keeps the bit that rounding depends on, and
  // doubles the result.
  int32_t float_of_uint64(int32_t v, DType to) {
    const DType t = at_least_float32(to);
    const int32_t shifted = op(Op::kAnd, kI64, op(Op::kFloorDiv, kI64, v, i64(2)), i64(INT64_MAX));
    const int32_t half = b.cast(op(Op::kOr, kI64, shifted, op(Op::kAnd, kI64, v, i64(1))), t);
    return select(t, test(Op::kLt, v, i64(0)), op(Op::kAdd, t, half, half), b.cast(v, t));
  }

  int32_t uint64_of_float(int32_t v, DType t) {
    const int32_t limit = b.constant(t, 0x1p63);
    const int32_t above = op(Op::kXor, kI64, b.cast(op(Op::kSub, t, v, limit), kI64), i64(INT64_MIN));
    return select(kI64, test(Op::kGe, v, limit), above, b.cast(v, kI64));
  }

  // Computes (mantissa, with its leading bit for a normal number) times a power of two, which is the product of the
  // exponent bits' factors.
  int32_t float_of_float8(int32_t bits, const Float8& f) {
    const int32_t v = op(Op::kAnd, kI64, b.cast(bits, kI64), i64(0xff)), zero = i64(0);
    const auto has = [&](int64_t mask) { return test(Op::kNe, op(Op::kAnd, kI64, v, i64(mask)), zero); };
    const int64_t fields = ((int64_t(1) << f.exponents) - 1) << f.mantissa;
    const int32_t low = op(Op::kAnd, kI64, v, i64((1 << f.mantissa) - 1)), normal = has(fields);
    int32_t scale = f32(std::ldexp(1.0, f.least - f.mantissa - 1));
    for (int k = 0; k < f.exponents; k++) {
      const int32_t factor = select(kF32, has(int64_t(1) << (f.mantissa + k)), f32(std::ldexp(1.0, 1 << k)), f32(1));
      scale = op(Op::kMul, kF32, scale, factor);
    }
    scale = select(kF32, normal, scale, f32(std::ldexp(1.0, f.least - f.mantissa)));
    const int32_t leading = select(kF32, normal, f32(1 << f.mantissa), f32(0));
    int32_t r = op(Op::kMul, kF32, op(Op::kAdd, kF32, b.cast(low, kF32), leading), scale);
    const int32_t size = op(Op::kAnd, kI64, v, i64(0x7f)), edge = i64(f.beyond);
    const double there = f.beyond == 0x7f ? NAN : INFINITY;
    r = select(kF32, test(Op::kEq, size, edge), f32(there), r);
    r = select(kF32, test(Op::kGt, size, edge), f32(NAN), r);
    return op(Op::kCopysign, kF32, r, select(kF32, has(0x80), f32(-1), f32(1)));
  }

  // Finds the exponent by binary search. Rounds the mantissa to the nearest, ties to even, by adding 2^23.
  int32_t float8_of_float(int32_t v, const Float8& f) {
    int32_t s = op(Op::kMul, kF32, op(Op::kAbs, kF32, v), f32(std::ldexp(1.0, -f.least))), exponent = f32(0);
    for (int k = f.exponents - 1; k >= 0; k--) {
      const int32_t large = test(Op::kGe, s, f32(std::ldexp(1.0, 1 << k)));
      s = select(kF32, large, op(Op::kMul, kF32, s, f32(std::ldexp(1.0, -(1 << k)))), s);
      exponent = op(Op::kAdd, kF32, exponent, select(kF32, large, f32(1 << (k + f.mantissa)), f32(0)));
    }
    const int32_t magic = f32(8388608.0), steps = op(Op::kMul, kF32, s, f32(1 << f.mantissa));
    const int32_t rounded = op(Op::kSub, kF32, op(Op::kAdd, kF32, steps, magic), magic);
    const int32_t beyond = f32(f.beyond), sum = op(Op::kAdd, kF32, exponent, rounded);
    int32_t size = select(kF32, test(Op::kLt, sum, beyond), sum, beyond);
    size = select(kF32, test(Op::kNe, v, v), f32(0x7f), size);
    const int32_t negative = test(Op::kLt, op(Op::kCopysign, kF32, f32(1), v), f32(0));
    return b.cast(op(Op::kAdd, kF32, size, select(kF32, negative, f32(0x80), f32(0))), kI64);
  }
};

}  // namespace

int32_t converted(Element& x, int32_t v, DType from, DType to) {
  if (from == to) return v;
  const bool pairs = is_complex(from);
  if (pairs && (is_complex(to) || !is_stored(to))) return x.body().cast(v, to);
  if (pairs || is_complex(to)) {
    const DType part = info(pairs ? from : to).carrier;
    if (pairs) return converted(x, x.body().cast(v, part), part, to);
    return x.body().cast(is_stored(from) ? converted(x, v, from, part) : v, to);
  }
  Writer w{x};
  DType t = from;
  if (is_stored(from)) {
    const bool wide = is_int(from) && size_of(from) == 8;
    t = is_float(from) ? kF32 : kI64;
    v = is_float(from) ? w.float_of_float8(v, format_of(from)) : w.whole(v, from);
    if (wide && is_float(to)) v = w.float_of_uint64(v, to), t = at_least_float32(to);
  }
  if (!is_stored(to)) return w.b.cast(v, to);
  if (is_float(to)) return w.b.cast(w.float8_of_float(w.b.cast(v, kF32), format_of(to)), to);
  if (!is_float(t) || size_of(to) < 8) return w.b.cast(w.b.cast(v, kI64), to);
  v = w.b.cast(v, at_least_float32(t));
  return w.uint64_of_float(v, at_least_float32(t));
}

}  // namespace lutra
