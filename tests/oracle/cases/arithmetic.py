"""Arithmetic, broadcasting, promotion, special values."""
import torch


def cases(case, error, t):
    for op, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/")):
        case(op, [t.g(3, 4), t.g(3, 4)], f"a {sign} b")
        case(op + " broadcast", [t.g(3, 1, 4), t.g(2, 1)], f"a {sign} b")
        case(op + " number", [t.g(5)], f"a {sign} 2.5", f"a {sign} 2.5")
        case(op + " number left", [t.g(5, positive=True)], f"2.5 {sign} a", f"2.5 {sign} a")
        case(op + " integers", [t.i(9, 6, low=1), t.i(9, 6, low=1)], f"a {sign} b")
        case(op + " promotion", [t.i(9, 6, low=1), t.g(6, positive=True)], f"a {sign} b")
        case(op + " float64", [t.g(4, dtype=torch.float64), t.f(4)], f"a {sign} b")
        case(op + " special", [t.special, t.f(16)], f"a {sign} b")
    case("add alpha", [t.g(4), t.g(4)], "a.add(b, alpha=3)", "a:add(b, {alpha=3})")
    case("pow", [t.g(5, positive=True), t.g(5)], "a.pow(b)")
    case("pow number", [t.g(5)], "a ** 2", "a ^ 2")
    case("pow third", [t.g(5, positive=True)], "a ** 0.5", "a ^ 0.5")
    case("remainder", [t.f(6), t.f(6)], "a.remainder(b)")
    case("remainder integers", [t.i(9, 6, low=-9), t.i(5, 6, low=1)], "a % b")
    case("floor_divide", [t.i(9, 6, low=-9), t.i(5, 6, low=1)], "a.floor_divide(b)")
    case("floor_divide floats", [t.f(6), t.f(6)], "a.floor_divide(b)")
    case("maximum", [t.g(6), t.g(6)], "a.maximum(b)")
    case("minimum", [t.g(6), t.g(6)], "a.minimum(b)")
    case("clamp", [t.g(8)], "a.clamp(-0.5, 0.5)", "a:clamp(-0.5, 0.5)")
    case("clamp min", [t.g(8)], "a.clamp(min=0.1)", "a:clamp{min=0.1}")
    for op in ("neg", "abs", "exp", "tanh", "sigmoid", "relu", "square", "sign", "floor", "ceil"):
        case(op, [t.g(3, 4)], f"a.{op}()")
        if op not in ("square",):
            case(op + " special", [t.special], f"a.{op}()")
    for op in ("log", "sqrt", "rsqrt", "reciprocal"):
        case(op, [t.g(3, 4, positive=True)], f"a.{op}()")
        case(op + " special", [t.special], f"a.{op}()")
    case("exp float64", [t.g(7, dtype=torch.float64)], "a.exp()")
    case("tanh float64", [t.g(7, dtype=torch.float64)], "a.tanh()")
    case("log float64", [t.g(7, dtype=torch.float64, positive=True)], "a.log()")
    case("exp integers", [t.i(4, 5)], "a.exp()")
    case("addcmul", [t.g(4), t.g(4), t.g(4)], "a.addcmul(b, c, value=0.5)", "a:addcmul(b, c, {value=0.5})")
    case("addcdiv", [t.g(4), t.g(4), t.g(4, positive=True)], "a.addcdiv(b, c, value=0.5)", "a:addcdiv(b, c, {value=0.5})")
    case("lerp", [t.g(4), t.g(4)], "a.lerp(b, 0.3)", "a:lerp(b, 0.3)")
