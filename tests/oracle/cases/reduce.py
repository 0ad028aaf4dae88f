"""Reductions."""
import torch


def cases(case, error, t):
    for op in ("sum", "mean", "amax", "amin"):
        case(op, [t.g(3, 4)], f"a.{op}()")
        case(op + " dim", [t.g(3, 4, 2)], f"a.{op}(1)")
        case(op + " keepdim", [t.g(3, 4)], f"a.{op}(-1, True)")
        case(op + " dims", [t.g(3, 4, 2)], f"a.{op}((0, 2))", f"a:{op}({{0, 2}})")
    case("sum integers", [t.i(9, 3, 4)], "a.sum(0)")
    case("sum bool", [t.mask(9)], "a.sum()")
    case("sum dtype", [t.i(9, 4)], "a.sum(dtype=torch.float64)", 'a:sum{dtype="float64"}')
    case("argmax", [t.f(3, 5)], "a.argmax(-1)")
    case("argmax all", [t.f(3, 5)], "a.argmax()")
    case("argmin", [t.f(3, 5)], "a.argmin(0)")
    case("any", [t.mask(3, 4)], "a.any(1)")
    case("all", [t.mask(3, 4)], "a.all(0)")
    case("max dim", [t.g(3, 5)], "a.max(1)[0]", "(a:max(1))")
    case("max indices", [t.f(3, 5)], "a.max(1)[1]", "select(2, a:max(1))")
    case("max all", [t.g(3, 5)], "a.max()")
    case("amax ties", [torch.tensor([[1.0, 3.0, 3.0]]).requires_grad_(True)], "a.amax(1)")
