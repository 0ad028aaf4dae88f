// Functions computed in the type of their argument, over the value types of math.h. For 32-bit floats each function has
// its own method, which uses 32 bits only and corrects for what it rounded. So it stays within one unit in the last
// place.
//
// The methods are Cephes' (S. Moshier) and Cody and Waite's: the argument is reduced by constants in parts, then a
// minimax polynomial is evaluated. A rounded quotient or root q is corrected by its remainder divided by the divisor;
// for this a reciprocal of few bits is enough. The coefficients are our own fits.
//
// A value type also has by_double(m, r, x, f): returns f of x in 64 bits, rounded once, where m holds, and r elsewhere.
// Code may skip f if m holds in no lane.
// The text is also part of generated CUDA kernels.
#ifndef __CUDACC_RTC__
#pragma once
#endif
#ifndef LUTRA_LOOP_MATH  // in a kernel's text math.h comes before this file
#include "jit/loop/math.h"
#endif

namespace lutra::loop {

// 1 / x within an eighth, for positive x from 2^-64 to 2^64.
template <class F>
F rough_inverse(const F& x) {
  using I = IntOf<F>;
  return floating(I(0x7ef311c7ll) - bits(x));
}

// Returns base + (hi + lo), where base is 0 or larger than |hi|. base_low is the low part of base.
template <class F>
F sum_of(const F& base, const F& base_low, const F& hi, const F& lo) {
  F s = base + hi;
  return s + ((base - s) + hi + (lo + base_low));
}

// x = quarter turns * pi/2 + r + low, for |x| < 2^17; k holds the turns in its low bits.
template <class F>
struct Turned {
  F r, low;
  IntOf<F> k;
};
template <class F>
Turned<F> turned(const F& x) {
  F t = mul_add(x, F(0.636619747), F(12582912.0));
  F n = t - F(12582912.0);
  F rest = mul_add(n, F(-1.57079637), x), more = n * F(4.37113883e-08);
  F least = mul_add(n, F(1.71512449e-15), mul_add(n, F(4.37113883e-08), F(0.0) - more));
  F r = rest + more, taken = r - rest;
  return {r, (rest - (r - taken)) + (more - taken) + least, bits(t)};
}
// Returns true if |x| is too large for turned().
template <class F>
MaskOf<F> is_far(const F& x) {
  return !(magnitude(x) < F(131072.0));
}

// sin(x + quarters * pi/2)
template <class F>
F sin_single(const F& x, int quarters) {
  using I = IntOf<F>;
  Turned<F> a = turned(x);
  F z = a.r * a.r, h = mul_add(z, F(-0.5), F(1.0));
  F s = horner(z, {-0.000195082335, 0.00833210815, -0.166666538});
  s = a.r + mul_add(a.low, h, s * z * a.r);
  F c = horner(z, {2.44300882e-05, -0.00138872978, 0.0416666456});
  c = h + mul_add(c, z * z, mul_add(z, F(-0.5), F(1.0) - h) - a.low * a.r);
  I k = a.k + I(quarters);
  F v = select(floating(shl(k & I(1), 30)) > F(0.0), c, s);
  v = floating(bits(v) ^ shl(k & I(2), 30));
  if (quarters == 0) v = select(x == F(0.0), x, v);
  return by_double(is_far(x), v, x, [quarters](const auto& wide) { return sin_double(wide, quarters); });
}
template <class F>
F sin_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return sin_single(x, 0);
  } else {
    return sin_double(x, 0);
  }
}
template <class F>
F cos_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return sin_single(x, 1);
  } else {
    return sin_double(x, 1);
  }
}

