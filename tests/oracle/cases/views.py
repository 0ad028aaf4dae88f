"""Views and indexing."""
import torch


def cases(case, error, t):
    only = ["strided", "float64", "empty"]
    for part in ("real", "imag"):
        case(part, [t.f(3, 4), t.f(4)], f"torch.{part}(torch.complex(a, b))", variants=only)
        case(part + " attribute", [t.f(3, 2)], f"torch.view_as_complex(a).t().{part}", variants=["float64"])
    case("real of reals", [t.g(3)], "torch.real(a)")
    case("view_as_real", [t.f(3, 4), t.f(3, 4)], "torch.view_as_real(torch.complex(a, b).t())", variants=only)
    case("view_as_complex", [t.f(3, 4, 2)], "torch.view_as_real(torch.view_as_complex(a)[1:])", 'lt.view_as_real(lt.view_as_complex(a)["1:"])', variants=["float64"])
    error("imag of reals", [t.f(3)], "torch.imag(a)")
    error("complex dtypes", [t.f(3), t.i(3, 3)], "torch.complex(a, b)")
    error("view_as_real of reals", [t.f(3)], "torch.view_as_real(a)")
    error("view_as_complex of three", [t.f(3, 3)], "torch.view_as_complex(a)")
    error("view_as_complex of integers", [t.i(3, 3, 2)], "torch.view_as_complex(a)")
    case("view", [t.g(3, 4)], "a.view(2, -1)")
    case("reshape of a transpose", [t.g(3, 4)], "a.transpose(0, 1).reshape(-1)")
    case("permute", [t.g(2, 3, 4)], "a.permute(2, 0, 1)")
    case("expand", [t.g(3, 1)], "a.expand(2, 3, 4)")
    case("select", [t.g(3, 4)], "a.select(1, -1)")
    case("index row", [t.g(3, 4)], "a[1]", "a[1]")
    case("slice", [t.g(7, 2)], "a[1:6:2]", 'a["1:6:2"]')
    case("slice columns", [t.g(3, 6)], "a[:, -3:]", 'a[":, -3:"]')
    case("slice table", [t.g(5, 6)], "a[1:4, 2]", "a[{{1, 4}, 2}]")
    case("newaxis", [t.g(3)], "a[:, None]", 'a[":, None"]')
    case("ellipsis", [t.g(2, 3, 4)], "a[..., 0]", 'a["..., 0"]')
    case("unsqueeze", [t.g(3)], "a.unsqueeze(0)")
    case("squeeze", [t.g(1, 3, 1)], "a.squeeze()")
    case("squeeze dim", [t.g(1, 3, 1)], "a.squeeze(0)")
    case("flatten", [t.g(2, 3, 4)], "a.flatten(1)")
    case("mask index", [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True])], "a[b]", "a[b]", variants=["strided", "float64", "float16", "bfloat16"])
    case("tensor index", [t.g(5, 2), torch.tensor([4, 0, 4])], "a[b]", "a[b]")
