"""Medians and quantiles."""
import torch


def cases(case, error, t):
    nan = float("nan")
    for op in ("median", "nanmedian"):
        case(op, [t.g(3, 5)], f"a.{op}()")
        case(op + " even", [t.g(4)], f"a.{op}()")
        case(op + " dim", [t.g(3, 5)], f"tuple(a.{op}(1))", f"a:{op}(1)")
        case(op + " dim 0", [t.g(4, 3)], f"tuple(a.{op}(0, True))", f"a:{op}(0, true)")
        case(op + " integers", [t.i(99, 7)], f"a.{op}()")
        case(op + " with nan", [t.t([[1.0, nan, 3.0], [5.0, 4.0, 6.0]], grad=True)], f"a.{op}(1)[0]", f"(a:{op}(1))")
        case(op + " all with nan", [t.t([1.0, nan, 3.0, 2.0])], f"a.{op}()")
        case(op + " of nothing", [t.f(0)], f"a.{op}()")
        error(op + " of an empty dim", [t.f(3, 0)], f"a.{op}(1)", op=op)
        error(op + " dim out of range", [t.f(3)], f"a.{op}(1)", op=op)
    case("kthvalue", [t.g(3, 5)], "tuple(a.kthvalue(2, 1))", "a:kthvalue(2, 1)")
    case("kthvalue last", [t.g(5)], "tuple(a.kthvalue(5))", "a:kthvalue(5)")
    case("kthvalue keepdim", [t.g(4, 3)], "tuple(a.kthvalue(1, 0, True))", "a:kthvalue(1, 0, true)")
    error("kthvalue k", [t.f(3)], "a.kthvalue(4)")
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