// tan(r + low) = t + rest. In odd quarters the result is the inverse, corrected for what was rounded off.
template <class F>
F tan_single(const F& x) {
  using I = IntOf<F>;
  Turned<F> a = turned(x);
  F r = a.r + a.low, low = (a.r - r) + a.low, z = r * r;
  F p = horner(z, {0.00448146276, -0.00011859151, 0.0109954318, 0.0212226417, 0.0540709756, 0.133325711, 0.333333522});
  F cube = z * r, t = mul_add(p, cube, r);
  F rest = mul_add(low, mul_add(t, t, F(1.0)), mul_add(p, cube, r - t));
  auto odd = floating(shl(a.k & I(1), 30)) > F(0.0);
  F over = select(odd, F(-1.0), t), q = over / select(odd, t, F(1.0));
  F inverse = q + q * mul_add(q, rest, mul_add(q, t, F(1.0)));
  F v = select(odd, inverse, t + rest);
  v = select(x == F(0.0), x, v);
  return by_double(is_far(x), v, x, [](const auto& wide) { return tan_double(wide); });
}
template <class F>
F tan_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return tan_single(x);
  } else {
    return tan_double(x);
  }
}

// The angle whose tangent is least / most, for 0 <= least <= most. It is the sum hi + lo.
template <class F>
struct Angle {
  F hi, lo;
};
template <class F>
Angle<F> angle_of(const F& least, const F& most) {
  F q = least / most, z = q * q;
  F p = horner(z, {0.00113452214, -0.00742536318, 0.022777617, -0.0449832566, 0.0676364899, -0.0882146209, 0.110612333,
                   -0.142803431, 0.199997157, -0.333333284});
  F left = mul_add(F(0.0) - q, most, least) * rough_inverse(most);
  return {q, mul_add(p * z, q, left * mul_add(z, F(-0.5), F(1.0)))};
}

template <class F>
F atan_single(const F& x) {
  F a = lower(F(18446744073709551616.0), magnitude(x));
  auto steep = a > F(1.0);
  Angle<F> v = angle_of(select(steep, F(1.0), a), select(steep, a, F(1.0)));
  F r = select(steep, sum_of(F(1.57079637), F(-4.37113883e-08), F(0.0) - v.hi, F(0.0) - v.lo), v.hi + v.lo);
  return with_sign_of(r, x);
}
template <class F>
F atan_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return atan_single(x);
  } else {
    return atan2_double(x, F(1.0), true);
  }
}

// Scales numbers that are so large or so small that a remainder would be lost. That keeps their quotient.
template <class F>
F atan2_single(const F& y0, const F& x0) {
  F y = magnitude(y0), x = magnitude(x0);
  auto steep = y > x;
  F most = select(steep, y, x), least = select(steep, x, y);
  // 0/0 is 0, Inf/Inf is 1, anything else over Inf is 0.
  auto both = least == F(kInf), one = most == F(kInf);
  most = select(one | (most == F(0.0)), F(1.0), most);
  least = select(both, F(1.0), select(one, F(0.0), least));
  F scale =
      select(most > F(7.92281625e+28), F(5.42101086e-20), select(most < F(8.67361738e-19), F(1.84467441e+19), F(1.0)));
  Angle<F> v = angle_of(least * scale, most * scale);
  auto back = with_sign_of(F(1.0), x0) < F(0.0);
  auto down = steep ^ back;
  const F minus = select(down, F(-0.0), F(0.0));
  F base = select(steep, F(1.57079637), select(back, F(3.14159274), F(0.0)));
  F low = select(steep, F(-4.37113883e-08), select(back, F(-8.74227766e-08), F(0.0)));
  F r = sum_of(base, low, floating(bits(v.hi) ^ bits(minus)), floating(bits(v.lo) ^ bits(minus)));
  return select((x0 == x0) & (y0 == y0), with_sign_of(r, y0), x0 + y0);
}
template <class F>
F atan2_of(const F& y, const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return atan2_single(y, x);
  } else {
    return atan2_double(y, x, true);
  }
}

