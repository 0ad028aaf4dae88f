"""Sorting, searching and counting. Where equal elements make PyTorch's answer one of several, inputs have none."""
import torch


def lua(call):
    return call.replace("range=(", "{range = {").replace(")", "}}").replace("density=True", "{density = true}")


def cases(case, error, t):
    plain = ["strided", "float64", "float16", "bfloat16"]
    case("sort", [t.g(3, 7)], "tuple(torch.sort(a, stable=True))", "lt.sort(a, {stable = true})", variants=plain)
    case("sort descending", [t.g(3, 7)], "tuple(a.sort(descending=True, stable=True))", "a:sort{descending = true, stable = true}", variants=plain)
    case("sort first dim", [t.g(5, 4)], "tuple(a.sort(stable=True, dim=0))", "a:sort{stable = true, dim = 0}", variants=plain)
    case("sort ties", [t.i(3, 40)], "tuple(a.sort(stable=True))", "a:sort{stable = true}", variants=[])
    case("sort ties descending", [t.i(3, 40)], "tuple(a.sort(stable=True, descending=True))", "a:sort{stable = true, descending = true}", variants=[])
    case("sort special", [t.special], "tuple(a.sort(stable=True))", "a:sort{stable = true}", variants=plain, signs=True)
    case("sort special descending", [t.special], "tuple(a.sort(stable=True, descending=True))", "a:sort{stable = true, descending = true}",
         variants=plain, signs=True)
    case("sort 0-dim", [t.g()], "tuple(a.sort())", "a:sort()", variants=[])
    case("sort of none", [t.f(0, 3)], "tuple(a.sort(0))", "a:sort(0)", variants=[])
    for dtype in ("uint8", "int8", "int16", "int32", "int64", "bool"):
        x = t.i(2 if dtype == "bool" else 100, 300).to(getattr(torch, dtype))
        case(f"sort {dtype}", [x], "tuple(a.sort(stable=True))", "a:sort{stable = true}", variants=[])
        case(f"sort {dtype} descending", [x], "tuple(a.sort(stable=True, descending=True))", "a:sort{stable = true, descending = true}", variants=[])
    case("sort negative integers", [t.i(2**40, 300, low=-(2**40))], "tuple(a.sort())", "a:sort()", variants=[])
    case("argsort", [t.f(3, 7)], "a.argsort(1)", variants=plain)
    case("argsort descending", [t.f(3, 7)], "a.argsort(descending=True)", variants=plain)
    case("msort", [t.g(5, 3)], "torch.msort(a)", variants=plain)
    case("topk", [t.distinct(3, 7)], "tuple(a.topk(3))", "a:topk(3)", variants=["strided", "float64"])
    case("topk smallest", [t.distinct(3, 7)], "tuple(a.topk(2, 0, False))", "a:topk(2, 0, false)", variants=["strided", "float64"])
    case("topk of many", [(torch.randperm(2000) / 500 - 2).requires_grad_(True)], "tuple(a.double().topk(5))", "a:double():topk(5)", variants=[])
    case("topk all", [t.distinct(4)], "tuple(a.topk(4))", "a:topk(4)", variants=[])
    case("topk none", [t.f(4)], "tuple(a.topk(0))", "a:topk(0)", variants=[])
    case("topk 0-dim", [t.g()], "tuple(a.topk(1))", "a:topk(1)", variants=[])
    error("topk of too many", [t.f(4)], "a.topk(5)")
    error("sort dim", [t.f(4)], "a.sort(1)")

    case("kthvalue", [t.distinct(3, 7)], "tuple(a.kthvalue(3))", "a:kthvalue(3)", variants=["strided", "float64"])
    case("kthvalue keepdim", [t.distinct(5, 4)], "tuple(a.kthvalue(2, 0, True))", "a:kthvalue(2, 0, true)", variants=["strided", "float64"])
    error("kthvalue beyond", [t.f(4)], "a.kthvalue(5)")
    case("median", [t.g(3, 4)], "a.median()", variants=["strided", "float64"])
    case("median integers", [t.i(9, 8)], "a.median()", variants=[])
    case("median NaN", [t.special], "a.median()", variants=[])
    case("nanmedian", [t.special], "a.nanmedian()", variants=[])
    case("median dim", [t.distinct(3, 6)], "tuple(a.median(1))", "a:median(1)", variants=["strided", "float64"])
    case("median keepdim", [t.distinct(5, 4)], "tuple(a.median(0, True))", "a:median(0, true)", variants=["strided", "float64"])
    case("nanmedian dim", [t.t([[1.0, float("nan"), 3.0, 2.0], [5.0, 4.0, 7.0, 6.0]], grad=True)], "tuple(a.nanmedian(1))", "a:nanmedian(1)", variants=["float64"])
    error("median of an empty dim", [t.f(3, 0)], "a.median(1)")

    for name, keywords in (("", ""), (" right", ", right=True"), (" int32", ", out_int32=True"), (" side", ", side='right'")):
        case("searchsorted" + name, [t.t([-1.0, 0.0, 0.5, 0.5, 2.0]), t.t([[0.5, -3.0, 2.0], [0.0, 9.0, float("nan")]])],
             f"torch.searchsorted(a, b{keywords})", variants=["float64"])
    case("searchsorted rows", [t.t([[0.0, 1.0, 2.0], [1.0, 5.0, 9.0]]), t.t([[1.0, 0.5], [1.0, 9.5]])], "torch.searchsorted(a, b)", variants=["strided"])
    case("searchsorted number", [t.t([1.0, 3.0, 5.0])], "torch.searchsorted(a, 4)", variants=[])
    case("searchsorted sorter", [t.t([5.0, 1.0, 3.0]), t.t([3.0, 4.0]), t.t([1, 2, 0])], "torch.searchsorted(a, b, sorter=c)", variants=[])
    case("searchsorted integers", [t.t([1, 3, 3, 7]), t.i(9, 3, 4)], "torch.searchsorted(a, b)", variants=["strided"])
    case("bucketize", [t.f(3, 4), t.t([-1.0, 0.0, 1.0])], "torch.bucketize(a, b)", variants=["float64"])
    case("bucketize right", [t.t([0.0, 1.0, 5.0]), t.t([-1.0, 0.0, 1.0])], "torch.bucketize(a, b, right=True)", variants=["float64"])
    case("bucketize number", [t.t([-1.0, 0.0, 1.0])], "torch.bucketize(0.5, a)", variants=[])
    error("searchsorted unknown side", [t.f(3), t.f(2)], "torch.searchsorted(a, b, side='up')")
    case("searchsorted dtypes", [t.t([-0.5, 1.5, 2.5]), t.i(3, 4)], "torch.searchsorted(a, b)", variants=[])

    case("isin", [t.i(9, 3, 4), t.i(9, 5)], "torch.isin(a, b)", variants=["strided"])
    case("isin invert", [t.i(9, 3, 4), t.i(9, 5)], "torch.isin(a, b, invert=True)", variants=[])
    case("isin number", [t.i(3, 3, 4)], "torch.isin(a, 2)", variants=[])
    case("isin promotes", [t.i(3, 6), t.t([0.5, 1.0])], "torch.isin(a, b)", variants=[])
    case("isin special", [t.special, t.special[:7]], "torch.isin(a, b)", variants=[])
    case("histc", [t.f(50)], "a.histc(10)", variants=["float64"])
    case("histc range", [t.f(50)], "a.histc(8, -1, 1)", variants=["strided", "float64"])
    case("histc of equal ones", [t.t([2.0, 2.0])], "torch.histc(a, bins=4)", variants=[])
    error("histc of NaN", [t.t([1.0, float("nan")])], "a.histc(3)")
    error("histc of integers", [t.i(3, 4)], "a.histc(3)")
    for name, call in (("", "3"), (" range", "4, range=(-1, 0.5)"), (" of no width", "2, range=(1, 1)"), (" density", "5, density=True")):
        case("histogram" + name, [t.f(4, 9)], f"tuple(torch.histogram(a, {call}))", f"lt.histogram(a, {lua(call)})", variants=["strided", "float64"])
    case("histogram weight", [t.f(20), t.f(20)], "tuple(a.histogram(4, weight=b))", "a:histogram(4, {weight = b})", variants=["strided", "float64"], tol=1e-5)
    case("histogram edges", [t.f(30), t.t([-1.0, 0.0, 0.25, 2.0])], "tuple(torch.histogram(a, b, density=True))",
         "lt.histogram(a, b, {density = true})", variants=["strided", "float64"])
    case("histogram of special", [t.special], "tuple(torch.histogram(a, 3, range=(-2, 2)))", "lt.histogram(a, 3, {range = {-2, 2}})", variants=[])
    case("histogram of nothing", [t.f(0)], "tuple(torch.histogram(a, 3))", "lt.histogram(a, 3)", variants=[])
    case("histogram of equal ones", [t.t([2.0, 2.0])], "tuple(torch.histogram(a, 2))", "lt.histogram(a, 2)", variants=[])
    error("histogram of NaN", [t.t([1.0, float("nan")])], "torch.histogram(a, 3)", "lt.histogram(a, 3)")
    error("histogram range upside down", [t.f(3)], "torch.histogram(a, 3, range=(2.0, 1.0))", "lt.histogram(a, 3, {range = {2, 1}})")
    error("histogram bins", [t.f(3)], "torch.histogram(a, 0)", "lt.histogram(a, 0)")
    error("histogram edges dtype", [t.f(3), t.f(3, dtype=torch.float64)], "torch.histogram(a, b)", "lt.histogram(a, b)")
    error("histogram weight shape", [t.f(3), t.f(2)], "torch.histogram(a, 2, weight=b)", "lt.histogram(a, 2, {weight = b})")
    error("histogram of integers", [t.i(3, 4)], "torch.histogram(a, 3)", "lt.histogram(a, 3)")
    # PyTorch's position among more than 16 elements is any of them.
    case("mode", [t.t([[3.0, 1.0, 3.0, 1.0, 2.0], [5.0, 4.0, 4.0, 4.0, 5.0]], grad=True)], "tuple(a.mode())", "a:mode()", variants=["strided", "float64", "float16", "bfloat16"])
    case("mode dim", [t.i(3, 6, 4)], "tuple(a.mode(0, True))", "a:mode(0, true)", variants=["strided"])
    case("mode of one", [t.f()], "tuple(a.mode())", "a:mode()", variants=[])
    case("mode of bools", [t.mask(3, 5)], "tuple(a.mode(1))", "a:mode(1)", variants=[])
    case("mode of NaN", [t.t([float("nan"), float("nan"), 1.0, 0.0, 0.0, 1.0])], "tuple(a.mode())", "a:mode()", variants=[])
    error("mode of an empty dim", [t.f(3, 0)], "a.mode(1)")
    case("bincount", [t.i(9, 20)], "a.bincount()", variants=["strided"])
    case("bincount weights", [t.i(9, 20), t.f(20)], "a.bincount(b)", variants=["strided", "float64"])
    case("bincount minlength", [t.i(3, 8)], "a.bincount(minlength=7)", variants=[])
    error("cumsum to bool", [t.mask(3)], "a.cumsum(0, dtype=torch.bool)")
    error("cumprod to bool", [t.mask(3)], "a.cumprod(0, dtype=torch.bool)")
    error("bincount of negatives", [t.t([1, -1])], "a.bincount()")
    error("bincount of floats", [t.f(3)], "a.bincount()")

    case("unique", [t.i(5, 3, 6)], "torch.unique(a, return_inverse=True, return_counts=True)", variants=["strided"])
    case("unique values", [t.f(9)], "a.unique()", variants=plain)
    case("unique special", [t.special], "torch.unique(a)", variants=[])
    case("unique counts", [t.i(5, 12)], "torch.unique(a, return_counts=True)", variants=[])
    case("unique dim", [t.i(2, 8, 2)], "torch.unique(a, return_inverse=True, return_counts=True, dim=0)", variants=["strided"])
    case("unique last dim", [t.i(2, 2, 8)], "torch.unique(a, dim=-1)", variants=["strided"])
    case("unique_consecutive", [t.i(2, 20)], "torch.unique_consecutive(a, return_inverse=True, return_counts=True)", variants=["strided"])
    case("unique_consecutive dim", [t.i(2, 9, 2)], "torch.unique_consecutive(a, dim=0)", variants=["strided"])
    case("combinations", [t.g(4)], "torch.combinations(a)", variants=["float64"])
    case("combinations of three", [t.g(5)], "torch.combinations(a, 3)", variants=[])
    case("combinations with replacement", [t.g(3)], "torch.combinations(a, r=2, with_replacement=True)", variants=[])
    case("combinations too many", [t.f(2)], "torch.combinations(a, 3)", variants=[])

    for name, call, own in (("", "3", "3"), (" each", "(3, 2)", "{3, 2}"), (" density", "(2, 3), density=True", "{2, 3}, {density = true}"),
                            (" range", "(3, 4), range=(-1, 1, -0.5, 2)", "{3, 4}, {range = {-1, 1, -0.5, 2}}")):
        case("histogramdd" + name, [t.f(40, 2)], f"(lambda h: (h[0], *h[1]))(torch.histogramdd(a, {call}))",
             f"(function(h, e) return h, unpack(e) end)(lt.histogramdd(a, {own}))", variants=["strided", "float64"])
    case("histogramdd of more dimensions", [t.f(5, 4, 3)], "torch.histogramdd(a, 2)[0]", "(lt.histogramdd(a, 2))", variants=["strided", "float64"])
    case("histogramdd weight", [t.f(20, 2), t.f(20)], "torch.histogramdd(a, (2, 3), weight=b, density=True)[0]",
         "(lt.histogramdd(a, {2, 3}, {weight = b, density = true}))", variants=["float64"], tol=1e-5)
    case("histogramdd edges", [t.f(30, 2), t.t([-1.0, 0.0, 0.25]), t.t([-0.5, 0.5, 1.0, 2.0])], "torch.histogramdd(a, (b, c))[0]",
         "(lt.histogramdd(a, {b, c}))", variants=["float64"])
    case("histogramdd of nothing", [t.f(0, 2)], "torch.histogramdd(a, 2)[0]", "(lt.histogramdd(a, 2))", variants=[])
    case("histogramdd of equal ones", [t.t([[2.0, 1.0], [2.0, 1.0]])], "torch.histogramdd(a, 2)[0]", "(lt.histogramdd(a, 2))", variants=[])
    error("histogramdd of one dimension", [t.f(3)], "torch.histogramdd(a, 3)")
    error("histogramdd of integers", [t.i(3, 4, 2)], "torch.histogramdd(a, 3)")
    error("histogramdd bins", [t.f(4, 2)], "torch.histogramdd(a, (3, 2, 1))", "lt.histogramdd(a, {3, 2, 1})")
    error("histogramdd weights", [t.f(4, 2), t.f(3)], "torch.histogramdd(a, 3, weight=b)", "lt.histogramdd(a, 3, {weight = b})")
    error("histogramdd short range", [t.f(4, 2)], "torch.histogramdd(a, 3, range=(0., 1.))", "lt.histogramdd(a, 3, {range = {0, 1}})")
    error("histogramdd of NaN", [t.t([[1.0, float("nan")]])], "torch.histogramdd(a, 3)", "lt.histogramdd(a, 3)")
