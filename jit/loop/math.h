// exp, log, erf, expm1, log1p, parts of other functions (functions.h), floor_divide, remainder, Philox and Box-Muller,
// without branches, in IEEE basic operations over a value type: numbers for the interpreter, registers for the code
// generators. So both agree bit for bit. Coefficients are weighted minimax fits; tests check the error bounds.
//
// A value type F (32 or 64 bit floats) has these, found by argument-dependent lookup or in scalar_math.h:
//   F(double), + - * / and comparisons to MaskOf<F>;  mul_add(a, b, c) rounded once;  fma_into(p, x, c): p = p*x + c
//   root(x), floor_of(x);  lower(c, x): c < x ? c : x;  raise(c, x): c > x ? c : x  (so NaN in x stays)
//   bits(x) to IntOf<F>, floating(i) back;  select(mask, a, b);  masks have & | !
//   widen(F32) to F64, narrow(F64) to F32;  fmod_of(a, b) exact
//   rarely(m, r, x, f): f(x) where m holds, else r; code may skip f if m holds in no lane
// and its integers have + - & | ^, shl(i, n), shr(i, n); those of 64 bits mul32(a, b), the product of the low halves.
// All of it must exist in AVX2 with FMA: no scalef, getexp, reciprocal estimates or 64-bit arithmetic shifts.
// The text is also part of generated CUDA kernels (jit/codegen/cuda), which have no standard headers.
#ifndef __CUDACC_RTC__
#pragma once
#include <cstdint>
#include <limits>
#endif
#define LUTRA_LOOP_MATH