// Near 1 it uses half the angle: asin(a) = pi/2 - 2 asin(root((1 - a) / 2)). hi + lo is the result where `near` holds,
// and the half angle elsewhere.
template <class F>
struct Arc {
  F hi, lo;
  MaskOf<F> near;
};
template <class F>
Arc<F> arc_of(const F& a) {
  auto near = a < F(0.5);
  F z = select(near, a * a, mul_add(a, F(-0.5), F(0.5)));
  F root_z = root(z), s = select(near, a, root_z);
  F p = horner(z, {0.0376957506, 0.0143151963, 0.0318390653, 0.0445133746, 0.0750052184, 0.166666597});
  F left = mul_add(F(0.0) - s, s, z) * rough_inverse(s + s);
  return {s, mul_add(p * z, s, select(near, F(0.0), left)), near};
}
template <class F>
F asin_single(const F& x) {
  Arc<F> v = arc_of(magnitude(x));
  F far = sum_of(F(1.57079637), F(-4.37113883e-08), v.hi * F(-2.0), v.lo * F(-2.0));
  return with_sign_of(select(v.near, v.hi + v.lo, far), x);
}
template <class F>
F acos_single(const F& x) {
  Arc<F> v = arc_of(magnitude(x));
  auto negative = x < F(0.0);
  // pi/2 - v, 2v, or pi - 2v: -v has the sign that x does not have.
  F times = select(v.near, with_sign_of(F(1.0), F(0.0) - x), select(negative, F(-2.0), F(2.0)));
  F base = select(v.near, F(1.57079637), select(negative, F(3.14159274), F(0.0)));
  F low = select(v.near, F(-4.37113883e-08), select(negative, F(-8.74227766e-08), F(0.0)));
  return sum_of(base, low, v.hi * times, v.lo * times);
}
template <class F>
F asin_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return asin_single(x);
  } else {
    return atan2_double(x, root((F(1.0) - x) * (F(1.0) + x)), true);
  }
}
template <class F>
F acos_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return acos_single(x);
  } else {
    return atan2_double(root((F(1.0) - x) * (F(1.0) + x)), x, true);
  }
}

// 2^x = 2^n * 2^r, |r| <= 1/2.
template <class F>
F exp2_single(const F& x) {
  F c = raise(F(-152.0), lower(F(129.0), x));
  F t = c + F(12582912.0 + 254);
  F r = c - (t - F(12582912.0 + 254));
  F p = horner(r, {0.00015329264, 0.00133909693, 0.00961849932, 0.0555035956, 0.240226477, 0.693147182});
  return times_power(mul_add(p, r, F(1.0)), bits(t));
}
template <class F>
F exp2_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return exp2_single(x);
  } else {
    return pow_edges(F(2.0), x, pow_double(F(2.0), x));
  }
}

// (1 - e^-2x) / (1 + e^-2x) for x >= 0, both in parts.
template <class F>
F tanh_single(const F& x) {
  F c = raise(F(-19.0), magnitude(x) * F(-2.0));
  F t = mul_add(c, F(1.44269502), F(12582912.0 + 127)), n = t - F(12582912.0 + 127);
  F r = mul_add(n, F(-3.19461849e-05), mul_add(n, F(-0.693115234), c));
  F p = horner(r, {0.000197642585, 0.00139323471, 0.00833354332, 0.0416664928, 0.166666657, 0.5}) * (r * r);
  F scale = floating(shl(bits(t), 23)), one = scale - F(1.0);
  // e^-2x - 1 = one + scale * (r + p) = top + low
  F first = mul_add(scale, r, one), top = mul_add(scale, p, first);
  F low = mul_add(scale, p, first - top) + (mul_add(scale, r, one - first) + (scale - (one + F(1.0))));
  F under = top + F(2.0), minus = F(0.0) - top, q = minus / under;
  F under_low = (top - (under - F(2.0))) + low;
  F left = mul_add(q, F(0.0) - under, minus) - mul_add(q, under_low, low);
  return with_sign_of(mul_add(left, rough_inverse(under), q), x);
}
template <class F>
F tanh_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return tanh_single(x);
  } else {
    return tanh_double(x);
  }
}

