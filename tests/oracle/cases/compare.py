"""Comparison, logic, selection, casts."""
import torch


def cases(case, error, t):
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        case(op, [t.i(3, 8), t.i(3, 8)], f"a.{op}(b)")
        case(op + " number", [t.f(8)], f"a.{op}(0)")
    case("logical_and", [t.mask(6), t.mask(6)], "a.logical_and(b)")
    case("logical_or", [t.mask(6), t.mask(6)], "a.logical_or(b)")
    case("logical_xor", [t.mask(6), t.mask(6)], "a.logical_xor(b)")
    case("logical_not", [t.i(2, 6)], "a.logical_not()")
    case("isnan", [t.special], "a.isnan()")
    case("where", [t.mask(3, 4), t.g(3, 4), t.g(4)], "torch.where(a, b, c)", "lt.where(a, b, c)")
    case("where of the tensor", [t.g(3, 4), t.mask(3, 4), t.g(4)], "a.where(b, c)")
    case("where number", [t.mask(5), t.g(5)], "torch.where(a, b, 2.5)", "lt.where(a, b, 2.5)")
    case("masked_fill", [t.g(3, 4), t.mask(4)], "a.masked_fill(b, -1.5)", "a:masked_fill(b, -1.5)")
    case("mask plus number", [t.mask(5)], "a + 1")
    case("to int64", [t.f(6, scale=3)], "a.to(torch.int64)", 'a:to("int64")')
    case("to bool", [t.i(2, 6)], "a.to(torch.bool)", 'a:to("bool")')
    case("type", [t.g(6)], "a.type(torch.float64)")
    case("to float64", [t.g(6)], "a.to(torch.float64)", 'a:to("float64")')
    case("uint8 to float", [t.i(256, 6, dtype=torch.uint8)], "a.to(torch.float32) / 255", 'a:to("float32") / 255')
    for op in ("eq", "lt", "ge"):
        case(op + "_", [t.i(3, 8, dtype=torch.float32), t.i(3, 8)], f"a.clone().{op}_(b)")
    case("logical_not_", [t.i(2, 6)], "a.clone().logical_not_()")
    case("logical_or_", [t.f(6), t.mask(6)], "a.clone().logical_or_(b)")
    case("greater_equal", [t.i(3, 8), t.i(3, 8)], "a.greater_equal(b)")
    error("eq_ shapes", [t.f(3), t.f(2, 3)], "a.eq_(b)")
    error("lt shapes", [t.f(3), t.f(4)], "a.lt(b)")
    error("where condition", [t.f(3), t.f(3)], "torch.where(a, b, b)")
