// Decomposes Bessel and entropy functions of torch.special.
#include <cmath>

#include "ops/decompose/formula.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// Chebyshev series of exp(-x) I0(x) and exp(-x) I1(x) / x up to 8, and of sqrt(x) exp(-x) I(x) beyond, highest order
// first (Cephes).
constexpr double kI0Near[] = {
    -4.4153416464793395e-18, 3.3307945188222384e-17, -2.4312798465479549e-16, 1.7153912855551331e-15,
    -1.1685332877993451e-14, 7.6761854986049361e-14, -4.856446783111929e-13,  2.9550526631296399e-12,
    -1.7268262914415559e-11, 9.675809035373237e-11,  -5.1897956016352627e-10, 2.6598237246823866e-09,
    -1.300025009986248e-08,  6.0469950225419186e-08, -2.6707938539406119e-07, 1.1173875391201037e-06,
    -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05,  0.00018850288509584165,
    -0.00057637557453858236, 0.0016394756169413357,  -0.0043243099950505759,  0.010546460394594998,
    -0.023737414805899471,   0.049305284239670712,   -0.094901097048047639,   0.17162090152220877,
    -0.3046826723431984,     0.67679527440947607};
constexpr double kI0Far[] = {
    -7.2331804878747538e-18, -4.8305044859441819e-18, 4.4656214202967598e-17,  3.4612228676974612e-17,
    -2.8276239805165836e-16, -3.425485619677219e-16,  1.7725601330565263e-15,  3.8116806693526224e-15,
    -9.5548466988283073e-15, -4.1505693472872222e-14, 1.54008621752141e-14,    3.8527783827421426e-13,
    7.180124451383666e-13,   -1.7941785315068062e-12, -1.3215811840447713e-11, -3.1499165279632416e-11,
    1.1889147107846439e-11,  4.9406023882249701e-10,  3.3962320257083865e-09,  2.266668990498178e-08,
    2.0489185894690638e-07,  2.8913705208347567e-06,  6.8897583469168245e-05,  0.0033691164782556943,
    0.80449041101410879};
constexpr double kI1Near[] = {
    2.7779141127610464e-18, -2.111421214358166e-17,  1.5536319577362005e-16, -1.1055969477353862e-15,
    7.6006842947354077e-15, -5.0421855047279118e-14, 3.2237933659455748e-13, -1.9839743977649436e-12,
    1.1736186298890901e-11, -6.6634897235020271e-11, 3.6255902815521172e-10, -1.8872497517228294e-09,
    9.3815373864957726e-09, -4.4450591287963281e-08, 2.0032947535521353e-07, -8.5687202646954547e-07,
    3.4702513081376785e-06, -1.3273163656039436e-05, 4.7815651075500542e-05, -0.00016176081582589674,
    0.00051228595616857576, -0.0015135724506312532,  0.0041564229443128882,  -0.010564084894626197,
    0.024726449030626516,   -0.052945981208094989,   0.10264365868984709,    -0.17641651835783406,
    0.25258718644363365};
constexpr double kI1Far[] = {
    7.5172963108421052e-18,  4.4143483230717077e-18,  -4.6503053684893586e-17, -3.2095259219934238e-17,
    2.9626289976459501e-16,  3.3082023109209285e-16,  -1.8803547755107825e-15, -3.8144030724370075e-15,
    1.0420276984128802e-14,  4.272440016711951e-14,   -2.1015418427726643e-14, -4.0835511110921974e-13,
    -7.1985517762459084e-13, 2.0356285441470896e-12,  1.4125807436613782e-11,  3.2526035830154884e-11,
    -1.8974958123505413e-11, -5.5897434621965838e-10, -3.835380385964237e-09,  -2.6314688468895196e-08,
    -2.5122362378702088e-07, -3.8825648088776906e-06, -0.00011058893876262371, -0.0097610974913614687,
    0.77857623501828011};