// For results of 32 bits that are computed in 64 bits. These functions are precise to about 34 bits.
// Computes e^x. It is infinite or 0 where a 32-bit float is.
template <class D>
D exp_short(const D& x) {
  D c = raise(D(-160.0), lower(D(130.0), x));
  D t = mul_add(c, D(1.4426950408889634), D(6755399441055744.0 + 1023)), n = t - D(6755399441055744.0 + 1023);
  D r = mul_add(n, D(-0.69314718055994531), c);
  D p = horner(r, {0.0001979030776406433, 0.0013944781563524384, 0.008333497579328792, 0.041666293320733093,
                   0.16666665865116059, 0.50000000681319334});
  return (mul_add(p, r * r, r) + D(1.0)) * floating(shl(bits(t), 52));
}
// Computes log(x) of a normal number. Splits x as split_exponent does.
template <class D>
D log_short(const D& x) {
  using I = IntOf<D>;
  I k = shr(bits(x) + I(0x3ff0000000000000ll - 0x3fe6a09e667f3bcdll), 52);
  D f = floating(bits(x) - shl(k, 52) + I(0x3ff0000000000000ll)) - D(1.0);
  D e = floating(k + bits(D(6755399441055744.0))) - D(6755399441055744.0 + 1023);
  D q = horner(f, {0.053585858852529186, -0.098718385118708216, 0.10015392724401996, -0.099273163093198752,
                   0.11009611539488584, -0.12497411809234397, 0.1429057112888141, -0.16666927482507962,
                   0.19999898140092745, -0.24999994829118749, 0.33333334043639601, -0.50000000021517177});
  return mul_add(e, D(0.69314718055994531), mul_add(q, f * f, f));
}

// Beyond 1/2 it is e^-x^2 * P(1 / (x + 2.5)).
template <class D>
D erfc_short(const D& x) {
  D a = magnitude(x), c = lower(D(10.5), a), z = a * a;
  D p = horner(D(1.0) / (c + D(2.5)), {-233.09651805766558, 680.87212014656802, -719.28041804247539, 326.30951683577661,
                                       -71.721848945376237, 28.213369041169194, 4.643957616115757, 3.4179639240580468,
                                       1.4010142322919903, 0.5644884644225463, -4.1629474104402007e-06});
  D near = horner(z, {-0.00076955736710394439, 0.0052004787644893673, -0.026863157278409627, 0.11283774140520898,
                      -0.37612638529628795, 1.1283791670826075});
  near = mul_add(D(0.0) - near, a, D(1.0));
  D r = select(a < D(0.5), near, exp_short(D(0.0) - c * c) * p);
  r = select(x < D(0.0), D(2.0) - r, r);
  return select(x == x, r, x);
}
template <class F>
F erfc_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return narrow(erfc_short(widen(x)));
  } else {
    return erfc_double(x);
  }
}

// Uses w = -log(1 - x^2): x * P(w), and Q(root(w)) for w >= 5. After M. Giles, "Approximating the erfinv function".
template <class D>
D erfinv_short(const D& x) {
  D w = D(0.0) - log_short(raise(D(1e-300), mul_add(D(0.0) - x, x, D(1.0))));
  D near = horner(w, {-8.7914590010349997e-09, 2.21039898249923e-07, -1.976543621639447e-06, 3.9836235143608088e-06,
                      4.4564177657590383e-05, -0.00012748003584611294, -0.0023342975553716895, 0.011548654471465096,
                      0.23201381794402282, 0.88622692049421192});
  // Most numbers have w < 5. NaN gives NaN.
  return rarely(w >= D(5.0), near * x, x, [&w](const D& edge) {
    D far = horner(root(w), {-1.4611379063622969e-05, 0.00040546348170014782, -0.0048775861756017481,
                             0.03303721545343305, -0.13625518415881616, 0.34150637291583114, -0.47354774725084581,
                             1.2568456534183492, -0.12297380354758916});
    D a = magnitude(edge), r = with_sign_of(select(a < D(1.0), far, D(kInf)), edge);
    return select(a <= D(1.0), r, D(kNaN));
  });
}

