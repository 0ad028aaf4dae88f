"""Creation, and what fills and converts."""
import torch


def cases(case, error, t):
    case("vander", [t.f(4)], "torch.vander(a)", "lt.vander(a)", variants=["strided", "float64", "empty"])
    case("vander increasing", [t.i(5, 4, low=-4)], "torch.vander(a, 3, increasing=True)", variants=[])
    error("vander rank", [t.f(2, 3)], "torch.vander(a)")
    case("arange", [], "torch.arange(2, 11, 3)", "lt.arange(2, 11, 3)")
    case("full", [], "torch.full((2, 2), 3.5)", "lt.full({2, 2}, 3.5)")
    case("linspace", [], "torch.linspace(0, 1, 7)")
    case("linspace down", [], "torch.linspace(3, -2, 5, dtype=torch.float64)")
    case("linspace of one", [], "torch.linspace(3, 5, 1)")
    case("linspace integers", [], "torch.linspace(0, 10, 4, dtype=torch.int64)")
    case("linspace integers from a fraction", [], "torch.linspace(4.3, -9.7, 50, dtype=torch.int8)")
    case("logspace integers", [], "torch.logspace(0.9, 4.7, 6, base=2.5, dtype=torch.int64)")
    error("linspace negative", [], "torch.linspace(0, 1, -1)")
    case("logspace", [], "torch.logspace(-2, 2, 5)", tol=4e-6)
    case("logspace base", [], "torch.logspace(0, 4, 5, base=2)")
    case("eye", [], "torch.eye(3)")
    case("eye oblong", [], "torch.eye(2, 4, dtype=torch.int64)")
    for op in ("zeros", "ones"):
        case(f"{op}_like", [t.i(9, 2, 3)], f"torch.{op}_like(a)")
        case(f"{op}_like dtype", [t.f(2, 3)], f"torch.{op}_like(a, dtype=torch.int32)")
        case(f"new_{op}", [t.f(2, dtype=torch.float64)], f"a.new_{op}((2, 3))")
    case("full_like", [t.f(2, 3)], "torch.full_like(a, 2.5)")
    case("new_full", [t.i(9, 2)], "a.new_full((3,), 7)", "a:new_full({3}, 7)")
    case("new_tensor", [t.i(9, 2)], "a.new_tensor([1, 2])", "a:new_tensor({1, 2})", variants=[])
    case("scalar_tensor", [], "torch.scalar_tensor(2.5)")
    case("fill", [t.f(2, 3)], "torch.fill(a, 4.0)")
    case("fill_", [t.f(2, 3)], "a.clone().fill_(b)".replace("b", "2"))
    case("zero_", [t.f(2, 3)], "a.clone().zero_()")
    case("copy_", [t.f(2, 3), t.f(3)], "a.clone().copy_(b)")
    case("clone", [t.g(3, 2)], "a.t().clone()")
    case("contiguous", [t.g(3, 2)], "a.t().contiguous()")
    for cast in ("float", "double", "half", "bfloat16", "long", "int", "short", "byte", "bool", "char"):
        case(f"x.{cast}", [t.u(0, 100, 7, grad=False)], f"a.{cast}()", variants=["strided"])
        case(f"x.{cast} from integers", [t.i(200, 7, low=-50)], f"a.{cast}()", variants=["strided"])
    case("type_as", [t.f(3), t.i(3, 1)], "a.type_as(b)", variants=["strided"])
