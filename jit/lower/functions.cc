// Mathematical functions and bit operations of pointwise ops, as instructions and formulas over them. Formulas are
// computed in float64 and rounded once, so float32 results are within one unit in the last place.
#include <algorithm>
#include <cmath>

#include "jit/lower/element.h"
#include "ops/core/float_format.h"

namespace lutra {
namespace {

using loop::Op;

// A value under construction. Formulas are C++ expressions over Num and Bool.
struct Num {
  Element* x;
  DType t;
  int32_t v;
  Num made(Op op, Num b) const { return {x, t, x->op(op, t, v, b.v)}; }
  Num made(Op op) const { return {x, t, x->op(op, t, v)}; }
  Num number(double c) const { return {x, t, x->number(t, c)}; }
};
struct Bool {
  Element* x;
  int32_t v;
};
#define LUTRA_NUM_OPERATOR(sign, code)                                         \
  Num operator sign(Num a, Num b) { return a.made(Op::code, b); }              \
  Num operator sign(Num a, double b) { return a.made(Op::code, a.number(b)); } \
  Num operator sign(double a, Num b) { return b.number(a).made(Op::code, b); }
LUTRA_NUM_OPERATOR(+, kAdd)
LUTRA_NUM_OPERATOR(-, kSub)
LUTRA_NUM_OPERATOR(*, kMul)
LUTRA_NUM_OPERATOR(/, kDiv)
#undef LUTRA_NUM_OPERATOR
#define LUTRA_NUM_COMPARE(sign, code)                                                           \
  Bool operator sign(Num a, Num b) { return {a.x, a.x->op(Op::code, DType::kBool, a.v, b.v)}; } \
  [[maybe_unused]] Bool operator sign(Num a, double b) { return a sign a.number(b); }
LUTRA_NUM_COMPARE(<, kLt)
LUTRA_NUM_COMPARE(<=, kLe)
LUTRA_NUM_COMPARE(>, kGt)
LUTRA_NUM_COMPARE(>=, kGe)
LUTRA_NUM_COMPARE(==, kEq)
LUTRA_NUM_COMPARE(!=, kNe)
#undef LUTRA_NUM_COMPARE
Bool operator&(Bool a, Bool b) { return {a.x, a.x->op(Op::kAnd, DType::kBool, a.v, b.v)}; }
Bool operator|(Bool a, Bool b) { return {a.x, a.x->op(Op::kOr, DType::kBool, a.v, b.v)}; }
Num select(Bool m, Num a, Num b) { return {a.x, a.t, a.x->op(Op::kSelect, a.t, m.v, a.v, b.v)}; }
Num select(Bool m, double a, Num b) { return select(m, b.number(a), b); }
Num select(Bool m, Num a, double b) { return select(m, a, a.number(b)); }
Num abs(Num a) { return a.made(Op::kAbs); }
Num exp(Num a) { return a.made(Op::kExp); }
Num log(Num a) { return a.made(Op::kLog); }
Num sqrt(Num a) { return a.made(Op::kSqrt); }
Num floor(Num a) { return a.made(Op::kFloor); }
Num sin(Num a) { return a.made(Op::kSin); }
Num cos(Num a) { return a.made(Op::kCos); }
Num expm1(Num a) { return a.made(Op::kExpm1); }
Num log1p(Num a) { return a.made(Op::kLog1p); }
Num atan2(Num y, Num x) { return y.made(Op::kAtan2, x); }
Num copysign(Num a, Num b) { return a.made(Op::kCopysign, b); }
Num pow(Num a, Num b) { return a.made(Op::kPow, b); }

Num argument(Element& x, size_t k, DType t) { return {&x, t, x.arg(k, t)}; }
// wide() returns the argument in float64; rounded() converts a result back.
Num wide(Element& x, size_t k = 0) { return argument(x, k, DType::kFloat64); }
int32_t rounded(Num v) { return v.x->body().cast(v.v, v.x->type()); }
// Returns true if float64 has many more bits than the result, so that cancelling a few of them does not matter.
bool is_narrow(const Element& x) { return size_of(x.type()) < 8; }
// e^100 is more than a float32 holds.
Num limited(Num m) { return select(m > 100.0, 100.0, m); }

// Returns the type for functions of bits and whole numbers: float32 for half types.
DType whole_type(DType t) { return at_least_float32(t); }

Num trunc(Num a) { return select(a < 0.0, a.made(Op::kCeil), a.made(Op::kFloor)); }

// Rounds to the nearest whole number, ties to even: adding 2^mantissa leaves no fraction.
Num round_half_even(Num a) {
  double magic = a.t == DType::kFloat64 ? 4503599627370496.0 : 8388608.0;
  Num m = abs(a);
  return select(m < magic, copysign((m + magic) - magic, a), a);
}

int32_t one_argument(Element& x, Op op) { return x.op(op, x.type(), x.arg(0, x.type())); }

// y shifted up to 8 or more, where lgamma and the polygammas are computed. Also the product of y, y + 1, ..., y + 7,
// and the sums of their inverses and squared inverses; 1, 0 and 0 without a shift.
struct Shifted {
  Num at, product, inverse_sum, inverse_squares;
};
Shifted shift_up(Num y) {
  Num product = y, sum = 1.0 / y, squares = sum * sum;
  for (int k = 1; k < 8; k++) {
    Num next = y + double(k), inverse = 1.0 / next;
    product = product * next, sum = sum + inverse, squares = squares + inverse * inverse;
  }
  Bool low = y < 8.0;
  return {select(low, y + 8.0, y), select(low, product, 1.0), select(low, sum, 0.0), select(low, squares, 0.0)};
}
// c[0] + c[1]*z + ...
Num series(Num z, std::initializer_list<double> c) {
  auto it = c.end();
  Num p = z.number(*--it);
  while (it != c.begin()) p = p * z + *--it;
  return p;
}
// pi times the distance to the nearest whole number, with its sign.
Num pi_fraction(Num a) { return (a - round_half_even(a)) * M_PI; }

}  // namespace

int32_t truncated(Element& x, DType t, int32_t v) {
  DType at = whole_type(t);
  return x.body().cast(trunc(Num{&x, at, x.body().cast(v, at)}).v, t);
}

int32_t pointwise_sin(Element& x) { return one_argument(x, Op::kSin); }
int32_t pointwise_cos(Element& x) { return one_argument(x, Op::kCos); }
int32_t pointwise_erf(Element& x) { return one_argument(x, Op::kErf); }
int32_t pointwise_erfc(Element& x) { return one_argument(x, Op::kErfc); }
int32_t pointwise_expm1(Element& x) { return one_argument(x, Op::kExpm1); }
int32_t pointwise_log1p(Element& x) { return one_argument(x, Op::kLog1p); }
int32_t pointwise_tan(Element& x) { return one_argument(x, Op::kTan); }
int32_t pointwise_asin(Element& x) { return one_argument(x, Op::kAsin); }
int32_t pointwise_acos(Element& x) { return one_argument(x, Op::kAcos); }
int32_t pointwise_atan(Element& x) { return one_argument(x, Op::kAtan); }
int32_t pointwise_atan2(Element& x) { return atan2(argument(x, 0, x.type()), argument(x, 1, x.type())).v; }
int32_t pointwise_sinh(Element& x) {
  if (is_narrow(x)) {
    Num a = wide(x), m = limited(abs(a)), e = exp(m);
    Num r = select(m < 0x1p-10, m + m * m * m * (1.0 / 6), (e - 1.0 / e) * 0.5);
    return rounded(copysign(r, a));
  }
  Num a = wide(x), m = abs(a), e = expm1(m), half = exp(m * 0.5);
  Num r = select(m < 709.0, (e + e / (e + 1.0)) * 0.5, half * 0.5 * half);
  return rounded(copysign(r, a));
}
int32_t pointwise_cosh(Element& x) {
  if (is_narrow(x)) {
    Num e = exp(limited(abs(wide(x))));
    return rounded((e + 1.0 / e) * 0.5);
  }
  Num m = abs(wide(x)), e = exp(m), half = exp(m * 0.5);
  return rounded(select(m < 709.0, (e + 1.0 / e) * 0.5, half * 0.5 * half));
}
int32_t pointwise_asinh(Element& x) {
  Num a = wide(x), m = abs(a), s = m * m;
  Num r = select(m < 1e8, log1p(m + s / (sqrt(s + 1.0) + 1.0)), log(m) + M_LN2);
  return rounded(copysign(r, a));
}
int32_t pointwise_acosh(Element& x) {
  Num a = wide(x), t = a - 1.0;
  Num r = select(a < 1e8, log1p(t + sqrt(t * 2.0 + t * t)), log(a) + M_LN2);
  return rounded(select(a < 1.0, NAN, r));
}
int32_t pointwise_atanh(Element& x) { return one_argument(x, Op::kAtanh); }
int32_t pointwise_normal_cdf(Element& x) { return one_argument(x, Op::kNormalCdf); }
int32_t pointwise_exp2(Element& x) { return one_argument(x, Op::kExp2); }
int32_t pointwise_log2(Element& x) { return one_argument(x, Op::kLog2); }
int32_t pointwise_log10(Element& x) { return one_argument(x, Op::kLog10); }

int32_t pointwise_erfinv(Element& x) { return one_argument(x, Op::kErfinv); }

int32_t pointwise_lgamma(Element& x) {
  Num a = wide(x);
  Bool reflect = a < 0.5;
  Num y = select(reflect, 1.0 - a, a);
  Shifted s = shift_up(y);
  Num i = 1.0 / s.at;
  Num tail = i * series(i * i, {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360, 1.0 / 156});
  Num r = (s.at - 0.5) * log(s.at) - s.at + (0.91893853320467274 + tail);
  // Subtracts log(product). The reflected value is log(pi / |sin|) minus that. Near 0 it is log(1 / |a|), since pi /
  // |sin| may overflow.
  Bool tiny = abs(a) < 1e-20;
  Num rest = log(select(tiny, abs(a), select(reflect, s.product * M_PI / abs(sin(pi_fraction(a))), s.product)));
  r = select(tiny, 0.0 - rest, select(reflect, rest - r, r - rest));
  r = select((a == 1.0) | (a == 2.0), 0.0, r);
  return rounded(select(abs(a) == INFINITY, INFINITY, r));
}

// Returns an infinity with the sign of the zero at the pole 0, and NaN at the other poles.
int32_t pointwise_digamma(Element& x) {
  Num a = wide(x);
  Bool reflect = a < 0.0;
  Num y = select(reflect, 1.0 - a, a);
  Shifted s = shift_up(y);
  Num i = 1.0 / s.at, z = i * i;
  Num tail = z * series(z, {-1.0 / 12, 1.0 / 120, -1.0 / 252, 1.0 / 240, -1.0 / 132, 691.0 / 32760, -1.0 / 12});
  Num r = log(s.at) - i * 0.5 + tail - s.inverse_sum;
  Num f = pi_fraction(a);
  r = select(reflect, r - M_PI * cos(f) / sin(f), r);
  r = select(reflect & (floor(a) == a), NAN, r);
  r = select(a == INFINITY, INFINITY, r);
  return rounded(select(a == 0.0, copysign(a.number(INFINITY), a * -1.0), r));
}

namespace {
int32_t trigamma(Element& x) {
  Num a = wide(x);
  Bool reflect = a < 0.5;
  Num y = select(reflect, 1.0 - a, a);
  Shifted s = shift_up(y);
  Num i = 1.0 / s.at, z = i * i;
  Num tail = series(z, {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6});
  Num r = i + z * 0.5 + z * i * tail + s.inverse_squares;
  Num f = M_PI / sin(pi_fraction(a));
  return rounded(select(reflect, f * f - r, r));
}

// The sum of (y + k)^-s over k from 0 on, y > 0: ten terms, then Euler's and Maclaurin's formula.
Num hurwitz_zeta(double s, Num y) {
  Num minus_s = y.number(-s), sum = pow(y, minus_s);
  for (int k = 1; k < 10; k++) sum = sum + pow(y + double(k), minus_s);
  // (2k)! / B(2k) from the last k on
  static const double kDivisors[] = {
      -2950130727918.1642245, 74724249600.0, -1307674368000.0 / 691, 47900160, -1209600, 30240, -720, 12};
  Num at = y + 10.0, z = 1.0 / (at * at), tail = y.number(0);
  double n = 14;
  for (const double divisor : kDivisors) {
    tail = tail * z * ((s + n) * (s + n + 1)) + 1 / divisor;
    n -= 2;
  }
  return sum + pow(at, minus_s) * (at / (s - 1) + 0.5 + tail * s / at);
}

// The polynomial p for which p(cot y) is the n-th derivative of cot y: that of c^k is -k (c^(k-1) + c^(k+1)).
std::vector<double> cot_derivative(int64_t n) {
  std::vector<double> p{0, 1};
  for (; n > 0; n--) {
    std::vector<double> next(p.size() + 1, 0.0);
    for (size_t k = 1; k < p.size(); k++) next[k - 1] -= double(k) * p[k], next[k + 1] -= double(k) * p[k];
    p = next;
  }
  return p;
}
}  // namespace

int32_t pointwise_polygamma(Element& x) {
  const int64_t n = x.node.args[1].as<Scalar>().to_int();
  if (n == 0) return pointwise_digamma(x);
  if (n == 1) return trigamma(x);
  constexpr int64_t kMost = 170;  // the factorials beyond are infinite
  const double sign = n % 2 ? 1 : -1, scale = sign * std::tgamma(double(n) + 1);
  Num a = wide(x);
  Bool reflect = a < 0.0;
  Num r = hurwitz_zeta(double(n) + 1, select(reflect, 1.0 - a, a)) * scale;
  Num f = pi_fraction(a), cot = cos(f) / sin(f), slope = a.number(0);
  const std::vector<double> p = cot_derivative(std::min(n, kMost));
  for (size_t k = p.size(); k-- > 0;) slope = slope * cot + p[k];
  r = select(reflect, r * -sign - slope * std::pow(M_PI, double(n) + 1), r);
  return rounded(select(reflect & (floor(a) == a), sign * INFINITY, r));
}

namespace {
// x as m * 2^e with m in [1/2, 1). The exponent comes from the logarithm, and is corrected by at most one. 0, Inf and
// NaN are their own mantissas.
struct Frexp {
  Num mantissa, exponent;
};
Frexp frexp(Element& x) {
  Num a = argument(x, 0, DType::kFloat64), m = abs(a);
  Bool plain = (m > 0.0) & (m < INFINITY), tiny = m<0x1p-1000, huge = m> 0x1p1000;
  Num s = select(plain, m * select(tiny, 0x1p60, select(huge, 0x1p-60, m.number(1))), 1.0);
  Num offset = select(tiny, -60.0, select(huge, 60.0, m.number(0)));
  Num e = floor(log(s) * (1 / M_LN2)) + 1.0, r = s * pow(s.number(2), e * -1.0);
  Bool above = r >= 1.0, below = r < 0.5;
  r = select(above, r * 0.5, select(below, r * 2.0, r));
  e = select(above, e + 1.0, select(below, e - 1.0, e));
  return {select(plain, copysign(r, a), a), select(plain, e + offset, 0.0)};
}
}  // namespace
int32_t pointwise_frexp_mantissa(Element& x) { return rounded(frexp(x).mantissa); }
int32_t pointwise_frexp_exponent(Element& x) { return rounded(frexp(x).exponent); }

int32_t pointwise_hypot(Element& x) {
  Num a = abs(wide(x, 0)), b = abs(wide(x, 1));
  Bool infinite = (a == INFINITY) | (b == INFINITY);
  if (x.type() != DType::kFloat64) return rounded(select(infinite, INFINITY, sqrt(a * a + b * b)));
  Num most = select(a < b, b, a), least = select(a < b, a, b), q = least / select(most == 0.0, 1.0, most);
  return select(infinite, INFINITY, most * sqrt(q * q + 1.0)).v;
}

int32_t pointwise_copysign(Element& x) { return copysign(argument(x, 0, x.type()), argument(x, 1, x.type())).v; }
int32_t pointwise_signbit(Element& x) {
  if (is_bool(x.type_of(0))) return x.body().constant_int(DType::kBool, 0);
  Num a = argument(x, 0, x.type_of(0));
  return is_float(a.t) ? (copysign(a.number(1), a) < 0.0).v : (a < 0.0).v;
}
int32_t pointwise_trunc(Element& x) {
  return is_float(x.type()) ? truncated(x, x.type(), x.arg(0, x.type())) : x.arg(0, x.type());
}
// Rounds to `decimals` as PyTorch does: scales by a power of ten, rounds, and scales back.
int32_t pointwise_round(Element& x) {
  if (!is_float(x.type())) return x.arg(0, x.type());
  Num a = argument(x, 0, whole_type(x.type()));
  int64_t decimals = x.node.args[1].as<Scalar>().to_int();
  if (decimals == 0) return rounded(round_half_even(a));
  double ten = std::pow(10.0, double(std::abs(decimals)));
  if (decimals < 0) return rounded(round_half_even(a / ten) * ten);
  return rounded(round_half_even(a * ten) / ten);
}
int32_t pointwise_fmax(Element& x) {
  if (!is_float(x.type())) return pointwise_maximum(x);
  Num a = argument(x, 0, x.type()), b = argument(x, 1, x.type());
  return select((a >= b) | (b != b), a, b).v;
}
int32_t pointwise_fmin(Element& x) {
  if (!is_float(x.type())) return pointwise_minimum(x);
  Num a = argument(x, 0, x.type()), b = argument(x, 1, x.type());
  return select((a <= b) | (b != b), a, b).v;
}
// For half types by Rump, Zimmermann, Boldo and Melquiond, "Computing predecessor and successor in rounding to
// nearest": adds a share of the number that is more than half of its last place. Near zero it adds the least step. In
// between it scales the number up first.
int32_t pointwise_nextafter(Element& x) {
  const DType type = x.result()->dtype, t = whole_type(type);
  if (t == type) return x.op(Op::kNextAfter, t, x.arg(0, t), x.arg(1, t));
  const FloatFormat f = float_format(type);
  const double u = std::exp2(-f.digits), share = u * (1 + 2 * u);
  Num a = {&x, t, x.body().cast(x.arg(0, type), t)}, b = {&x, t, x.body().cast(x.arg(1, type), t)};
  Num m = abs(a), sign = select(b > a, 1.0, a.number(-1));
  Num scaled = (a * (1 / u) + sign * (m * (1 / u) * share)) * u;
  Num r = select(m < f.least / u, a + sign * f.least, select(m < f.least / u / u / 2, scaled, a + sign * (m * share)));
  r = select(m == INFINITY, copysign(a.number(f.most), a), r);
  r = select(r == 0.0, copysign(a.number(0), a), r);
  r = select(a == b, b, r);
  return rounded(select((a == a) & (b == b), r, NAN));
}
int32_t pointwise_positive(Element& x) { return x.arg(0, x.type()); }

int32_t pointwise_gcd(Element& x) { return argument(x, 0, x.type()).made(Op::kGcd, argument(x, 1, x.type())).v; }
int32_t pointwise_lcm(Element& x) {
  Num a = argument(x, 0, x.type()), b = argument(x, 1, x.type()), g = a.made(Op::kGcd, b);
  return select(g == 0.0, 0.0, abs(a / select(g == 0.0, 1.0, g) * b)).v;
}

namespace {
int32_t bitwise(Element& x, Op op) { return x.op(op, x.type(), x.arg(0, x.type()), x.arg(1, x.type())); }

// The operand of a shift, 2 to the power of its amount, and whether the amount is in [0, bits).
struct Shift {
  Num value, power;
  Bool inside;
};
Shift shift(Element& x, int bits) {
  Num a = argument(x, 0, x.type()), n = argument(x, 1, x.type());
  Bool inside = (n >= 0.0) & (n < double(bits));
  return {a, pow(n.number(2), select(inside, n, 0.0)), inside};
}
int bits_of(DType t) { return int(size_of(t)) * 8; }
}  // namespace

int32_t pointwise_bitwise_and(Element& x) { return bitwise(x, Op::kAnd); }
int32_t pointwise_bitwise_or(Element& x) { return bitwise(x, Op::kOr); }
int32_t pointwise_bitwise_xor(Element& x) { return bitwise(x, Op::kXor); }
int32_t pointwise_bitwise_not(Element& x) { return x.op(Op::kNot, x.type(), x.arg(0, x.type())); }
int32_t pointwise_bitwise_left_shift(Element& x) {
  Shift s = shift(x, bits_of(x.type()));
  return select(s.inside, s.value * s.power, 0.0).v;
}
// Divides by a power of two, rounding down. A larger shift leaves copies of the sign.
int32_t pointwise_bitwise_right_shift(Element& x) {
  bool is_signed = x.type() != DType::kUInt8;
  Shift s = shift(x, bits_of(x.type()) - int(is_signed));
  Num down = s.value.made(Op::kFloorDiv, s.power);
  return select(s.inside, down, is_signed ? select(s.value < 0.0, s.value.number(-1), 0.0) : s.value.number(0)).v;
}

}  // namespace lutra