// For |x| near 1 and above.
template <class D>
D atanh_short(const D& x) {
  D a = magnitude(x), r = log_short((D(1.0) + a) / (D(1.0) - a)) * D(0.5);
  return with_sign_of(select(a < D(1.0), r, select(a == D(1.0), D(kInf), D(kNaN))), x);
}
// q = (1 + a) / (1 - a) is 2^k (1 + s) / (1 - s), so atanh(a) = k log(2) / 2 + atanh(s). The difference of two numbers'
// bits is about the logarithm of their quotient; its whole part is k. If k is 0, s is a.
template <class F>
F atanh_single(const F& x) {
  using I = IntOf<F>;
  F a = magnitude(x);
  I apart = bits(F(1.0) + a) - bits(F(1.0) - a) + I(0x200000ll);
  F power = floating((apart & I(0x7f800000ll)) + I(0x3f800000ll));
  F k = floating(shr(apart, 23) + bits(F(8388608.0))) - F(8388608.0);
  F over = mul_add(a, F(1.0) + power, F(1.0) - power), under = mul_add(a, F(1.0) - power, F(1.0) + power);
  F s = over / under, left = mul_add(F(0.0) - s, under, over) * rough_inverse(under);
  F z = s * s;
  F p = horner(z, {0.133853613, 0.141059428, 0.200054891, 0.333332816});
  F r = mul_add(k, F(0.3465576171875), s + mul_add(p * z, s, mul_add(k, F(1.59730925e-05), left)));
  // a float cannot represent 1 + 2^24
  return by_double(!(a < F(0.99999905)), with_sign_of(r, x), x, [](const auto& wide) { return atanh_short(wide); });
}
template <class F>
F atanh_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return atanh_single(x);
  } else {
    F a = magnitude(x);
    return with_sign_of(log1p_of((a + a) / (F(1.0) - a)) * F(0.5), x);
  }
}

// For numbers above zero, the next larger number has the next larger bits.
template <class F>
F nextafter_of(const F& x, const F& y) {
  using I = IntOf<F>;
  const F least(FloatTraits<F>::kBits == 32 ? 1.401298464324817e-45 : 4.9406564584124654e-324);
  const F up = floating(bits(x) + I(1)), down = floating(bits(x) - I(1));
  F r = select((x < y) ^ (x < F(0.0)), up, down);
  r = select(x == F(0.0), with_sign_of(least, y), r);
  r = select(x == y, y, r);
  return select((x == x) & (y == y), r, F(kNaN));
}

// The probability that a normally distributed number is less than x. The polynomial g is the base-2 logarithm of twice
// the probability that one is beyond |x|. Where it no longer is that, g falls further until 2^g is 0.
template <class F>
F normal_cdf_single(const F& x) {
  F a = magnitude(x);
  F g = horner(a, {-1.63740808e-08, 5.35335687e-07, -7.45993975e-06, 5.58585161e-05, -0.000208542071, -0.000146730512,
                   0.00712299906, -0.0525556877, -0.459186107, -1.15110767}) *
        a;
  g = raise(F(-126.0), g);
  F t = g + F(12582912.0 + 126), r = g - (t - F(12582912.0 + 126));
  F p = horner(r, {0.000153533605, 0.0013398875, 0.00961843692, 0.0555033237, 0.240226477, 0.693147182, 1.0});
  F beyond = p * floating(shl(bits(t), 23));
  return select(x < F(0.0), beyond, F(1.0) - beyond);
}
template <class F>
F normal_cdf_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return normal_cdf_single(x);
  } else {
    return (erf_of(x * F(0.70710678118654757)) + F(1.0)) * F(0.5);
  }
}

// Like normal_double in 32 bits. Uses the first word and 24 bits of the third one.
template <class D, class I>
auto normal_single(const Words<I>& w) {
  const D whole(4503599627370496.0);  // 2^52
  // From 2^-32 to 1.
  auto u = narrow(D(1.0) - (floating(w.word(0) | I(0x4330000000000000ll)) - whole) * D(2.3283064365386963e-10));
  using F = decltype(u);
  F radius = root(log_of_parts(split_normal(u)) * F(-2.0));
  F quarters = narrow(unit_single<D>(w.word(2)) * D(4.0)), t = quarters + F(12582912.0);
  F r = (quarters - (t - F(12582912.0))) * F(1.57079637), z = r * r;
  F s = horner(z, {-0.000195082335, 0.00833210815, -0.166666538});
  s = mul_add(s, z * r, r);
  F c = horner(z, {2.44300882e-05, -0.00138872978, 0.0416666456});
  c = mul_add(c, z * z, mul_add(z, F(-0.5), F(1.0)));
  auto k = bits(t) + IntOf<F>(1);
  F v = select(floating(shl(k & IntOf<F>(1), 30)) > F(0.0), c, s);
  return radius * floating(bits(v) ^ shl(k & IntOf<F>(2), 30));
}

