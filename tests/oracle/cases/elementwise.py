"""Elementwise functions: values, gradients, special values, integer and bool inputs, errors."""
import torch

# name: (low, high) of inputs whose gradient is wanted
UNARY = {
    "sin": (-4, 4), "cos": (-4, 4), "tan": (-1.3, 1.3), "asin": (-0.95, 0.95), "acos": (-0.95, 0.95), "atan": (-5, 5), "sinh": (-4, 4),
    "cosh": (-4, 4), "asinh": (-6, 6), "acosh": (1.05, 6), "atanh": (-0.95, 0.95), "exp2": (-5, 5), "expm1": (-3, 3), "log2": (0.1, 9),
    "log10": (0.1, 9), "log1p": (-0.9, 9), "erf": (-3, 3), "erfc": (-3, 3), "erfinv": (-0.95, 0.95), "lgamma": (0.1, 6), "digamma": (0.2, 6),
    "deg2rad": (-200, 200), "rad2deg": (-4, 4), "sinc": (-3, 3), "trunc": (-4, 4), "frac": (-4, 4), "sgn": (-2, 2), "round": (-4, 4),
    "positive": (-2, 2), "exp": (-4, 4), "log": (0.1, 9), "tanh": (-3, 3), "sigmoid": (-6, 6), "sqrt": (0.1, 9), "rsqrt": (0.1, 9),
}
# functions whose error in units in the last place grows with PyTorch's own, or near roots
LOOSE = {"lgamma", "digamma", "erfinv", "tan", "sinc", "rad2deg", "deg2rad", "log1p", "sigmoid", "frac", "atan", "exp2"}
SPECIAL_ONLY_EQUAL = {"digamma", "lgamma"}


