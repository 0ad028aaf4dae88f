"""Quantiles."""


def cases(case, error, t):
    nan = float("nan")
    for how in ("linear", "lower", "higher", "midpoint", "nearest"):
        case(f"quantile {how}", [t.g(3, 5)], f"a.quantile(0.3, dim=1, interpolation='{how}')")
    case("quantile all", [t.g(3, 5)], "a.quantile(0.5)")
    case("quantile several", [t.g(3, 5), t.t([0.0, 0.25, 1.0])], "a.quantile(b, 0)", variants=[])
    case("quantile several keepdim", [t.g(3, 5), t.t([0.1, 0.9])], "a.quantile(b, dim=1, keepdim=True)", variants=[])
    case("quantile nan", [t.t([[1.0, nan], [2.0, 3.0]], grad=True)], "a.quantile(0.5, dim=1)")
    case("nanquantile", [t.t([[1.0, nan, 4.0], [2.0, 3.0, 9.0]], grad=True)], "a.nanquantile(0.5, dim=1)")
    case("nanquantile all nan", [t.t([[nan, nan], [2.0, 3.0]])], "a.nanquantile(0.5, dim=1)")
    error("quantile of integers", [t.i(9, 3)], "a.quantile(0.5)")
    error("quantile q", [t.f(3)], "a.quantile(1.5)")
    error("quantile interpolation", [t.f(3)], "a.quantile(0.5, interpolation='cubic')")
