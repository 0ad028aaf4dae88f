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

// x = quarter turns * pi/2 + r - low, for |x| < 2^17; k holds the turns in its low bits. r has the sign of a zero x,
// since pi/2 is more than its first part.
template <class F>
struct Turned {
  F r, low;
  IntOf<F> k;
};
template <class F>
Turned<F> turned(const F& x) {
  F t = mul_add(x, F(0.636619747), F(12582912.0));
  F n = t - F(12582912.0);
  F rest = mul_add(n, F(-1.57079625), x);
  F r = rest + n * F(-7.54978942e-08);
  // r - rest is exact: rest is 0, or has few bits, or is much larger than the product.
  return {r, mul_add(n, F(5.39030286e-15), mul_add(n, F(7.54978942e-08), r - rest)), bits(t)};
}
// Returns true if |x| is too large for turned().
template <class F>
MaskOf<F> is_far(const F& x) {
  return magnitude(x) >= F(131072.0);
}

// sin(x + quarters * pi/2). Shifted up, the turns are a sign, followed by 2 or 0.
template <class F>
F sin_single(const F& x, int quarters) {
  using I = IntOf<F>;
  Turned<F> a = turned(x);
  F z = a.r * a.r, h = mul_add(z, F(-0.5), F(1.0));
  F s = horner(z, {0.000195082335, -0.00833210815, 0.166666538});
  s = a.r - mul_add(a.low, h, s * (z * a.r));
  F c = horner(z, {2.44300882e-05, -0.00138872978, 0.0416666456});
  c = h + mul_add(c, z * z, mul_add(z, F(-0.5), F(1.0) - h) + a.low * a.r);
  I turns = shl(quarters ? a.k + I(quarters) : a.k, 30);
  F v = select(floating(turns) != F(0.0), c, s);
  v = floating(bits(v) ^ (turns & I(0x80000000ll)));
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
  Turned<F> a = turned(x);
  F r = a.r - a.low, low = (a.r - r) - a.low, z = r * r;
  F p =
      mul_add(paired(z, z * z, {0.00438749557, 7.03670521e-05, 0.0108474372, 0.0212794617, 0.0540599674, 0.133326694}),
              z, F(0.333333492));
  F cube = z * r, t = mul_add(p, cube, r), q = F(-1.0) / t;
  F rest = mul_add(low, mul_add(t, t, F(1.0)), mul_add(p, cube, r - t));
  F inverse = mul_add(q, mul_add(q, rest, mul_add(q, t, F(1.0))), q);
  F v = select(floating(shl(a.k, 30)) != F(0.0), inverse, t + rest);
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

// The angle is one of 0, pi/4, pi/2 and a rest whose tangent is small.
template <class F>
F atan_single(const F& x) {
  F a = magnitude(x);
  auto middle = a > F(0.62), steep = a > F(2.41421366);
  F over = select(steep, F(-1.0), select(middle, a - F(1.0), a));
  F under = select(steep, a, select(middle, a + F(1.0), F(1.0)));
  F base = select(steep, F(1.57079637), select(middle, F(0.785398185), F(0.0)));
  F q = over / under, z = q * q;
  F p = paired(z, z * z, {0.0279678572, -0.0707727224, 0.106548257, -0.142309412, 0.199969098, -0.333332747});
  // base times the constant is what base was rounded by.
  return with_sign_of(base + (q + mul_add(p, z * q, base * F(-2.78275413e-08))), x);
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

// Where `near` holds, hi + lo is asin(a). Elsewhere it is pi/2 - asin(a), which is 2 asin(hi / 2); `base_low` has been
// taken from lo.
template <class F>
struct Arc {
  F hi, lo;
  MaskOf<F> near;
};
template <class F>
Arc<F> arc_of(const F& a, double base_low) {
  using I = IntOf<F>;
  auto near = a < F(0.5);
  F square = mul_add(a, F(-2.0), F(2.0)), root_of = root(square);
  F z = select(near, a * a, square * F(0.25)), s = select(near, a, root_of);
  F p = paired(z, z * z, {0.0376957506, 0.0143151963, 0.0318390653, 0.0445133746, 0.0750052184, 0.166666597});
  F left = mul_add(F(0.0) - root_of, root_of, square), half_inverse = floating(I(0x7e7311c7ll) - bits(root_of));
  left = base_low == 0 ? left * half_inverse : mul_add(left, half_inverse, F(-base_low));
  return {s, mul_add(p * z, s, select(near, F(0.0), left)), near};
}
template <class F>
F asin_single(const F& x) {
  Arc<F> v = arc_of(magnitude(x), -4.37113883e-08);
  const F quarter(1.57079637);
  F far = quarter - v.hi;
  far = far + ((quarter - far) - v.hi - v.lo);
  return with_sign_of(select(v.near, v.hi + v.lo, far), x);
}
// pi/2, 0 or pi, and v with a sign. base times the constant is what base was rounded by.
template <class F>
F acos_single(const F& x) {
  using I = IntOf<F>;
  Arc<F> v = arc_of(magnitude(x), 0);
  F minus_x = floating(bits(x) ^ I(0x80000000ll));
  F sign = with_sign_of(F(1.0), select(v.near, minus_x, x));
  F base = select(v.near, F(1.57079637), mul_add(sign, F(-1.57079637), F(1.57079637)));
  return base + mul_add(v.hi, sign, mul_add(v.lo, sign, base * F(-2.78275413e-08)));
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

// Beyond 1 it is a polynomial of e^-2x, for x >= 0.
template <class F>
F tanh_single(const F& x) {
  F a = lower(F(10.0), magnitude(x)), z = a * a;
  F t = mul_add(a, F(-2.88539008), F(12582912.0 + 127)), n = t - F(12582912.0 + 127);
  F r = mul_add(n, F(0.34657359), a);
  F e = paired(r, r * r, {0.0892151445, -0.267802387, 0.666662574, -1.33332157, 2.0, -2.0});
  e = mul_add(e, r, F(1.0)) * floating(shl(bits(t), 23));
  F far = paired(e, e * e, {-1.37138283, 1.91462648, -1.99452591, 1.99984479, -1.99999857});
  F near = horner(
      z, {-0.000358611229, 0.00230192975, -0.00794689357, 0.0214871988, -0.0538799912, 0.133323476, -0.333332956});
  near = mul_add(near, z * a, a);
  return with_sign_of(select(a < F(1.0), near, mul_add(e, far, F(1.0))), x);
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
// Computes log(x) of a normal number.
template <class D>
D log_short(const D& x) {
  Parts<D> p = split_normal(x);
  D f = p.m - D(1.0), z = f * f;
  D q = paired(f, z,
               {0.053585858852529186, -0.098718385118708216, 0.10015392724401996, -0.099273163093198752,
                0.11009611539488584, -0.12497411809234397, 0.1429057112888141, -0.16666927482507962,
                0.19999898140092745, -0.24999994829118749, 0.33333334043639601, -0.50000000021517177});
  return mul_add(p.e, D(0.69314718055994531), mul_add(q, z, f));
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

// erfinv is x * P(w) with w = -log(1 - x^2), where w < 5, and Q(root(w)) elsewhere. After M. Giles, "Approximating the
// erfinv function".
template <class D>
D erfinv_far(const D& x) {
  D w = D(0.0) - log_short(raise(D(1e-300), mul_add(D(0.0) - x, x, D(1.0))));
  D far = horner(root(w), {-1.4611379063622969e-05, 0.00040546348170014782, -0.0048775861756017481, 0.03303721545343305,
                           -0.13625518415881616, 0.34150637291583114, -0.47354774725084581, 1.2568456534183492,
                           -0.12297380354758916});
  D a = magnitude(x), r = with_sign_of(select(a < D(1.0), far, D(kInf)), x);
  return select(a <= D(1.0), r, D(kNaN));
}
// g + low is -w. P(w) = hi + lo, where lo has what was rounded off the first two terms, and all other terms. The
// constant term has few bits, so that hi minus it is exact.
template <class F>
F erfinv_single(const F& x) {
  Parts<F> t = split_normal(mul_add(F(0.0) - x, x, F(1.0)));
  F whole = t.e * F(0.693115234375), v = mul_add(t.e, F(3.19461849e-05), log_of_fraction(t.m - F(1.0)));
  F g = whole + v, low = v - (g - whole), z = g * g;
  F hi = mul_add(g, F(-0.232013762), F(0.886226892));
  F lo = mul_add(g, F(-0.232013762), F(0.886226892) - hi) + mul_add(low, F(-0.232013762), F(3.29814446e-08));
  lo = mul_add(paired(g, z,
                      {8.79989415e-09, 2.21312646e-07, 1.97999293e-06, 4.00642784e-06, -4.4477245e-05, -0.000127283973,
                       0.00233455328, 0.011548833}),
               z, lo);
  F r = mul_add(x, hi, x * lo);
  return by_double(magnitude(x) >= F(0.9966253), r, x, [](const auto& wide) { return erfinv_far(wide); });
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
// the probability that one is beyond |x|. Where it no longer is that, g falls further, to -126, for which 2^g is 0.
template <class F>
F normal_cdf_single(const F& x) {
  F a = lower(F(11.7240076), magnitude(x));
  F g = paired(a, a * a,
               {-1.63740808e-08, 5.35335687e-07, -7.45993975e-06, 5.58585161e-05, -0.000208542071, -0.000146730512,
                0.00712299906, -0.0525556877, -0.459186107, -1.15110767}) *
        a;
  F t = g + F(12582912.0 + 126), r = g - (t - F(12582912.0 + 126));
  F p = paired(r, r * r, {0.000153533605, 0.0013398875, 0.00961843692, 0.0555033237, 0.240226477, 0.693147182, 1.0});
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
    return erfinv_single(x);
  } else {
    return erfinv_double(x);
  }
}

// A logarithm to another base of 2^e * (1 + f): e * high + f / ln(base) + ..., both constants in two parts; e * high is
// exact. c: the polynomial of f by which f^2 is multiplied.
struct LogBase {
  double inverse, inverse_low, high, low;
};
template <class F, int kCount>
F log_of_parts(const Parts<F>& p, const LogBase& base, const double (&c)[kCount]) {
  F f = p.m - F(1.0);
  F q = mul_add(paired(f, f * f, c), f, F(base.inverse_low));
  F rest = base.low == 0 ? q * f : mul_add(q, f, p.e * F(base.low));
  F v = mul_add(f, F(base.inverse), rest);
  return base.high == 1 ? p.e + v : mul_add(p.e, F(base.high), v);
}
template <class F, int kCount>
F log_single(const F& x, const LogBase& base, const double (&c)[kCount]) {
  return rarely(is_edge_of_log(x), log_of_parts(split_normal(x), base, c), x,
                [&](const F& edge) { return log_edges(edge, log_of_parts(split_exponent(edge), base, c)); });
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
    return log_single(x, LogBase{1.44269502, 1.925963033e-08, 1.0, 0.0},
                      {0.0964198411, -0.167624936, 0.171561345, -0.179167137, 0.205159441, -0.24045147, 0.288568109,
                       -0.36067456, 0.480898082, -0.721347511});
  } else {
    return log_double(x, 2.0, 1.4426950408889634);
  }
}
template <class F>
F log10_of(const F& x) {
  if constexpr (FloatTraits<F>::kBits == 32) {
    return log_single(x, LogBase{0.434294492, -1.010305002e-08, 0.301025390625, 4.6050390665e-06},
                      {-0.0333033204, 0.0562440157, -0.0575359687, 0.0615613759, -0.0721254945, 0.0868687108,
                       -0.108580843, 0.144764781, -0.217147186});
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