namespace lutra::loop {

template <class F>
struct FloatTraits;  // Int, Mask, kBits, Wide (of 32-bit floats), Narrow (of 64-bit floats)
template <class F>
using IntOf = typename FloatTraits<F>::Int;
template <class F>
using MaskOf = typename FloatTraits<F>::Mask;

#ifdef __CUDACC_RTC__
#define kInf __longlong_as_double(0x7ff0000000000000ll)
#define kNaN __longlong_as_double(0x7ff8000000000000ll)
#else
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
#endif

// c[0]*x^n + ... + c[n]
template <class F, int kCount>
F horner(const F& x, const double (&c)[kCount]) {
  F p(c[0]);
#ifdef __CUDACC_RTC__
#pragma unroll
#endif
  for (int i = 1; i < kCount; i++) fma_into(p, x, F(c[i]));
  return p;
}

// The same from z = x^2, as a polynomial of z whose coefficients are pairs: half as many steps wait for each other.
template <class F, int kCount>
F paired(const F& x, const F& z, const double (&c)[kCount]) {
  F p(c[0]);
  if (kCount % 2 == 0) fma_into(p, x, F(c[1]));
#ifdef __CUDACC_RTC__
#pragma unroll
#endif
  for (int i = 2 - kCount % 2; i < kCount; i += 2) {
    F pair(c[i]);
    fma_into(pair, x, F(c[i + 1]));
    fma_into(p, z, pair);
  }
  return p;
}

template <class F>
F magnitude(const F& x) {
  using I = IntOf<F>;
  return floating(bits(x) & I(FloatTraits<F>::kBits == 32 ? 0x7fffffffll : 0x7fffffffffffffffll));
}
template <class F>
F with_sign_of(const F& x, const F& sign) {
  using I = IntOf<F>;
  const I mask(FloatTraits<F>::kBits == 32 ? 0x80000000ll : int64_t(1ull << 63));
  return floating(bits(x) | (bits(sign) & mask));
}

// p * 2^(m - twice the exponent's bias). Multiplies by two factors, so that denormal results are rounded once.
template <class F>
F times_power(const F& p, const IntOf<F>& m) {
  constexpr int kMantissa = FloatTraits<F>::kBits == 32 ? 23 : 52;
  IntOf<F> half = shr(m, 1);
  return p * floating(shl(half, kMantissa)) * floating(shl(m - half, kMantissa));
}

// e^(x + tail) / 2^n, |tail| tiny. n is x / log(2), rounded.
template <class F>
F exp_fraction(const F& x, const F& n, const F* tail) {
  constexpr bool kSingle = FloatTraits<F>::kBits == 32;
  F r = mul_add(n, F(kSingle ? -0.693115234 : -0.69314718060195446), x);
  r = mul_add(n, F(kSingle ? -3.19461849e-05 : 4.2009150726810846e-11), r);
  if (tail) r = r + *tail;
  F z = r * r;
  F p = kSingle ? horner(r, {0.001394936, 0.00836927257, 0.0416662246, 0.166665167, 0.5})
                : paired(r, z,
                         {2.0926488717857311e-09, 2.5113130573964014e-08, 2.7557235298893101e-07,
                          2.7557231830236806e-06, 2.4801587370689493e-05, 0.00019841269899272587, 0.0013888888888860587,
                          0.0083333333333159513, 0.04166666666666672, 0.16666666666666685, 0.5});
  return mul_add(p, z, r) + F(1.0);
}

// e^(x + tail).
template <class F>
F exp_sum(const F& x, const F* tail) {
  constexpr bool kSingle = FloatTraits<F>::kBits == 32;
  // Adding 1.5 * 2^mantissa rounds to whole numbers. Twice the exponent's bias is added, too, so that n is nonnegative.
  const double magic = kSingle ? 12582912.0 + 254 : 6755399441055744.0 + 2046;
  F c = raise(F(kSingle ? -104.0 : -746.0), lower(F(kSingle ? 89.0 : 710.0), x));
  F t = mul_add(c, F(1.4426950408889634), F(magic));
  return times_power(exp_fraction(c, t - F(magic), tail), bits(t));
}

template <class F>
F exp_of(const F& x) {
  return exp_sum(x, static_cast<const F*>(nullptr));
}

// The bits of exp_of for x in [-80, 80], where a single power of two is exact. Returns NaN for NaN.
template <class F>
F exp_within(const F& x) {
  constexpr bool kSingle = FloatTraits<F>::kBits == 32;
  const double magic = kSingle ? 12582912.0 + 127 : 6755399441055744.0 + 1023;
  F t = mul_add(x, F(1.4426950408889634), F(magic));
  return exp_fraction(x, t - F(magic), static_cast<const F*>(nullptr)) * floating(shl(bits(t), kSingle ? 23 : 52));
}

// x > 0 as 2^e * m with m in [sqrt(1/2), sqrt(2)). Denormals are scaled first.
template <class F>
struct Parts {
  F m, e;
};
template <class F>
Parts<F> split_normal(const F& x) {
  using I = IntOf<F>;
  constexpr bool kSingle = FloatTraits<F>::kBits == 32;
  const double magic = kSingle ? 12582912.0 : 6755399441055744.0;
  const int64_t lowest = kSingle ? 0x3f3504f3ll : 0x3fe6a09e667f3bcdll;
  I moved = bits(x) + I((kSingle ? 0x3f800000ll : 0x3ff0000000000000ll) - lowest);
  F m = floating((moved & I(kSingle ? 0x7fffffll : 0xfffffffffffffll)) + I(lowest));
  return {m, floating(shr(moved, kSingle ? 23 : 52) + bits(F(magic))) - F(magic + (kSingle ? 127 : 1023))};
}
template <class F>
Parts<F> split_exponent(const F& x) {
  constexpr bool kSingle = FloatTraits<F>::kBits == 32;
  auto tiny = x < F(kSingle ? 1.17549435e-38 : 2.2250738585072014e-308);
  Parts<F> p = split_normal(select(tiny, x * F(kSingle ? 33554432.0 : 18014398509481984.0), x));
  return {p.m, p.e - select(tiny, F(kSingle ? 25.0 : 54.0), F(0.0))};
}

// Returns r for finite x > 0, and the values of log elsewhere.
template <class F>
F log_edges(const F& x, const F& r) {
  F edge = select(x < F(0.0), F(kNaN), F(-kInf));
  return select(x < F(kInf), select(x > F(0.0), r, edge), select(x == F(kInf), F(kInf), x));
}

// log(1 + f) in 32 bits, for f from sqrt(1/2) - 1 to sqrt(2) - 1.
template <class F>
F log_of_fraction(const F& f) {
  F z = f * f;
  F q = paired(f, z,
               {-0.0760869607, 0.128999352, -0.132458225, 0.141824648, -0.166088015, 0.200019553, -0.250015974,
                0.333333254, -0.499999881});
  return mul_add(q, z, f);
}
// The logarithm of 2^e * m.
template <class F>
F log_of_parts(const Parts<F>& p) {
  F f = p.m - F(1.0);
  if (FloatTraits<F>::kBits == 32) return mul_add(p.e, F(0.69314718), log_of_fraction(f));
  F s = f / (f + F(2.0));
  F z = s * s;
  F q = z * horner(z, {0.1326661550057841, 0.13248442184271134, 0.15387164822134439, 0.1818177397718779,
                       0.22222222667871722, 0.28571428568945201, 0.40000000000006697, 0.66666666666666663});
  F h = f * f * F(0.5);
  F low = mul_add(s, h + q, p.e * F(-4.2009150726810846e-11));
  return mul_add(p.e, F(0.69314718060195446), f - (h - low));
}
// Returns true if x is not a normal number above 0. Few numbers are such edges, so log_of skips their code. (The test
// is not a negation, for the reason given at needs_far_turns.)
template <class F>
MaskOf<F> is_edge_of_log(const F& x) {
  return (x < F(FloatTraits<F>::kBits == 32 ? 1.17549435e-38 : 2.2250738585072014e-308)) | (x - x != F(0.0));
}
template <class F>
F log_of(const F& x) {
  return rarely(is_edge_of_log(x), log_of_parts(split_normal(x)), x,
                [](const F& edge) { return log_edges(edge, log_of_parts(split_exponent(edge))); });
}

template <class D>
D tanh_double(const D& x) {
  D a = magnitude(x), z = x * x;
  D small = horner(z, {8.5605734667521709e-07, -4.6070723244645691e-06, 1.4637376808364009e-05, -3.8661954011416992e-05,
                       9.6704240147579585e-05, -0.00023907684274387383, 0.00059001805814197961, -0.0014558331747321783,
                       0.0035921279258912826, -0.0088632355229915465, 0.021869488535875437, -0.053968253968247247,
                       0.13333333333333325, -0.33333333333333331});
  small = mul_add(small, z * x, x);
  D large = D(1.0) - D(2.0) / (exp_of(a + a) + D(1.0));
  return with_sign_of(select(a < D(0.625), small, large), x);
}

// g = log(erfc(x)) for large x: erf = 1 - e^g.
template <class F>
F erf_of(const F& x) {
  F a = magnitude(x), z = x * x;
  F small, g;
  if (FloatTraits<F>::kBits == 32) {
    small = horner(z, {-2.95130394e-05, 0.000109362736, -8.25915049e-05, -0.000681405305, 0.00514177512, -0.0268449709,
                       0.112835228, -0.37612626, 0.128379166});
    g = horner(lower(F(4.0), a),
               {0.000186505844, -0.00294893514, 0.0218433272, -0.103118107, -0.63813132, -1.12709761, -0.000339379156});
  } else {
    small = horner(z, {-1.7473530518007336e-14, 4.1178637501137584e-13, -6.6394806670643255e-12, 9.4125955749056221e-11,
                       -1.228953428477318e-09, 1.4807118164924966e-08, -1.6365840677276008e-07, 1.6462114207161635e-06,
                       -1.4925650353833704e-05, 0.00012055332981695581, -0.00085483270234495143, 0.0052239776254421749,
                       -0.026866170645131252, 0.11283791670955126, -0.37612638903183754, 0.12837916709551256});
    g = horner(lower(F(6.0), a) - F(3.0),
               {-5.2476189426359314e-16, -7.4761462047478064e-15, -1.8350075508785308e-14, 1.8320659080603576e-14,
                2.2051514111376426e-13,  5.0365255743822106e-13,  -1.8411834216623452e-12, 6.6155840752490855e-12,
                -4.5259243416483012e-11, 1.9178093893339212e-10,  -6.0541456481259411e-10, 6.3467864255806997e-10,
                1.1455632695146391e-08,  -1.3618086283794049e-07, 1.0693893293225218e-06,  -7.1154631176189742e-06,
                4.3081791995507977e-05,  -0.00024569213403519488, 0.0013533104378104022,   -0.0074118917955935983,
                -0.95739421880123177,    -6.3037536890032326,     -10.720363041981113});
  }
  F large = F(1.0) - exp_within(g);
  return with_sign_of(select(a < F(1.0), mul_add(small, x, x), large), x);
}

// exp(-x^2) * (1 + 2x) * erfcx is a polynomial of (x - 4) / (x + 4) for x in [1/2, 28].
template <class D>
D erfc_double(const D& x) {
  D a = magnitude(x), c = lower(D(28.0), raise(D(0.5), a));
  D u = (c - D(4.0)) / (c + D(4.0));
  D p = horner(u, {1.9717656765049794e-09,  -9.652213521087604e-09,  -1.8406671051403966e-08, 1.03256669073015e-07,
                   7.540467350144586e-08,   -8.195085083459565e-07,  2.9313186423696087e-07,  5.706494720146254e-06,
                   -1.1221668942295945e-05, -2.4398057333996413e-05, 0.00015062155590137163,  -0.00019925696553927866,
                   -0.0007577732634973155,  0.00503197001856426,     -0.016197734061059108,   0.03716751553379472,
                   -0.06633036581196795,    0.09373283499853434,     -0.1010390660363143,     0.06809705425468844,
                   0.015379652102619901,    -0.1396211168405625,     1.2329951186255526});
  D square = D(0.0) - c * c, tail = D(0.0) - mul_add(c, c, square);
  D large = exp_sum(square, &tail) * p / mul_add(c, D(2.0), D(1.0));
  D near = D(1.0) - erf_of(a);
  D r = select(a < D(0.5), near, large);
  r = select(x < D(0.0), D(2.0) - r, r);
  return select(x == x, r, x);
}
// e^x - 1: 2^n * (e^r - 1) + (2^n - 1) with x = n * ln2 + r.
template <class F>
F expm1_of(const F& x) {
  constexpr bool kSingle = FloatTraits<F>::kBits == 32;
  constexpr int kMantissa = kSingle ? 23 : 52;
  const double magic = kSingle ? 12582912.0 + 127 : 6755399441055744.0 + 1023;
  const double top = kSingle ? 40 : 80;
  F c = raise(F(kSingle ? -30.0 : -60.0), lower(F(top), x));
  F t = mul_add(c, F(1.4426950408889634), F(magic));
  F n = t - F(magic);
  F r = mul_add(n, F(kSingle ? -0.693115234 : -0.69314718060195446), c);
  r = mul_add(n, F(kSingle ? -3.19461849e-05 : 4.2009150726810846e-11), r);
  F p = kSingle ? horner(r, {0.000198412698, 0.00138888889, 0.00833333333, 0.0416666667, 0.166666667, 0.5})
                : horner(r, {1.6059043836821613e-10, 2.08767569878681e-09, 2.505210838544172e-08, 2.755731922398589e-07,
                             2.7557319223985893e-06, 2.48015873015873e-05, 0.0001984126984126984, 0.001388888888888889,
                             0.008333333333333333, 0.041666666666666664, 0.16666666666666666, 0.5});
  p = mul_add(p, r * r, r);
  F scale = floating(shl(bits(t), kMantissa));
  F y = mul_add(p, scale, scale - F(1.0));
  y = select(x > F(top - 1), exp_of(x), y);
  return select(x == F(0.0), x, y);
}

// log(u) for u = 1 + x, rounded, corrected for the rounding.
template <class F>
F log1p_of(const F& x) {
  F u = x + F(1.0);
  auto large = x > F(1.0);
  F left = select(large, F(1.0) - (u - x), x - (u - F(1.0)));
  F r = log_of(u);
  r = select((u > F(0.0)) & (u < F(kInf)), r + left / u, r);
  return select(x == F(0.0), x, r);
}

// The angle of (x, y), from the smaller of |x| and |y| divided by the larger. For quotients above tan(pi/8) it starts
// from pi/4.
template <class D>
D atan2_double(const D& y0, const D& x0, bool huge) {
  D y = magnitude(y0), x = magnitude(x0);
  if (huge) {
    auto scaled = (x > D(1e300)) | (y > D(1e300));
    D s = select(scaled, D(0.0009765625), D(1.0));
    x = x * s, y = y * s;
  }
  auto steep = y > x;
  D most = select(steep, y, x), least = select(steep, x, y);
  // 0/0 is 0, Inf/Inf is 1.
  auto both = least == D(kInf);
  most = select(both | (most == D(0.0)), D(1.0), most);
  least = select(both, D(1.0), least);
  auto wide = least > most * D(0.41421356237309503);
  D t = select(wide, least - most, least) / select(wide, least + most, most);
  D z = t * t;
  D p = horner(z, {0.016284375050043393, -0.03456931506332609, 0.045515447340221615, -0.05230443640686948,
                   0.05878927554473807, -0.0666642476020052, 0.07692296368042296, -0.09090908753259112,
                   0.11111111105150588, -0.14285714285659779, 0.19999999999999804, -0.3333333333333333});
  D low = select(wide, D(3.061616997868383e-17), D(0.0));
  D r = mul_add(p, z * t, t) + low;
  r = select(wide, D(0.78539816339744828) + r, r);
  r = select(steep, D(1.5707963267948966) - (r - D(6.123233995736766e-17)), r);
  r = select(with_sign_of(D(1.0), x0) < D(0.0), D(3.1415926535897931) - (r - D(1.2246467991473532e-16)), r);
  return select((x0 == x0) & (y0 == y0), with_sign_of(r, y0), x0 + y0);
}
// log(x) of finite x > 0, as a sum of two doubles with an error of about 2^-66.
template <class D>
struct Pair {
  D hi, lo;
};
template <class D>
Pair<D> log_pair(const D& x) {
  Parts<D> p = split_exponent(x);
  D f = p.m - D(1.0);
  D t = f + D(2.0), tl = f - (t - D(2.0));
  D s = f / t;
  D sl = mul_add(D(0.0) - s, tl, mul_add(D(0.0) - s, t, f)) / t;
  D z = s * s, zl = mul_add(s + s, sl, mul_add(s, s, D(0.0) - z));
  D c = s * z, cl = mul_add(s, zl, mul_add(sl, z, mul_add(s, z, D(0.0) - c)));
  const double third = 0.66666666666666663, third_low = 3.7007434154171883e-17;
  D q = c * D(third), ql = mul_add(c, D(third_low), mul_add(cl, D(third), mul_add(c, D(third), D(0.0) - q)));
  D rest =
      c * z *
      horner(z, {0.1102542340393137, 0.10421286382560213, 0.11768764350830331, 0.13333237682728993, 0.15384616802417608,
                 0.18181818168731523, 0.22222222222293703, 0.28571428571428364, 0.40000000000000002});
  D e = p.e * D(0.69314718060195446);
  D a = e + (s + s), al = (s + s) - (a - e);
  D b = a + q, bl = q - (b - a);
  D low = mul_add(p.e, D(-4.2009150726810846e-11), sl + sl + ql + rest) + al + bl;
  D hi = b + low;
  return {hi, low - (hi - b)};
}

// |x|^y. The logarithm is a sum of two doubles.
template <class D>
D pow_double(const D& x, const D& y) {
  D a = magnitude(x);
  Pair<D> l = log_pair(a);
  auto finite = (a < D(kInf)) & (a > D(0.0));
  D hi = select(finite, l.hi, log_edges(a, l.hi));
  D t = y * hi;
  D tail = mul_add(y, hi, D(0.0) - t) + y * l.lo;
  tail = select(finite & (magnitude(t) < D(750.0)), tail, D(0.0));
  return exp_sum(t, &tail);
}

// x^y from r = |x|^y: applies signs, and handles squares, infinities, zeros, ones and NaN.
template <class D>
D pow_edges(const D& x, const D& y, D r) {
  D a = magnitude(x), h = y * D(0.5);
  r = select(y == D(2.0), x * x, r);
  auto whole = floor_of(y) == y;
  auto odd = whole & (floor_of(h) != h);
  D signed_r = with_sign_of(r, x);
  r = select(odd, signed_r, r);
  r = select((x < D(0.0)) & (x > D(-kInf)) & !whole, D(kNaN), r);
  r = select((a == D(1.0)) & (magnitude(y) == D(kInf)), D(1.0), r);
  r = select((x == x) & (y == y), r, x + y);
  return select((y == D(0.0)) | (x == D(1.0)), D(1.0), r);
}

// x = k quarter turns + r, |r| <= pi/4 and a little more; the low bits of k count.
template <class D>
struct Turns {
  D r;
  IntOf<D> k;
};
template <class D>
Turns<D> near_turns(const D& x) {
  const double magic = 6755399441055744.0;
  D t = mul_add(x, D(0.63661977236758138), D(magic));
  D n = t - D(magic);
  D r = mul_add(n, D(-1.5707963267341256), x);
  r = mul_add(n, D(-6.077100506303966e-11), r);
  return {mul_add(n, D(-2.0222662487959506e-21), r), bits(t)};
}
// Returns true if x is beyond 2^30, or so near a multiple of pi/2 that its remainder r from near_turns has lost digits.
template <class D>
MaskOf<D> needs_far_turns(const D& x, const D& r) {
  // Not written as a negation, since that sets mask bits beyond the lanes. If no lane needs far turns, code skips them.
  return (magnitude(x) > lower(D(1073741824.0), magnitude(r) * D(73786976294838206464.0))) | (r != r);
}

// The sine of r + k quarter turns. Bit 0 of k: cosine; bit 1: negative. Shifted up they are a sign, followed by 2 or 0.
template <class D>
D turned_sine(const D& r, const IntOf<D>& k) {
  using I = IntOf<D>;
  D z = r * r, square = z * z;
  D s = paired(z, square,
               {-7.5786280459046583e-13, 1.6058365235355526e-10, -2.5052104900773785e-08, 2.7557319214148617e-06,
                -0.00019841269841254982, 0.0083333333333333228, -0.16666666666666666});
  s = mul_add(s, z * r, r);
  D c = paired(z, square,
               {4.7381893461676373e-14, -1.1470295287439512e-11, 2.0876754386560353e-09, -2.7557319215480984e-07,
                2.4801587301571787e-05, -0.0013888888888888874, 0.041666666666666664});
  D half = z * D(0.5), h = D(1.0) - half;
  D hl = (D(1.0) - h) - half;
  c = h + mul_add(c, square, hl);
  I moved = shl(k, 62);
  D v = select(floating(moved) != D(0.0), c, s);
  return floating(bits(v) ^ (moved & I(int64_t(1ull << 63))));
}

// Words of 32 bits, the most significant first.
template <class I>
struct TurnWords {
  I w[7];
};
// The words of 2/pi, with 54 zeros in front, from word q / 32 on; q < 1024. Each bit of q / 32 takes one step.
template <class D>
TurnWords<IntOf<D>> two_over_pi_from(const IntOf<D>& q) {
  using I = IntOf<D>;
  const int64_t bits_of[38] = {
      0x00000000ll, 0x0000028bll, 0xe60db939ll, 0x1054a7f0ll, 0x9d5f47d4ll, 0xd377036dll, 0x8a5664f1ll, 0x0e4107f9ll,
      0x458eaf7all, 0xef1586dcll, 0x91b8e909ll, 0x374b8019ll, 0x24bba827ll, 0x464873f8ll, 0x77ac72c4ll, 0xa69cfba2ll,
      0x08d7d4ball, 0xed1213a6ll, 0x71c09ad1ll, 0x7df904e6ll, 0x4758e60dll, 0x4ce7d272ll, 0x117e2ef7ll, 0xe4a0ec7fll,
      0xe25fff78ll, 0x16603fbcll, 0xbc462d68ll, 0x29b47db4ll, 0xd9fb3c9fll, 0x2c26dd3dll, 0x18fd9a79ll, 0x7fa8b5d4ll,
      0x9eeb1fafll, 0x97c5ecf4ll, 0x1ce7de29ll, 0x4a4ba9afll, 0xed7ec47ell, 0x35742158ll};
  I w[38];
  for (int i = 0; i < 38; i++) w[i] = I(bits_of[i]);
  for (int step = 16, left = 53; step > 0; step /= 2, left++) {
    auto on = floating(shl(q & I(32 * step), left)) > D(0.0);
    for (int i = 0; i < 6 + step; i++) w[i] = bits(select(on, floating(w[i + step]), floating(w[i])));
  }
  return {{w[0], w[1], w[2], w[3], w[4], w[5], w[6]}};
}

// After Payne and Hanek, for finite x >= 1: multiplies its bits by those bits of 2/pi that matter, without whole turns.
template <class D>
Turns<D> far_turns(const D& x) {
  using I = IntOf<D>;
  const I low(0xffffffffll);
  const D down(2.3283064365386963e-10), whole(4503599627370496.0);  // 2^-32, 2^52
  const I q = shr(bits(x), 52) - I(1023);
  const TurnWords<I> w = two_over_pi_from<D>(q);
  // The bits of x, moved by q % 32, as three words.
  const D y = floating((bits(x) & I(0xfffffffffffffll)) | shl((q & I(31)) + I(1075), 52));
  const D top = floor_of(y * (down * down)), below = mul_add(top, D(-18446744073709551616.0), y);
  const D middle = floor_of(below * down), last = mul_add(middle, D(-4294967296.0), below);
  const I a[3] = {bits(last + whole) & low, bits(middle + whole) & low, bits(top + whole) & low};
  I sum[5] = {I(0), I(0), I(0), I(0), I(0)};
  for (int i = 0; i < 3; i++) {
    for (int c = 0; c < 5; c++) {
      const I p = mul32(a[i], w.w[c + i]);
      sum[c] = sum[c] + (p & low);
      if (c > 0) sum[c - 1] = sum[c - 1] + shr(p, 32);
    }
  }
  for (int c = 4; c > 0; c--) sum[c - 1] = sum[c - 1] + shr(sum[c], 32);
  // Rounds to the nearest quarter. A negative remainder is turned positive.
  const I z = (sum[0] + I(0x20000000ll)) & low, flip = (shr(z, 29) & I(1)) - I(1);
  const auto number = [&](const I& i) { return floating(i | bits(whole)) - whole; };
  D r = number((sum[3] ^ flip) & low);
  r = mul_add(r, down, number((sum[2] ^ flip) & low));
  r = mul_add(r, down, number((sum[1] ^ flip) & low));
  r = mul_add(r, down, number((z ^ flip) & I(0x1fffffffll)));
  r = mul_add(r, D(1.4629180792671596e-09), r * D(5.702706049882589e-26));  // 2 pi / 2^32
  return {floating(bits(r) | (flip & I(int64_t(1ull << 63)))), shr(z, 30)};
}
template <class D>
D far_sine(const D& x, int quarters) {
  using I = IntOf<D>;
  const Turns<D> t = far_turns(magnitude(x));
  const D v = turned_sine(t.r, t.k + I(quarters));
  const D w = quarters == 0 ? floating(bits(v) ^ (bits(x) & I(int64_t(1ull << 63)))) : v;
  return select(magnitude(x) < D(kInf), w, x - x);
}
template <class D>
D far_tangent(const D& x) {
  using I = IntOf<D>;
  const Turns<D> t = far_turns(magnitude(x));
  const D v = turned_sine(t.r, t.k) / turned_sine(t.r, t.k + I(1));
  const D w = floating(bits(v) ^ (bits(x) & I(int64_t(1ull << 63))));
  return select(magnitude(x) < D(kInf), w, x - x);
}

// sin(x + quarters * pi/2) for quarters of 0 or 1. x = half turns * pi - quarters * pi/2 + r, |r| <= pi/2 and a little
// more. Four parts of pi leave r within about one ulp.
template <class D>
D sin_double(const D& x, int quarters) {
  const double magic = 6755399441055744.0;
  D t = quarters ? mul_add(x, D(0.31830988618379069), D(0.5)) + D(magic) : mul_add(x, D(0.31830988618379069), D(magic));
  D n = quarters ? (t - D(magic)) - D(0.5) : t - D(magic);
  D r = mul_add(n, D(-3.1415926534682512), x);
  r = mul_add(n, D(-1.2154201012607932e-10), r);
  r = mul_add(n, D(-4.044532497591901e-21), r);
  r = mul_add(n, D(-2.0171708071744967e-37), r);
  // sin(r) = r + r * q. z + low is r^2.
  D z = r * r, square = z * z, low = mul_add(r, r, D(0.0) - z), sixth(-0.16666666666666666);
  D q = paired(z, square,
               {2.7232090524739357e-15, -7.643181861783829e-13, 1.6058946851428793e-10, -2.5052107010063826e-08,
                2.7557319212563526e-06, -0.00019841269841216997, 0.008333333333333214});
  q = mul_add(z, sixth, mul_add(q, square, low * sixth));
  D w = floating(bits(mul_add(q, r, r)) ^ shl(bits(t), 63));
  w = rarely(magnitude(x) > D(1073741824.0), w, x, [quarters](const D& v) { return far_sine(v, quarters); });
  return quarters ? w : select(x == D(0.0), x, w);
}
template <class D>
D tan_double(const D& x) {
  using I = IntOf<D>;
  const Turns<D> t = near_turns(x);
  D w = select(x == D(0.0), x, turned_sine(t.r, t.k)) / turned_sine(t.r, t.k + I(1));
  return rarely(needs_far_turns(x, t.r), w, x, [](const D& v) { return far_tangent(v); });
}

// PyTorch's remainder and floor_divide of floats.
template <class F>
F remainder_of(const F& a, const F& b) {
  F m = fmod_of(a, b);
  auto adjust = (m != F(0.0)) & ((m < F(0.0)) ^ (b < F(0.0)));
  return select(adjust, m + b, m);
}
template <class F>
F floor_divide_of(const F& a, const F& b) {
  F q = a / b;
  F m = fmod_of(a, b);
  F d = (a - m) / b;
  auto adjust = (m != F(0.0)) & ((m < F(0.0)) ^ (b < F(0.0)));
  d = select(adjust, d - F(1.0), d);
  F f = floor_of(d);
  f = select((d - f) > F(0.5), f + F(1.0), f);
  F zero = with_sign_of(F(0.0), q);
  return select(b == F(0.0), q, select(d == F(0.0), zero, f));
}

template <class I>
I xor_of(const I& a, const I& b, const I& c) {
  return a ^ b ^ c;
}
// Philox4x32-10: counter (index, call), key seed. The words are in the low halves of 64-bit integers. The upper halves
// are undefined, since products read the low ones only.
template <class I>
struct Words {
  I w[4];
  I word(int i) const { return w[i] & I(0xffffffffll); }
};
template <class I>
Words<I> philox(const I& index, const I& call, const I& seed) {
  I c0 = index, c1 = shr(index, 32), c2 = call, c3 = shr(call, 32);
  I k0 = seed, k1 = shr(seed, 32);
#ifdef __CUDACC_RTC__
#pragma unroll
#endif
  for (int round = 0; round < 10; round++) {
    if (round) {
      k0 = k0 + I(0x9E3779B9ll);
      k1 = k1 + I(0xBB67AE85ll);
    }
    I p = mul32(c0, I(0xD2511F53ll)), q = mul32(c2, I(0xCD9E8D57ll));
    c0 = xor_of(shr(q, 32), c1, k0);
    c1 = q;
    c2 = xor_of(shr(p, 32), c3, k1);
    c3 = p;
  }
  return {{c0, c1, c2, c3}};
}

// Returns a number in [0, 1) with 52 random bits. The upper halves of the words are ignored.
template <class D, class I>
D unit_double(const I& high, const I& low) {
  return floating(shr(shl(high, 32) | (low & I(0xffffffffll)), 12) | I(0x3ff0000000000000ll)) - D(1.0);
}
// [0, 1) with 24 random bits.
template <class D, class I>
D unit_single(const I& word) {
  return (floating(shr(word, 8) | I(0x4330000000000000ll)) - D(4503599627370496.0)) * D(1.0 / 16777216);
}
template <class D, class I>
D normal_double(const Words<I>& w) {
  // u is in [2^-52, 1], so its logarithm has no edge cases.
  D u = D(1.0) - unit_double<D>(w.w[0], w.w[1]);
  D radius = root(log_of_parts(split_normal(u)) * D(-2.0));
  const Turns<D> t = near_turns(unit_double<D>(w.w[2], w.w[3]) * D(6.2831853071795862));
  return radius * turned_sine(t.r, t.k + I(1));
}
template <class I>
I random_bits(const Words<I>& w) {
  return shr(shl(w.w[0], 32) | w.word(1), 1);
}

}  // namespace lutra::loop
