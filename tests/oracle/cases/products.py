"""Matrix products."""
import torch


def cases(case, error, t):
    case("addr of booleans", [t.mask(3, 2), t.mask(3), t.mask(2)], "torch.addr(a, b, c, beta=3, alpha=2)", variants=[])
    error("inner sizes", [t.f(1), t.f(5, 5)], "torch.inner(a, b)")
    error("bilinear dtypes", [t.f(2, 3), t.f(2, 4), t.f(5, 3, 4), t.f(5, dtype=torch.float64)], "F.bilinear(a, b, c, d)")
    case("mm", [t.g(3, 4), t.g(4, 5)], "a.mm(b)")
    case("matmul vectors", [t.g(4), t.g(4)], "a.matmul(b)")
    case("matmul matrix vector", [t.g(3, 4), t.g(4)], "a.matmul(b)")
    case("matmul batches", [t.g(2, 3, 4), t.g(4, 5)], "a.matmul(b)")
    case("matmul broadcast", [t.g(2, 1, 3, 4), t.g(5, 4, 2)], "a.matmul(b)")
    case("bmm", [t.g(2, 3, 4), t.g(2, 4, 5)], "a.bmm(b)")
    case("mm transposed", [t.g(4, 3), t.g(4, 5)], "a.transpose(0, 1).mm(b)")
    case("mm float64", [t.g(3, 4, dtype=torch.float64), t.g(4, 2, dtype=torch.float64)], "a.mm(b)")
    case("linear", [t.g(5, 4), t.g(3, 4), t.g(3)], "F.linear(a, b, c)", "lt.linear(a, b, c)")
    case("linear no bias", [t.g(2, 5, 4), t.g(3, 4)], "F.linear(a, b)", "lt.linear(a, b)")
    for name, shape in (("vector", (4,)), ("matrix", (5, 4)), ("batch", (2, 5, 4))):
        case(f"linear of a {name} with a vector", [t.g(*shape), t.g(4)], "F.linear(a, b)")
        if name != "matrix":
            case(f"linear of a {name} with a vector and a number", [t.g(*shape), t.g(4), t.g()], "F.linear(a, b, c)", variants=["float64", "strided"])
    error("linear of a vector with a bias", [t.f(3, 4), t.f(4), t.f(3)], "F.linear(a, b, c)")
    error("linear of another vector", [t.f(3, 4), t.f(5)], "F.linear(a, b)")