// A rational approximation, then two steps of Newton's method on erf.
template <class D>
D erfinv_double(const D& x) {
  D a = magnitude(x), z = x * x;
  D central = x * horner(z, {-0.140543331, 0.914624893, -1.645349621, 0.886226899}) /
              horner(z, {0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0});
  D s = root(log_of((D(1.0) - a) * D(0.5)) * D(-1.0));
  D outer =
      horner(s, {1.641345311, 3.429567803, -1.624906493, -1.970840454}) / horner(s, {1.637067800, 3.543889200, 1.0});
  D r = select(a > D(0.7), with_sign_of(outer, x), central);
  for (int i = 0; i < 2; i++) r = r - (erf_of(r) - x) / (exp_of(r * r * D(-1.0)) * D(1.1283791670955126));
  r = select(x == D(0.0), x, r);
  return select(a < D(1.0), r, select(a == D(1.0), with_sign_of(D(kInf), x), D(kNaN)));
}
template <class F>
F erfinv_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return narrow(erfinv_short(widen(x)));
  } else {
    return erfinv_double(x);
  }
}

// A logarithm of x to another base: e * high + (hi + lo) / ln(base), in parts; e * high is exact.
struct LogBase {
  double inverse, inverse_low, high, low;
};
template <class F>
F log_of_parts(const Parts<F>& p, const LogBase& base) {
  F f = p.m - F(1.0), z = f * f, half = z * F(0.5), hi = f - half;
  F lo = mul_add(log_tail(f), f * z, ((f - hi) - half) - mul_add(f, f, F(0.0) - z) * F(0.5));
  F t = hi * F(base.inverse);
  F low = mul_add(lo, F(base.inverse), mul_add(hi, F(base.inverse_low), mul_add(hi, F(base.inverse), F(0.0) - t)));
  F whole = p.e * F(base.high), s = whole + t;
  return s + ((whole - s) + t + mul_add(p.e, F(base.low), low));
}
template <class F>
F log_single(const F& x, const LogBase& base) {
  return rarely(is_edge_of_log(x), log_of_parts(split_normal(x), base), x,
                [&base](const F& edge) { return log_edges(edge, log_of_parts(split_exponent(edge), base)); });
}
// In 64 bits the logarithm of a power of the base is exact.
template <class D>
D log_double(const D& x, double base, double inverse) {
  const D magic(6755399441055744.0);
  D y = log_of(x) * D(inverse), n = (y + magic) - magic;
  return select(pow_edges(D(base), n, pow_double(D(base), n)) == x, n, y);
}
template <class F>
F log2_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return log_single(x, LogBase{1.44269502, 1.925963033e-08, 1.0, 0.0});
  } else {
    return log_double(x, 2.0, 1.4426950408889634);
  }
}
template <class F>
F log10_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return log_single(x, LogBase{0.434294492, -1.010305002e-08, 0.301025390625, 4.6050390665e-06});
  } else {
    return log_double(x, 10.0, 0.43429448190325182);
  }
}

// Computes the logarithm, then the power of e, with the same steps for all arguments. The edge cases are those of
// pow_double.
template <class F>
F pow_of(const F& x, const F& y) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    auto a = widen(x), b = widen(y);
    auto size = magnitude(a);
    return narrow(pow_edges(a, b, exp_short(b * log_edges(size, log_short(size)))));
  } else {
    return pow_edges(x, y, pow_double(x, y));
  }
}

}  // namespace lutra::loop
