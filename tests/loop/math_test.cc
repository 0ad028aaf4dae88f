// Tests the functions of math.h against long double libm: bounds in units in the last place, and values at the edges.
#include <cmath>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "jit/loop/scalar_math.h"

namespace lutra {
namespace {

using namespace loop;

template <class F>
double ulps(F got, long double want) {
  const F rounded = F(want);
  if (got == rounded || (std::isnan(got) && std::isnan(want))) return 0;
  if (!std::isfinite(got) || !std::isfinite(rounded)) return INFINITY;
  int e;
  frexpl(want, &e);
  e = std::max(e, std::numeric_limits<F>::min_exponent);
  return double(fabsl(got - want) / ldexpl(1, e - std::numeric_limits<F>::digits));
}

// The largest error over [lo, hi]: evenly, and over all magnitudes in it.
template <class F, class Mine, class Exact>
double worst(Mine mine, Exact exact, double lo, double hi) {
  std::mt19937_64 rng(5);
  double most = 0;
  for (int i = 0; i < 40000; i++) {
    F x = F(lo + (hi - lo) * (double(rng() >> 11) / 9007199254740992.0));
    if (i % 2) {
      F y = floating(IntOf<F>(rng()));
      if (y >= lo && y <= hi) x = y;
    }
    most = std::max(most, ulps<F>(mine(x), exact(static_cast<long double>(x))));
  }
  return most;
}

template <class F>
void bounds() {
  const bool single = sizeof(F) == 4;
  INFO("bits " << sizeof(F) * 8);
  const double top = single ? 88.7 : 709.7, bottom = single ? -104 : -746;
  CHECK(worst<F>([](F x) { return exp_of(x); }, [](long double x) { return expl(x); }, bottom, top) <= 2);
  const double most = single ? 3.4e38 : 1.7e308;
  CHECK(worst<F>([](F x) { return log_of(x); }, [](long double x) { return logl(x); }, 0, most) <= 2);
  CHECK(worst<F>([](F x) { return log_of(x); }, [](long double x) { return logl(x); }, 0.5, 2) <= 2);
  // Functions of float32 must be within one unit in the last place.
  const double unit = single ? 1 : 2;
  CHECK(worst<F>([](F x) { return tanh_of(x); }, [](long double x) { return tanhl(x); }, -20, 20) <= unit);
  CHECK(worst<F>([](F x) { return tanh_of(x); }, [](long double x) { return tanhl(x); }, -1, 1) <= unit);
  CHECK(worst<F>([](F x) { return erf_of(x); }, [](long double x) { return erfl(x); }, -1, 1) <= (single ? 1 : 2.5));
  CHECK(worst<F>([](F x) { return erf_of(x); }, [](long double x) { return erfl(x); }, -7, 7) <= (single ? 1 : 3));
  for (double far : {1.0, 1e3, 1e5, 1e9, 1e15, most / 4}) {
    const double bound = single ? 1 : 3;
    CHECK(worst<F>([](F x) { return sin_of(x); }, [](long double x) { return sinl(x); }, -far, far) <= bound);
    CHECK(worst<F>([](F x) { return cos_of(x); }, [](long double x) { return cosl(x); }, -far, far) <= bound);
    CHECK(worst<F>([](F x) { return tan_of(x); }, [](long double x) { return tanl(x); }, -far, far) <= 2 * bound);
  }
  CHECK(worst<F>([](F x) { return tan_of(x); }, [](long double x) { return tanl(x); }, -1e5, 1e5) <= (single ? 1 : 6));
  CHECK(worst<F>([](F x) { return atan_of(x); }, [](long double x) { return atanl(x); }, -most, most) <= unit);
  CHECK(worst<F>([](F x) { return atan_of(x); }, [](long double x) { return atanl(x); }, -3, 3) <= unit);
  CHECK(worst<F>([](F x) { return asin_of(x); }, [](long double x) { return asinl(x); }, -1, 1) <= (single ? 1 : 3));
  CHECK(worst<F>([](F x) { return acos_of(x); }, [](long double x) { return acosl(x); }, -1, 1) <= (single ? 1 : 3));
  CHECK(worst<F>([](F x) { return exp2_of(x); }, [](long double x) { return exp2l(x); }, bottom, top) <= unit);
  CHECK(worst<F>([](F x) { return log2_of(x); }, [](long double x) { return log2l(x); }, 0, most) <= unit);
  CHECK(worst<F>([](F x) { return log2_of(x); }, [](long double x) { return log2l(x); }, 0.5, 2) <= (single ? 1 : 3));
  CHECK(worst<F>([](F x) { return log10_of(x); }, [](long double x) { return log10l(x); }, 0, most) <= unit);
  CHECK(worst<F>([](F x) { return log10_of(x); }, [](long double x) { return log10l(x); }, 0.5, 2) <= (single ? 1 : 3));
  CHECK(worst<F>([](F x) { return erfc_of(x); }, [](long double x) { return erfcl(x); }, -6, 0.5) <= unit);
  CHECK(worst<F>([](F x) { return erfc_of(x); }, [](long double x) { return erfcl(x); }, 0.5, single ? 10 : 26) <=
        (single ? 1 : 3));
  for (double near : {1e-3, 0.3, 0.9, 1.0}) {
    CHECK(worst<F>([](F x) { return atanh_of(x); }, [](long double x) { return atanhl(x); }, -near, near) <=
          (single ? 1 : 3));
  }
  CHECK(worst<F>([](F x) { return atanh_of(x); }, [](long double x) { return atanhl(x); }, 1 - 1e-5, 1) <= unit);
  CHECK(worst<F>([](F x) { return expm1_of(x); }, [](long double x) { return expm1l(x); }, -1, 1) <= 2);
  CHECK(worst<F>([](F x) { return expm1_of(x); }, [](long double x) { return expm1l(x); }, bottom, top) <= 2);
  CHECK(worst<F>([](F x) { return log1p_of(x); }, [](long double x) { return log1pl(x); }, -1, 1) <= 2);
  CHECK(worst<F>([](F x) { return log1p_of(x); }, [](long double x) { return log1pl(x); }, 0, most) <= 2);
  for (F other : {F(1), F(-1), F(0.3), F(-1e10)}) {
    auto mine = [=](F x) { return atan2_of(x, other); }, turned = [=](F x) { return atan2_of(other, x); };
    CHECK(worst<F>(
              mine, [=](long double x) { return atan2l(x, other); }, -most, most) <= unit);
    CHECK(worst<F>(
              mine, [=](long double x) { return atan2l(x, other); }, -3, 3) <= unit);
    CHECK(worst<F>(
              turned, [=](long double x) { return atan2l(other, x); }, -3, 3) <= unit);
  }
  auto pow_at = [](F y) {
    return worst<F>([y](F x) { return pow_of(x, y); }, [y](long double x) { return powl(x, y); }, 0, 1e4);
  };
  for (double y : {0.5, 2.0, 3.0, -1.5, 7.25, -37.0}) CHECK(pow_at(F(y)) <= unit);
}

// Returns the error of erfinv in units in the last place, computed by erf and the slope of erfinv at that place.
double erfinv_ulps(float x) {
  long double y = erfinv_of(double(x));
  for (int i = 0; i < 3; i++) {
    const long double left = x < 0.5f ? erfl(y) - x : (1.0L - x) - erfcl(y);  // no cancellation near 1
    y -= left / (1.12837916709551257390L * expl(-y * y));
  }
  return ulps<float>(erfinv_of(x), y);
}

// How far the distribution of normal numbers, and a number times it (GELU), are from theirs over [lo, hi].
template <class F>
void normal_bounds(double lo, double hi, double chance, double product) {
  std::mt19937_64 rng(6);
  double most = 0, most_product = 0;
  for (int i = 0; i < 40000; i++) {
    const F x = F(lo + (hi - lo) * (double(rng() >> 11) / 9007199254740992.0));
    const long double want = 0.5L * erfcl(x * -0.70710678118654752440L), got = normal_cdf_of(x);
    most = std::max(most, double(fabsl(got - want)));
    most_product = std::max(most_product, double(fabsl(x * normal_cdf_of(x) - x * want)));
  }
  INFO("from " << lo << " to " << hi);
  CHECK(most <= chance);
  CHECK(most_product <= product);
}

template <class F>
bool same(F a, F b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

template <class F>
F most(F) {
  return std::numeric_limits<F>::max();
}

template <class F>
void edges() {
  const F inf = INFINITY, nan = NAN, zero = 0;
  INFO("bits " << sizeof(F) * 8);
  CHECK(same(exp_of(inf), inf));
  CHECK(same(exp_of(-inf), zero));
  CHECK(same(exp_of(nan), nan));
  CHECK(same(exp_of(-zero), F(1)));
  CHECK(same(exp_of(F(1000)), inf));
  CHECK(same(exp_of(F(-1000)), zero));
  CHECK(same(log_of(zero), -inf));
  CHECK(same(log_of(-zero), -inf));
  CHECK(same(log_of(F(-1)), nan));
  CHECK(same(log_of(-inf), nan));
  CHECK(same(log_of(inf), inf));
  CHECK(same(log_of(nan), nan));
  CHECK(same(log_of(F(1)), zero));
  CHECK(same(tanh_of(inf), F(1)));
  CHECK(same(tanh_of(-inf), F(-1)));
  CHECK(same(tanh_of(nan), nan));
  CHECK(same(tanh_of(-zero), -zero));
  CHECK(same(erf_of(inf), F(1)));
  CHECK(same(erf_of(-inf), F(-1)));
  CHECK(same(erf_of(-zero), -zero));
  CHECK(same(erf_of(nan), nan));
  CHECK(same(sin_of(inf), nan));
  CHECK(same(sin_of(-zero), -zero));
  CHECK(same(cos_of(zero), F(1)));
  CHECK(same(tan_of(-zero), -zero));
  CHECK(same(tan_of(inf), nan));
  CHECK(same(atan_of(-zero), -zero));
  CHECK(same(atan_of(-inf), F(-1.5707963267948966)));
  CHECK(same(atan_of(nan), nan));
  CHECK(same(asin_of(-zero), -zero));
  CHECK(same(asin_of(F(1.5)), nan));
  CHECK(same(acos_of(F(1)), zero));
  CHECK(same(acos_of(F(-1.5)), nan));
  CHECK(same(exp2_of(-inf), zero));
  CHECK(same(exp2_of(F(5)), F(32)));
  CHECK(same(exp2_of(F(2000)), inf));
  CHECK(same(log2_of(F(8)), F(3)));
  CHECK(same(log2_of(zero), -inf));
  CHECK(same(log10_of(F(1000)), F(3)));
  CHECK(same(log10_of(F(-1)), nan));
  CHECK(same(erfinv_of(F(-1)), -inf));
  CHECK(same(erfinv_of(-zero), -zero));
  CHECK(same(erfinv_of(F(2)), nan));
  CHECK(same(erfc_of(inf), zero));
  CHECK(same(erfc_of(-inf), F(2)));
  CHECK(same(erfc_of(nan), nan));
  CHECK(same(atanh_of(F(1)), inf));
  CHECK(same(atanh_of(F(-1)), -inf));
  CHECK(same(atanh_of(F(1.5)), nan));
  CHECK(same(atanh_of(-inf), nan));
  CHECK(same(atanh_of(nan), nan));
  CHECK(same(atanh_of(-zero), -zero));
  CHECK(same(normal_cdf_of(inf), F(1)));
  CHECK(same(normal_cdf_of(-inf), zero));
  CHECK(same(normal_cdf_of(nan), nan));
  CHECK(same(normal_cdf_of(zero), F(0.5)));
  for (F x : {F(-20), F(-1e4), F(-1e30), -most(F())}) CHECK(same(normal_cdf_of(x), zero));
  CHECK(same(expm1_of(inf), inf));
  CHECK(same(expm1_of(-inf), F(-1)));
  CHECK(same(expm1_of(nan), nan));
  CHECK(same(expm1_of(-zero), -zero));
  CHECK(same(log1p_of(F(-1)), -inf));
  CHECK(same(log1p_of(F(-2)), nan));
  CHECK(same(log1p_of(inf), inf));
  CHECK(same(log1p_of(nan), nan));
  CHECK(same(log1p_of(-zero), -zero));
  for (F y : {inf, -inf, nan, zero, -zero, F(1), F(-2), most(F())}) {
    for (F x : {inf, -inf, nan, zero, -zero, F(1), F(-2), most(F())}) {
      INFO("atan2(" << y << ", " << x << ")");
      CHECK((same(atan2_of(y, x), F(atan2l(y, x))) || ulps<F>(atan2_of(y, x), atan2l(y, x)) <= 2));
    }
  }
  const F tiny = std::numeric_limits<F>::denorm_min();
  CHECK(same(expm1_of(tiny), tiny));
  CHECK(same(log1p_of(tiny), tiny));
  CHECK(same(atan2_of(tiny, F(1)), tiny));
  CHECK(same(tanh_of(tiny), tiny));
  CHECK(same(log_of(tiny), F(logl(tiny))));
}

// The C library's pow is right at the edges; in between it and ours may differ in the last place.
template <class F>
void pow_edges() {
  const double v[] = {0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, INFINITY, -INFINITY, NAN, 1e30, -1e30, 1e-30};
  for (double x : v) {
    for (double y : v) {
      const F got = pow_of(F(x), F(y)), want = std::pow(F(x), F(y));
      INFO(sizeof(F) * 8 << " bits: pow(" << x << ", " << y << ") = " << got << ", not " << want);
      const bool close = std::fabs(got - want) <= 4 * std::numeric_limits<F>::epsilon() * std::fabs(want);
      CHECK((same(got, want) || (close && std::signbit(got) == std::signbit(want))));
    }
  }
}

}  // namespace

TEST_CASE("accuracy of the transcendental functions", "[loop]") {
  bounds<float>();
  bounds<double>();
}

// Near multiples of pi/2, small and large ones; 6381956970095103 * 2^797 is the double nearest to one.
TEST_CASE("sines where the turns cancel", "[loop]") {
  const auto all = [](double x) {
    INFO("x " << x);
    CHECK(ulps<double>(sin_of(x), sinl(x)) <= 3);
    CHECK(ulps<double>(cos_of(x), cosl(x)) <= 3);
    CHECK(ulps<double>(tan_of(x), tanl(x)) <= 6);
  };
  for (int i = 1; i < 2000; i++) {
    all(i * M_PI_2);
    all(M_PI_2 * 1e4 * i * i);
    all(-ldexp(M_PI_2, i % 1023));
    all(ldexp(1, i % 1024));
  }
  for (double x : {ldexp(6381956970095103.0, 797), 1e16, 1e22, -1e300, most(0.0)}) all(x);
  for (double x : {INFINITY, -INFINITY, NAN}) {
    CHECK((std::isnan(sin_of(x)) && std::isnan(cos_of(x)) && std::isnan(tan_of(x))));
  }
}

// The remainder has few of the bits that the parts of pi/2 leave.
TEST_CASE("sines of 32 bits where the turns cancel", "[loop]") {
  double most_error = 0;
  for (int i = 1; i < 90000; i++) {
    for (double k : {double(i), i + 0.5}) {
      const float x = float(k * M_PI_2);
      for (double e :
           {ulps<float>(sin_of(x), sinl(x)), ulps<float>(cos_of(x), cosl(x)), ulps<float>(tan_of(x), tanl(x))})
        most_error = std::max(most_error, e);
    }
  }
  CHECK(most_error <= 1);
}

// float32: the error is at most one unit of 1 everywhere, and 2^-18 of the value far below 0.
TEST_CASE("accuracy of the normal distribution", "[loop]") {
  for (double far : {0.1, 1.0, 6.0, 40.0}) {
    normal_bounds<float>(-far, far, 0x1p-23, 0x1p-23 * std::max(far < 7 ? far : 4, 1.0));
    normal_bounds<double>(-far, far, 0x1p-52, 0x1p-49);
  }
  for (float x = -5.5f; x < 0; x += 1e-3f) {
    const double want = 0.5 * std::erfc(double(x) * -M_SQRT1_2);
    REQUIRE(std::fabs(normal_cdf_of(x) - want) <= 0x1p-18 * want);
  }
}

// Must equal the C library bit for bit.
template <class F>
void next_numbers() {
  std::mt19937_64 rng(7);
  std::vector<F> v{0, F(-0.0), INFINITY, -INFINITY, NAN, 1, -2, most(F()), -most(F())};
  for (F tiny : {std::numeric_limits<F>::denorm_min(), std::numeric_limits<F>::min()}) v.insert(v.end(), {tiny, -tiny});
  for (int i = 0; i < 300; i++) v.push_back(floating(IntOf<F>(rng())));
  for (F x : v) {
    for (F y : v) {
      if (!same(nextafter_of(x, y), std::nextafter(x, y))) FAIL("nextafter(" << x << ", " << y << ")");
    }
  }
}

TEST_CASE("the next number", "[loop]") {
  next_numbers<float>();
  next_numbers<double>();
}

TEST_CASE("accuracy of erfinv", "[loop]") {
  double most = 0;
  for (float x = 1e-20f; x < 1; x = x < 0.5f ? x * 1.01f : x + (1 - x) * 0.003f + 6e-8f) {
    most = std::max(most, erfinv_ulps(x));
    CHECK(erfinv_of(-x) == -erfinv_of(x));
  }
  CHECK(most <= 1);
}

TEST_CASE("their values at the edges", "[loop]") {
  edges<float>();
  edges<double>();
  pow_edges<float>();
  pow_edges<double>();
}

TEST_CASE("a square by pow is exact", "[loop]") {
  std::mt19937_64 rng(3);
  for (int i = 0; i < 10000; i++) {
    const float x = floating(uint32_t(rng()));
    CHECK(same(pow_of(x, 2.0f), x * x));
  }
}

// If one power of two is exact, the result is that of two.
template <class F>
void within() {
  std::mt19937_64 rng(9);
  for (int i = 0; i < 100000; i++) {
    const F x = F(double(rng() >> 11) / 9007199254740992.0 * 160 - 80);
    if (!same(exp_within(x), exp_of(x))) FAIL("exp_within(" << x << ")");
  }
  for (F x : {F(0), F(-0.0), F(80), F(-80), F(1e-30), F(-1e-30)}) CHECK(same(exp_within(x), exp_of(x)));
  CHECK(std::isnan(exp_within(F(NAN))));
  // A NaN of any payload stays one.
  for (int i = 0; i < 1000; i++) CHECK(std::isnan(erf_of(floating(IntOf<F>(rng() | bits(F(INFINITY)) | 1)))));
}

TEST_CASE("e^x where one power of two is exact", "[loop]") {
  within<float>();
  within<double>();
}

// The words as they are published: 32 bits after each step.
TEST_CASE("words of Philox", "[loop]") {
  std::mt19937_64 rng(4);
  for (int i = 0; i < 2000; i++) {
    const uint64_t index = rng() >> (i % 64), call = rng() >> (i % 50), seed = rng();
    uint32_t c[4] = {uint32_t(index), uint32_t(index >> 32), uint32_t(call), uint32_t(call >> 32)};
    uint32_t k[2] = {uint32_t(seed), uint32_t(seed >> 32)};
    for (int round = 0; round < 10; round++, k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u) {
      const uint64_t p = uint64_t(c[0]) * 0xD2511F53u, q = uint64_t(c[2]) * 0xCD9E8D57u;
      const uint32_t next[4] = {uint32_t(q >> 32) ^ c[1] ^ k[0], uint32_t(q), uint32_t(p >> 32) ^ c[3] ^ k[1],
                                uint32_t(p)};
      std::copy_n(next, 4, c);
    }
    const Words<uint64_t> w = philox<uint64_t>(index, call, seed);
    for (int n = 0; n < 4; n++) REQUIRE(w.word(n) == c[n]);
    REQUIRE(random_bits(w) == (uint64_t(c[0]) << 32 | c[1]) >> 1);
    const uint64_t fraction = (uint64_t(c[0]) << 32 | c[1]) >> 12;
    REQUIRE(unit_double<double>(w.w[0], w.w[1]) == double(fraction) / 4503599627370496.0);
    REQUIRE(unit_single<double>(w.word(0)) == double(c[0] >> 8) / 16777216.0);
    const double u = 1 - double(fraction) / 4503599627370496.0;
    REQUIRE(same(log_of_parts(split_normal(u)), log_of(u)));
    // In 32 bits: of the first word, rounded, and of the angle's upper bits.
    const long double chance = 1 - c[0] / 4294967296.0L, turns = (c[2] >> 8) / 16777216.0L;
    const long double radius = sqrtl(-2 * logl(chance)), want = radius * cosl(2 * 3.14159265358979323846L * turns);
    REQUIRE(fabsl(normal_single<double>(w) - want) <= 4e-7L * radius + 1.2e-7L / radius);
    REQUIRE(fabsl(normal_single<double>(w) - normal_double<double>(w)) <= 1e-6L * radius + 2.4e-7L / radius);
  }
  CHECK(same(log_of_parts(split_normal(1.0)), 0.0));
  CHECK(same(log_of_parts(split_normal(0x1p-52)), log_of(0x1p-52)));
}

}  // namespace lutra