def cases(case, error, t):
    case("fake_quantize_per_tensor_affine", [t.g(9, scale=3.0)], "torch.fake_quantize_per_tensor_affine(a, 0.1, 2, -8, 7)", variants=["strided"])
    error("fake_quantize_per_tensor_affine bounds", [t.f(3)], "torch.fake_quantize_per_tensor_affine(a, 0.1, 0, 7, -8)")
    error("isclose NaN", [t.f(3), t.f(3)], "torch.isclose(a, b, rtol=nan)")
    for op, (low, high) in UNARY.items():
        # PyTorch's trigamma is good to ten digits.
        case(op, [t.u(low, high, 3, 5)], f"a.{op}()", ulp=None if op in LOOSE else 4, grad_tol=1e-9 if op == "digamma" else None,
             # PyTorch's halves cancel in sinc's gradient.
             variants=["strided", "float64", "zero_dim", "empty"] if op == "sinc" else None)
        if op in ("digamma", "lgamma", "sinc", "sin", "cos", "tan"):  # large arguments lose digits in their own ways
            case(op + " special", [t.t([0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 1e-30, 0.5, 1.0, 2.0, 10.0])],
                 f"torch.{op}(a)", tol=1e-5, variants=["strided", "float64"])
        else:
            case(op + " special", [t.special], f"torch.{op}(a)", signs=op != "digamma", variants=["strided", "float64", "zero_dim"])
        if op not in ("frac",):
            case(op + " integers", [t.i(4, 5, low=1)], f"torch.{op}(a)")
        if op not in ("trunc", "frac", "round", "positive"):
            case(op + " bool", [t.mask(5)], f"torch.{op}(a)")
        if op not in ("positive",):
            case(op + "_", [t.u(low, high, 6, grad=False)], f"a.clone().{op}_()")
    case("lgamma negative", [t.u(-5.4, -0.1, 9)], "a.lgamma()", tol=2e-5, variants=["strided", "float64"])
    # PyTorch's series ends at eight digits.
    for n in range(5):
        case(f"polygamma {n}", [t.u(0.3, 6, 3, 5)], f"torch.polygamma({n}, a)", f"lt.polygamma({n}, a)", tol=1e-5, grad_tol=1e-4,
             variants=["strided", "zero_dim", "empty"])
        case(f"polygamma {n} in float64", [t.u(0.3, 6, 3, 5, dtype=torch.float64)], f"a.polygamma({n})", f"a:polygamma({n})", tol=1e-7,
             grad_tol=1e-7, variants=[])
    case("polygamma negative", [t.t([-0.5, -1.5, -2.25, -7.7], torch.float64)], "torch.polygamma(2, a)", "lt.polygamma(2, a)", tol=1e-7, variants=[])
    case("polygamma at poles", [t.t([0.0, -1.0, -2.0, float("nan"), float("-inf")])], "torch.polygamma(3, a)", "lt.polygamma(3, a)", variants=[])
    case("polygamma integers", [t.i(4, 5, low=1)], "torch.polygamma(2, a)", "lt.polygamma(2, a)", tol=1e-5)
    case("polygamma_", [t.u(0.3, 6, 6, grad=False)], "a.clone().polygamma_(1)", "a:clone():polygamma_(1)", tol=1e-5)
    error("polygamma of a negative order", [t.f(3)], "torch.polygamma(-1, a)", "lt.polygamma(-1, a)")
    for op in ("igamma", "igammac"):
        case(op, [t.u(0.1, 9, 4, 5, grad=False), t.u(0.1, 9, 5)], f"torch.{op}(a, b)", tol=1e-5, grad_tol=1e-5)
        case(op + " far", [t.t([0.01, 0.01, 0.5, 3.0, 50.0, 50.0, 300.0, 300.0, 1e6, 1e6, 1e6], torch.float64),
                           t.t([0.02, 3.0, 1.05, 40.0, 45.0, 60.0, 250.0, 350.0, 999000.0, 1e6, 1001000.0], torch.float64)],
             f"torch.{op}(a, b)", tol=1e-9, variants=[])
        case(op + " special", [t.t([0.0, 0.0, 1.0, float("inf"), 1.0, -1.0, float("nan"), float("inf")]),
                               t.t([0.0, 1.0, 0.0, 1.0, float("inf"), 1.0, 1.0, float("inf")])], f"a.{op}(b)", variants=["float64"])
        case(op + "_", [t.u(0.1, 9, 6, grad=False), t.u(0.1, 9, 6, grad=False)], f"a.clone().{op}_(b)", tol=1e-5)
        error(op + " of integers", [t.i(3, 4), t.i(3, 4)], f"torch.{op}(a, b)")
    case("nextafter", [t.f(3, 5), t.f(5)], "torch.nextafter(a, b)", ulp=0.5)
    case("nextafter special", [t.special, t.special.flip(0)], "torch.nextafter(a, b)", ulp=0.5, signs=True, variants=["float64", "float16", "bfloat16"])
    steps = [0.0, -0.0, 1.0, 2.0, 2.0, 1e-45, -1e-45, 1.1754944e-38, 3e-38, 1e-36, 3.4028235e38, float("inf"), -5.0, 1e-40]
    ends = [1.0, 1.0, 1.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 1.0, float("inf"), 0.0, -6.0, -1.0]
    case("nextafter at edges", [t.t(steps), t.t(ends)], "a.nextafter(b)", ulp=0.5, signs=True, variants=[])
    case("nextafter_", [t.f(6), t.f(6)], "a.clone().nextafter_(b)", ulp=0.5)
    error("nextafter of integers", [t.i(3, 4), t.i(3, 4)], "torch.nextafter(a, b)")
    # PyTorch's derivatives beside the poles, at whole numbers, are not exact.
    between = (t.u(-0.9, -0.1, 9, grad=False) - t.i(4, 9)).requires_grad_(True)
    case("digamma negative", [between], "a.digamma()", tol=1e-4, grad_tol=1e-3, variants=["strided", "float64"])
    case("log2 of powers", [t.t([0.25, 0.5, 1.0, 2.0, 8.0, 1024.0])], "a.log2()", ulp=0)
    case("log10 of powers", [t.t([1e-3, 1.0, 10.0, 1000.0, 1e6])], "a.log10()", ulp=1)
    case("log10 of powers float64", [t.t([1.0, 10.0, 1000.0, 1e6, 1e15], torch.float64)], "a.log10()", ulp=0)
    case("round halves", [t.t([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.4999999, 8388609.0, -3e9])], "a.round()", signs=True)
    case("round decimals", [t.g(6, scale=9)], "a.round(decimals=1)")
    case("round tens", [t.f(6, scale=99)], "a.round(decimals=-1)")
    case("sinh large", [t.t([88.9, -89.2, 89.5, 1e-8, -1e-5])], "a.sinh()", ulp=4)
    case("sinh large float64", [t.t([709.9, -710.2, 711.0, 1e-8, -1e-5], torch.float64)], "a.sinh()", ulp=8)
    case("asinh large", [t.t([1e10, -1e20, 3e38, 1e-12])], "a.asinh()", ulp=4)
    case("expm1 small", [t.t([1e-8, -1e-12, 1e-3, -50.0, 80.0])], "a.expm1()", ulp=4)
    case("log1p small", [t.t([1e-8, -1e-12, 1e-3, -0.999999, 1e30])], "a.log1p()", ulp=4)
    case("erfc large", [t.t([1.0, 3.0, 6.0, 9.0, 10.0, -3.0])], "a.erfc()", ulp=8)
    case("erfinv near one", [t.t([0.999, -0.9999, 0.999999, 1e-8])], "a.erfinv()", tol=1e-5)

    # Two operands.
    case("atan2", [t.g(3, 4), t.g(3, 4)], "a.atan2(b)", ulp=8)
    case("atan2 broadcast", [t.g(3, 1), t.g(4)], "torch.atan2(a, b)")
    case("atan2 special", [t.special.reshape(-1, 1), t.special], "torch.atan2(a, b)", signs=True, variants=["strided", "float64"])
    case("atan2 integers", [t.i(5, 6, low=-5), t.i(5, 6, low=1)], "torch.atan2(a, b)")
    case("hypot", [t.g(3, 4), t.g(4)], "a.hypot(b)", ulp=4)
    case("hypot special", [t.special.reshape(-1, 1), t.special], "torch.hypot(a, b)", variants=["strided", "float64"])
    case("copysign", [t.g(3, 4), t.g(4)], "a.copysign(b)")
    case("copysign number", [t.g(5)], "a.copysign(-2)")
    case("copysign special", [t.special, t.f(16)], "a.copysign(b)", signs=True)
    case("copysign integers", [t.i(5, 6), t.i(5, 6, low=-5)], "torch.copysign(a, b)")
    case("signbit", [t.t([0.0, -0.0, 1.0, -2.5, float("inf"), float("-inf")])], "a.signbit()")
    case("signbit integers", [t.i(5, 6, low=-5)], "a.signbit()")
    case("fmod", [t.g(3, 4, scale=5), t.g(4, positive=True)], "a.fmod(b)")
    case("fmod number", [t.g(6, scale=5)], "a.fmod(1.5)")
    # PyTorch's fmod gives NaN for denormal divisors.
    normal = t.t([0.0, -0.0, 1.5, -2.5, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, 0.5, 100.0, -100.0])
    case("fmod special", [normal.reshape(-1, 1), normal], "torch.fmod(a, b)", signs=True, variants=["strided", "float64"])
    for op in ("fmod", "remainder", "floor_divide"):
        error(f"{op} of bools", [t.t([True, False]), t.t([True, True])], f"torch.{op}(a, b)")
    error("fmod_ of bools", [t.t([True, False]), t.t([True, True])], "a.fmod_(b)")
    case("fmod integers", [t.i(9, 8, low=-9), t.i(4, 8, low=1)], "a.fmod(b)")
    case("remainder signs", [t.t([5.5, -5.5, 5.5, -5.5, 0.0]), t.t([2.0, 2.0, -2.0, -2.0, 3.0])], "a.remainder(b)", signs=True)
    case("remainder negative integers", [t.t([7, -7, 7, -7]), t.t([3, 3, -3, -3])], "a.remainder(b)")
    case("remainder special", [normal.reshape(-1, 1), normal], "torch.remainder(a, b)", variants=["strided", "float64"])
    for mode in ("trunc", "floor"):
        case(f"div {mode}", [t.g(3, 4, scale=5), t.g(4, positive=True)], f"a.div(b, rounding_mode='{mode}')")
        case(f"div {mode} integers", [t.i(9, 8, low=-9), t.i(4, 8, low=1)], f"torch.div(a, b, rounding_mode='{mode}')")
        case(f"div {mode} number", [t.i(9, 8, low=-9)], f"a.div(-2, rounding_mode='{mode}')")
        case(f"div {mode} special", [t.special, t.f(16)], f"a.div(b, rounding_mode='{mode}')")
        case(f"div_ {mode}", [t.i(9, 8, low=-9)], f"a.clone().div_(2, rounding_mode='{mode}')")
    case("div trunc of halves", [t.t([50.0, -50.0, 5.0]), t.t([0.2001, 0.2001, 0.2001])], "a.div(b, rounding_mode='trunc')")
    case("div trunc of halves by a number", [t.t([50.0, -50.0, 5.0])], "a.div(0.2001, rounding_mode='trunc')")
    for op in ("clamp(min=b)", "clamp(max=b)", "clamp_min(b)", "clamp_max(b)"):
        case(op[:-3] + " bool", [t.t([True, True, False, False]), t.t([True, False, True, False])], "a." + op, variants=["strided"])
    case("clamp bool by numbers", [t.mask(4)], "a.clamp(0, 1)", variants=["strided"])
    error("clamp bool by bools", [t.mask(4)], "a.clamp(False, True)")
    error("clamp bool by tensors", [t.mask(4), t.mask(4)], "a.clamp(b, b)")
    case("true_divide", [t.i(9, 4), t.i(9, 4, low=1)], "a.true_divide(b)")
    for op in ("fmax", "fmin", "maximum", "minimum"):
        case(op + " gradients", [t.g(3, 4), t.g(4)], f"a.{op}(b)")
        case(op + " special", [t.special.reshape(-1, 1), t.special], f"torch.{op}(a, b)", variants=["strided", "float64"])
        case(op + " integers", [t.i(5, 6), t.i(5, 6)], f"torch.{op}(a, b)")
        case(op + " ties", [t.t([1.0, 2.0, 2.0], grad=True), t.t([1.0, 2.0, 3.0], grad=True)], f"torch.{op}(a, b)")
    powers = t.t([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 0.5, -0.5, float("inf"), float("-inf"), float("nan")])
    case("pow signs", [powers.reshape(-1, 1), powers], "torch.pow(a, b)", signs=True, variants=["strided", "float64"])
    case("pow integers", [t.i(5, 8, low=-4), t.i(6, 8)], "torch.pow(a, b)")
    case("pow number base", [t.g(5)], "torch.pow(2, a)")
    case("pow gradient at zero", [t.t([0.0, 0.0, 2.0], grad=True), t.t([0.0, 2.0, 3.0], grad=True)], "torch.pow(a, b)")
    case("float_power", [t.i(5, 4), t.i(4, 4)], "torch.float_power(a, b)")
    case("float_power floats", [t.g(4, positive=True)], "a.float_power(1.5)")
    case("ldexp", [t.f(4), t.i(5, 4, low=-5)], "torch.ldexp(a, b)")
    case("ldexp gradient", [t.g(4), t.i(5, 4)], "torch.ldexp(a, b)")  # PyTorch's is 0 below, its 2^b is an integer's
    case("rsub", [t.g(4), t.g(4)], "torch.rsub(a, b)")
    case("rsub alpha", [t.g(4)], "torch.rsub(a, 2.5, alpha=2)")
    case("logaddexp", [t.g(3, 4), t.g(4)], "a.logaddexp(b)")
    case("logaddexp large", [t.t([1000.0, -1000.0, float("inf"), float("-inf"), 3.0]), t.t([1001.0, -1000.5, float("inf"), float("-inf"), float("nan")])],
         "torch.logaddexp(a, b)")
    case("logaddexp2", [t.g(3, 4), t.g(4)], "a.logaddexp2(b)")
    case("angle", [t.g(7)], "torch.angle(a)")
    case("angle special", [t.special], "torch.angle(a)", variants=[])
    case("angle of integers", [t.i(5, 6, low=-5)], "a.angle()")
    case("isreal", [t.f(5)], "torch.isreal(a)")
    case("isreal special", [t.special], "torch.isreal(a)", variants=[])
    for name in ("i0", "i0e", "i1", "i1e"):
        case(f"special.{name}", [t.u(-6, 6, 9)], f"torch.special.{name}(a)")
        case(f"special.{name} far", [t.u(7, 30, 9)], f"torch.special.{name}(a)", variants=["float64"])
        case(f"special.{name} at 0", [t.t([0.0, -0.0, float("nan")])], f"torch.special.{name}(a)", variants=["float64"])
        case(f"special.{name} of integers", [t.i(5, 6, low=-5)], f"torch.special.{name}(a)")
    case("i0", [t.u(-6, 12, 9)], "torch.i0(a)")
    case("i0_", [t.f(5)], "a.clone().i0_()")
    case("special.entr", [t.u(0.1, 3, 7)], "torch.special.entr(a)")
    case("special.entr special", [t.special], "torch.special.entr(a)", variants=[])
    case("special.ndtr", [t.g(7)], "torch.special.ndtr(a)")
    case("special.xlog1py", [t.g(5), t.g(5, positive=True)], "torch.special.xlog1py(a, b)")
    case("special.xlog1py zero", [t.t([0.0, 0.0, 0.0, 1.0]), t.t([-1.0, float("nan"), float("inf"), 2.0])], "torch.special.xlog1py(a, b)")
    case("special.xlog1py number", [t.g(4, positive=True)], "torch.special.xlog1py(2, a)")
    case("mvlgamma", [t.u(3, 9, 7)], "torch.mvlgamma(a, 3)", tol=4e-6)
    case("mvlgamma of integers", [t.i(9, 4, low=3)], "a.mvlgamma(2)")
    case("special.multigammaln", [t.u(3, 9, 7)], "torch.special.multigammaln(a, 2)", tol=4e-6)
    error("mvlgamma p", [t.f(3)], "torch.mvlgamma(a, 0)")
    for name in ("digamma", "psi", "erf", "erfc", "exp2", "expit", "expm1", "gammaln", "log1p", "sinc"):
        case(f"special.{name}", [t.u(0.2, 0.9, 5)], f"torch.special.{name}(a)", tol=1e-5, variants=["float64"])
    case("special.erfinv", [t.u(-0.9, 0.9, 5)], "torch.special.erfinv(a)", tol=1e-5, variants=["float64"])
    case("special.logit", [t.u(0.2, 0.9, 5)], "torch.special.logit(a, eps=0.3)", variants=["float64"])
    case("special.round", [t.f(5)], "torch.special.round(a, decimals=1)", variants=["float64"])
    case("special.polygamma", [t.u(0.5, 3, 5)], "torch.special.polygamma(1, a)", tol=1e-5, variants=["float64"])
    case("special.xlogy", [t.g(5), t.g(5, positive=True)], "torch.special.xlogy(a, b)", variants=["float64"])
    for name in ("gammainc", "gammaincc"):
        case(f"special.{name}", [t.u(0.5, 3, 5, grad=False), t.u(0.5, 3, 5)], f"torch.special.{name}(a, b)", tol=1e-5, variants=["float64"])
    for name in ("softmax", "log_softmax", "logsumexp"):
        case(f"special.{name}", [t.g(3, 4)], f"torch.special.{name}(a, 1)", variants=["float64"])
    case("xlogy", [t.g(5), t.g(5, positive=True)], "a.xlogy(b)")
    case("xlogy zero", [t.t([0.0, 0.0, 0.0, 1.0]), t.t([0.0, float("nan"), float("inf"), 2.0])], "torch.xlogy(a, b)")
    case("xlogy number", [t.g(4, positive=True)], "torch.xlogy(2, a)")
    case("heaviside", [t.t([-1.0, 0.0, 2.0, -0.0]), t.f(4)], "torch.heaviside(a, b)")
    case("logit", [t.u(0.05, 0.95, 6)], "a.logit()")
    case("logit eps", [t.u(-0.2, 1.2, 9)], "torch.logit(a, 0.1)")
    case("logit special", [t.t([0.0, 1.0, -0.5, 1.5, float("nan")])], "torch.logit(a)")
    case("nan_to_num", [t.special], "a.nan_to_num()")
    case("nan_to_num given", [t.special], "torch.nan_to_num(a, nan=1.5, posinf=2.5, neginf=-3.5)")
    case("nan_to_num gradient", [t.t([1.0, float("nan"), float("inf")], grad=True)], "a.nan_to_num(7)")
    case("nan_to_num integers", [t.i(5, 4)], "a.nan_to_num()")

    # Classes of numbers.
    for op in ("isfinite", "isinf", "isnan", "isposinf", "isneginf"):
        case(op + " special", [t.special], f"torch.{op}(a)")
        case(op + " integers", [t.i(5, 4)], f"torch.{op}(a)")
    case("isclose", [t.t([1.0, 2.0, float("inf"), float("nan"), -0.0]), t.t([1.000001, 2.1, float("inf"), float("nan"), 0.0])], "torch.isclose(a, b)")
    case("isclose equal_nan", [t.t([1.0, float("nan")]), t.t([1.0, float("nan")])], "torch.isclose(a, b, equal_nan=True)")
    case("isclose tolerances", [t.f(6), t.f(6)], "torch.isclose(a, b, 0.5, 0.5)")
    case("isclose of halves", [t.t([-0.406, 1.5]), t.t([0.189, 1.501])], "torch.isclose(a, b, 0.5, 0.5)")
    case("isclose large integers", [t.t([16777217, 2**53 + 1, 5]), t.t([16777216, 2**53, 6])], "torch.isclose(a, b, 0, 0.5)")
    case("isclose integers", [t.i(4, 6), t.i(4, 6)], "torch.isclose(a, b)")
    case("isin", [t.i(9, 3, 4), t.i(9, 5)], "torch.isin(a, b)")
    case("isin invert", [t.i(9, 7), t.i(9, 2, 2)], "torch.isin(a, b, invert=True)")
    case("isin number", [t.i(4, 7)], "torch.isin(a, 2)")
    case("isin floats", [t.t([1.0, 2.5, -1.0]), t.t([2.5])], "torch.isin(a, b)")

    case("frexp", [t.g(3, 4, scale=9)], "tuple(torch.frexp(a))", "lt.frexp(a)")
    case("frexp edges", [t.t([0.0, -0.0, 1.0, 2.0, -0.5, 3e38, 1e-38, float("inf"), float("-inf"), float("nan"), 1e-45])],
         "tuple(torch.frexp(a))", "lt.frexp(a)", signs=True, variants=["strided", "float64"])
    case("frexp float64 edges", [t.t([1.7e308, -4e-320, 5e-324, 2.3e-308], torch.float64)], "tuple(torch.frexp(a))", "lt.frexp(a)")
    error("frexp integers", [t.i(4, 3)], "torch.frexp(a)")

    # Clamps.
    case("clamp tensors", [t.g(3, 4), t.u(-1, 0, 4), t.u(0, 1, 3, 1)], "torch.clamp(a, b, c)")
    case("clamp tensor below", [t.g(6), t.g(6)], "a.clamp(min=b)")
    case("clamp crossed", [t.g(6)], "a.clamp(0.5, -0.5)")
    case("clamp special", [t.special], "a.clamp(-1, 1)", signs=True)
    case("clamp nan bound", [t.f(5), t.t([float("nan"), 0.0, 1.0, -1.0, 0.5])], "torch.clamp(a, min=b)")
    case("clamp integers by float", [t.i(9, 6)], "a.clamp(1.5, 4.5)")
    case("clamp_min", [t.g(6)], "a.clamp_min(0.25)")
    case("clamp_max", [t.g(6)], "a.clamp_max(0.25)")
    case("clamp_min tensor", [t.g(6), t.g(6)], "a.clamp_min(b)")
    case("clamp_", [t.f(6)], "a.clone().clamp_(-0.5, 0.5)")
    case("clip", [t.g(6)], "a.clip(-0.5, 0.5)")

    # Bits, logic.
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        case(op, [t.i(99, 6, low=-99), t.i(99, 6, low=-99)], f"a.{op}(b)")
        case(op + " bool", [t.mask(6), t.mask(6)], f"a.{op}(b)")
        case(op + " number", [t.i(99, 6, dtype=torch.uint8)], f"a.{op}(12)")
        case(op + " promotion", [t.i(99, 6, dtype=torch.int32), t.i(99, 6)], f"a.{op}(b)")
        case(op + "_", [t.i(99, 6), t.i(99, 6)], f"a.clone().{op}_(b)")
        error(op + " floats", [t.f(3), t.f(3)], f"a.{op}(b)")
    case("bitwise_not", [t.i(99, 6, low=-99)], "a.bitwise_not()")
    case("bitwise_not bool", [t.mask(6)], "a.bitwise_not()")
    case("bitwise_not bytes", [t.i(256, 6, dtype=torch.uint8)], "a.bitwise_not()")
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16):
        bits = torch.iinfo(dtype).bits
        amount = t.i(bits, 9).to(dtype)
        value = t.i(120, 9, low=0 if dtype == torch.uint8 else -120).to(dtype)
        case(f"bitwise_left_shift {str(dtype)[6:]}", [value, amount], "a.bitwise_left_shift(b)")
        case(f"bitwise_right_shift {str(dtype)[6:]}", [value, amount], "a.bitwise_right_shift(b)")
    case("bitwise_left_shift number", [t.i(99, 6)], "a << 3")
    case("bitwise_right_shift number", [t.i(99, 6, low=-99)], "a >> 2")
    case("bitwise_right_shift beyond", [t.t([5, -5]), t.t([64, 70])], "a >> b")
    case("bitwise_left_shift beyond", [t.t([5, -5]), t.t([64, 70])], "a << b")
    for op in ("logical_and", "logical_or", "logical_xor"):
        case(op + " floats", [t.special, t.f(16)], f"a.{op}(b)")
        case(op + " mixed", [t.i(2, 6), t.f(6)], f"a.{op}(b)")
    case("logical_not floats", [t.special], "a.logical_not()")

    # In place by one kernel.
    case("addcmul_", [t.f(3, 4), t.f(3, 4), t.f(4)], "a.clone().addcmul_(b, c, value=0.5)")
    case("addcdiv_", [t.f(3, 4), t.f(3, 4), t.f(4, positive=True)], "a.clone().addcdiv_(b, c, value=0.5)")
    case("lerp_", [t.f(3, 4), t.f(3, 4)], "a.clone().lerp_(b, 0.3)")
    case("lerp tensor", [t.g(3, 4), t.g(3, 4), t.g(4)], "a.lerp(b, c)")
    case("lerp_ of a view", [t.f(3, 4), t.f(4, 3)], "a.t().contiguous().t().lerp_(b.t(), 0.7)")
    case("masked_fill_", [t.f(3, 4), t.mask(3, 4)], "a.clone().masked_fill_(b, 2)")

    for op in ("gcd", "lcm"):
        case(op, [t.i(99, 8, low=-99), t.i(99, 8, low=-99)], f"a.{op}(b)")
        case(op + " zeros", [t.t([0, 0, 12, -12]), t.t([0, 5, 0, 18])], f"torch.{op}(a, b)")
        case(op + " int32", [t.i(99, 21, dtype=torch.int32), t.i(99, 21, dtype=torch.int32)], f"torch.{op}(a, b)")
        error(op + " floats", [t.f(3), t.f(3)], f"torch.{op}(a, b)")

    # What both refuse.
    x, n = t.f(3), t.i(4, 3)
    error("sin of nothing", [x], "torch.sin()", "lt.sin()")
    error("sin keyword", [x], "torch.sin(a, what=1)")
    error("sin nil", [x], "torch.sin(None)", "lt.sin(nil)")
    error("sin_ integers", [n], "a.clone().sin_()")
    error("atan2 shapes", [t.f(3), t.f(4)], "a.atan2(b)")
    error("atan2 text", [x], "a.atan2('x')")
    error("hypot integers", [n, n], "a.hypot(b)")
    error("logaddexp integers", [n, n], "a.logaddexp(b)")
    error("frac integers", [n], "a.frac()")
    error("trunc bool", [t.mask(3)], "a.trunc()")
    error("round decimals of integers", [n], "a.round(decimals=2)")
    error("div rounding_mode", [x, x], "a.div(b, rounding_mode='up')")
    error("div integers by zero", [n], "a.div(0, rounding_mode='floor')")
    error("fmod integers by zero", [n], "a.fmod(0)")
    error("clamp of nothing", [x], "a.clamp()")
    error("clamp shapes", [t.f(3), t.f(4)], "a.clamp(min=b)")
    error("heaviside dtypes", [x, n], "torch.heaviside(a, b)")
    error("isclose dtypes", [x, n], "torch.isclose(a, b)")
    error("isclose negative tolerance", [x, x], "torch.isclose(a, b, -1)")
    error("bitwise_not floats", [x], "a.bitwise_not()")
    error("bitwise_left_shift floats", [x], "a.bitwise_left_shift(1)")
    error("positive bool", [t.mask(3)], "a.positive()")
    error("copysign_ shapes", [t.f(3), t.f(2, 3)], "a.copysign_(b)")
    error("lerp_ shapes", [t.f(3), t.f(2, 3)], "a.lerp_(b, 0.5)")