// Sums a series at x / 2 by Clenshaw's recurrence.
template <size_t N>
Tensor chebyshev(const Tensor& x, const double (&series)[N]) {
  Tensor before = full({}, series[0], x->dtype, x->device()), last = x * series[0] + series[1], older;
  for (size_t i = 2; i < N; i++) {
    older = before, before = last;
    last = x * before - older + series[i];
  }
  return (last - older) * 0.5;
}

// Chooses between the series near 0 and the series far from it, by the size of x.
Tensor near_or_far(const Tensor& size, const Tensor& near, const Tensor& far) {
  return where(le(size, Scalar(8.0)), near, far / sqrt(size));
}
Tensor near_place(const Tensor& size) { return size * 0.5 - 2.0; }
Tensor far_place(const Tensor& size) { return 32.0 / size - 2.0; }

// Computes I0, scaled by exp(-|x|) or not.
Results bessel0(const Value& v, bool scaled) {
  const Tensor x = to_dtype(v.tensor(), to_float(v.tensor()->dtype)), size = abs(x);
  Tensor near = chebyshev(near_place(size), kI0Near), far = chebyshev(far_place(size), kI0Far);
  if (!scaled) near = exp(size) * near, far = exp(size) * far;
  return {near_or_far(size, near, far)};
}

Results bessel1(const Value& v, bool scaled) {
  const Tensor x = to_dtype(v.tensor(), to_float(v.tensor()->dtype)), size = abs(x);
  Tensor near = chebyshev(near_place(size), kI1Near) * size, far = chebyshev(far_place(size), kI1Far);
  if (!scaled) near = exp(size) * near, far = exp(size) * far;
  const Tensor r = near_or_far(size, near, far);
  return {where(lt(x, Scalar(0.0)), neg(r), r)};
}

}  // namespace

Results decompose_i0(const Args& args) { return bessel0(args[0], false); }
Results decompose_i0e(const Args& args) { return bessel0(args[0], true); }
Results decompose_i1(const Args& args) { return bessel1(args[0], false); }
Results decompose_i1e(const Args& args) { return bessel1(args[0], true); }

Results decompose_entr(const Args& args) {
  const Tensor x = to_dtype(args[0].tensor(), to_float(args[0].tensor()->dtype));
  const Tensor below = where(eq(x, Scalar(0.0)), Scalar(0.0), where(isnan(x), x, Scalar(-INFINITY)));
  return {where(gt(x, Scalar(0.0)), neg(x) * log(x), below)};
}
Results decompose_ndtr(const Args& args) {
  const Tensor x = to_dtype(args[0].tensor(), to_float(args[0].tensor()->dtype));
  return {(erf(x * M_SQRT1_2) + 1.0) * 0.5};
}
Results decompose_xlog1py(const Args& args) {
  const DType type = info(OpId::xlog1py).meta(OpId::xlog1py, args)[0].dtype;
  const Device device = (args[0].is<Tensor>() ? args[0] : args[1]).as<Tensor>()->device();
  const auto operand = [&](const Value& v) {
    return wide(v.is<Tensor>() ? to_dtype(v.as<Tensor>(), type) : full({}, v.as<Scalar>(), type, device));
  };
  const Tensor x = operand(args[0]), y = operand(args[1]);
  return {to_dtype(where(eq(x, Scalar(0.0)), where(isnan(y), y, Scalar(0.0)), x * log1p(y)), type)};
}
// (input, p): the logarithm of the p-dimensional gamma function.
Results decompose_mvlgamma(const Args& args) {
  const int64_t p = args[1].sym_int().guard();
  if (p < 1) fail("mvlgamma: p must be at least 1, got ", p);
  const Tensor x = to_dtype(args[0].tensor(), to_float(args[0].tensor()->dtype));
  Tensor sum;
  for (int64_t j = p - 1; j >= 0; j--) {
    const Tensor term = lgamma(x - double(j) / 2);
    sum = sum ? sum + term : term;
  }
  return {sum + double(p * (p - 1)) * std::log(M_PI) / 4};
}

}  // namespace lutra
