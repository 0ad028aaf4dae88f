"""Views and indexing."""
import torch


COPIES = {"as_strided_copy": ", (2, 2), (1, 2)", "detach_copy": "", "diagonal_copy": "", "expand_copy": ", (2, 3, 4)", "narrow_copy": ", 1, 1, 2",
          "permute_copy": ", (1, 0)", "select_copy": ", 1, 2", "slice_copy": ", 1, 0, 2", "squeeze_copy": "", "t_copy": "",
          "transpose_copy": ", 0, 1", "unfold_copy": ", 1, 2, 1", "unsqueeze_copy": ", 0", "view_copy": ", (12,)"}


def cases(case, error, t):
    only = ["strided", "float64", "empty"]
    for part in ("real", "imag"):
        case(part, [t.f(3, 4), t.f(4)], f"torch.{part}(torch.complex(a, b))", variants=only)
        case(part + " attribute", [t.f(3, 2)], f"torch.view_as_complex(a).t().{part}", variants=["float64"])
    case("real of reals", [t.g(3)], "torch.real(a)")
    case("view_as_real", [t.f(3, 4), t.f(3, 4)], "torch.view_as_real(torch.complex(a, b).t())", variants=only)
    case("view_as_complex", [t.f(3, 4, 2)], "torch.view_as_real(torch.view_as_complex(a)[1:])", 'lt.view_as_real(lt.view_as_complex(a)["1:"])', variants=["float64"])
    error("imag of reals", [t.f(3)], "torch.imag(a)")
    case("conj", [t.f(3, 4), t.f(4)], "torch.view_as_real(torch.conj(torch.complex(a, b)).resolve_conj())", variants=only)
    case("conj of a real tensor", [t.g(3, 4)], "torch.conj(a).resolve_conj().resolve_neg()")
    case("conj_physical", [t.i(3, 4)], "torch.conj_physical(a)")
    case("mH", [t.f(2, 3), t.f(2, 3)], "torch.view_as_real(torch.complex(a, b).mH.resolve_conj())", variants=only)
    case("angle of complex elements", [t.f(3, 4), t.f(4)], "torch.angle(torch.complex(a, b))", variants=only)
    case("isreal of complex elements", [t.f(5), t.i(2, 5)], "torch.isreal(torch.complex(a, b.to(a.dtype)))",
         "lt.isreal(lt.complex(a, b:to(a.dtype)))", variants=only)
    case("polar", [t.f(3, 4), t.f(4)], "torch.view_as_real(torch.polar(a, b))", variants=only)
    error("polar dtypes", [t.f(3), t.i(3, 3)], "torch.polar(a, b)")
    error("complex dtypes", [t.f(3), t.i(3, 3)], "torch.complex(a, b)")
    error("view_as_real of reals", [t.f(3)], "torch.view_as_real(a)")
    error("view_as_complex of three", [t.f(3, 3)], "torch.view_as_complex(a)")
    error("view_as_complex of integers", [t.i(3, 3, 2)], "torch.view_as_complex(a)")
    case("view", [t.g(3, 4)], "a.view(2, -1)")
    for name, code in (("smaller", "a.view(torch.int16)"), ("as wide", "a.view(torch.int32)"), ("wider", "a.view(torch.int64)"),
                       ("of a view", "a.t()[1:].view(torch.int32)"), ("of bytes", "a.view(torch.uint8).view(torch.float32)"),
                       ("wider than rows", "a[1:, 2:].view(torch.float64).view(torch.uint8)")):
        lua = code.replace("a.t()[1:]", 'a:t()["1:"]').replace("a[1:, 2:]", 'a["1:, 2:"]').replace(".view(torch.", ":view('").replace(")", "')")
        lua = lua.replace("t(')", "t()")
        case("view of a dtype " + name, [t.f(3, 4)], code, lua, variants=[])
    case("view of a dtype written", [t.f(3, 4)], "(lambda x: (x.view(torch.int32).add_(1), x))(a.clone())",
         "(function(x) return x:view('int32'):add_(1), x end)(a:clone())", variants=[])
    error("view of a dtype, last size", [t.f(3, 3)], "a.view(torch.float64)", "a:view('float64')")
    error("view of a dtype, number", [t.t(3.0)], "a.view(torch.int8)", "a:view('int8')")
    error("view of a dtype, stride", [t.f(4, 2)], "a.t().view(torch.int8)", "a:t():view('int8')")
    error("view of a dtype, offset", [t.f(4, 4)], "a[:, 1:3].view(torch.float64)", "a[':, 1:3']:view('float64')")
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

    # views as copies: by functions only
    case("split_copy to out", [t.f(4, 3), t.f(2, 3), t.f(2, 3)], "(torch.split_copy(a, 2, out=(b, c)), c)[1]",
         "(function() lt.split_copy(a, 2, {out = {b, c}}) return c end)()", variants=["strided"])
    error("alias_copy to another dtype", [t.i(3, 3), t.f(3)], "torch.alias_copy(a, out=b)")
    case("alias_copy", [t.f(3, 4)], "torch.alias_copy(a)")
    for copy, rest in COPIES.items():
        case(copy, [t.f(3, 4) if copy in ("detach_copy", "narrow_copy") else t.g(3, 4)], f"torch.{copy}(a{rest})",
             variants=["float64"] if copy == "as_strided_copy" else None)
    case("expand_copy to out", [t.f(3, 4), t.f(2, 3, 4)], "torch.expand_copy(a, (2, 3, 4), out=b)", variants=["strided"])
    case("view_as_real_copy", [t.f(3, 2)], "torch.view_as_real_copy(torch.view_as_complex_copy(a))", variants=["float64"])
    for copy, rest in {"split_copy": ", 2", "split_with_sizes_copy": ", (1, 2)", "unbind_copy": ""}.items():
        case(copy, [t.f(3, 4)], f"torch.{copy}(a{rest})[1]", f"lt.{copy}(a{rest.replace('(', '{').replace(')', '}')})[2]")
    case("unsafe_split", [t.f(3, 4)], "torch.unsafe_split(a, 2, 1)[0]", "lt.unsafe_split(a, 2, 1)[1]", variants=[])
    case("unsafe_chunk", [t.f(3, 4)], "a.unsafe_chunk(2, 1)[0]", "a:unsafe_chunk(2, 1)[1]", variants=[])
