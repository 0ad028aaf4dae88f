"""Gathering, scattering and masks."""
import torch


def cases(case, error, t):
    case("gather by bytes of nothing", [t.f(3, 4), t.t([], dtype=torch.uint8)], "torch.gather(a, 0, b)", variants=[])
    error("gather by bytes", [t.f(3), t.t([0], dtype=torch.uint8)], "torch.gather(a, 0, b)")
    error("index_add rank", [t.f(1), t.t([0]), t.t(1.0)], "torch.index_add(a, 0, b, c)")
    case("gather", [t.g(3, 5), t.i(5, 3, 2)], "a.gather(1, b)")
    case("gather first dim", [t.g(5, 3), t.i(5, 2, 3, dtype=torch.int32)], "a.gather(0, b)")
    case("gather narrower", [t.g(5, 3), t.i(3, 2, 2)], "a.gather(-1, b)", variants=["strided", "float64", "float16", "bfloat16"])
    error("gather of floats", [t.f(3), t.f(3)], "a.gather(0, b)")
    error("gather out of bounds", [t.f(3), t.t([3])], "a.gather(0, b)")
    error("gather negative", [t.f(3), t.t([-1])], "a.gather(0, b)")
    case("index_select", [t.g(5, 3), torch.tensor([4, 0, 0])], "a.index_select(0, b)")
    case("index_select columns", [t.g(5, 3), torch.tensor([2, 0], dtype=torch.int32)], "a.index_select(1, b)")
    error("index_select out of bounds", [t.f(3, 2), t.t([2])], "a.index_select(1, b)")

    plain = ["strided", "float64", "float16", "bfloat16"]
    case("scatter_add", [t.g(3, 5), t.i(5, 3, 2), t.g(3, 2)], "a.scatter_add(1, b, c)")
    case("scatter_add rows", [t.g(3, 5), t.i(3, 4, 5), t.g(4, 5)], "a.scatter_add(0, b, c)", variants=plain)
    case("scatter_add_", [t.g(3, 5), t.i(5, 3, 4), t.g(3, 4)], "a.clone().scatter_add_(1, b, c)", variants=plain)
    case("scatter", [t.g(3, 5), torch.tensor([[1, 4], [0, 2], [3, 1]]), t.g(3, 2)], "a.scatter(1, b, c)", variants=plain)
    case("scatter last wins", [t.f(3, 5), t.i(2, 3, 4), t.f(3, 4)], "a.scatter(1, b, c)", variants=plain)
    case("scatter value", [t.g(3, 5), t.i(5, 3, 2)], "a.scatter(1, b, 2.5)", variants=plain)
    case("scatter named value", [t.f(3, 5), t.i(5, 3, 2)], "a.scatter(1, b, value=2.5)", variants=[])
    case("scatter_ value", [t.g(3, 5), t.i(5, 3, 2)], "a.clone().scatter_(1, b, 2.5)", variants=plain)
    case("scatter reduce add", [t.f(3, 5), t.i(5, 3, 4), t.f(3, 4)], "a.scatter(1, b, c, reduce='add')", variants=["strided", "float64"])
    case("scatter reduce multiply", [t.f(3, 5), t.i(5, 3, 4), t.f(3, 4)], "a.scatter(1, b, c, reduce='multiply')", variants=["strided", "float64"])
    case("scatter integers", [t.i(9, 3, 5), t.i(5, 3, 2)], "a.scatter(1, b, 7)", variants=[])
    error("scatter dtypes", [t.f(3), t.t([0]), t.f(1, dtype=torch.float64)], "a.scatter(0, b, c)")
    error("scatter out of bounds", [t.f(3), t.t([3])], "a.scatter(0, b, 1)")
    error("scatter unknown reduce", [t.f(3), t.t([0]), t.f(1)], "a.scatter(0, b, c, reduce='max')")
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include in (True, False):
            name = f"scatter_reduce {reduce}" + ("" if include else " without self")
            case(name, [t.g(3, 4), t.i(4, 3, 5), t.g(3, 5)], f"a.scatter_reduce(1, b, c, '{reduce}', include_self={include})",
                 variants=["strided", "float64"])
        case(f"scatter_reduce {reduce} integers", [t.i(9, 3, 4, low=-9), t.i(4, 3, 5), t.i(9, 3, 5, low=-9)],
             f"a.scatter_reduce(1, b, c, '{reduce}')", variants=[])
        if reduce != "sum":
            case(f"index_reduce {reduce}", [t.g(3, 4), t.t([2, 0, 2]), t.g(3, 4)], f"a.index_reduce(0, b, c, '{reduce}')",
                 variants=["strided", "float64"])
            case(f"index_reduce {reduce} without self", [t.g(3, 4), t.t([2, 0, 2, 2]), t.g(3, 4)],
                 f"a.index_reduce(1, b, c, '{reduce}', include_self=False)", variants=["float64"])
    special = t.special[:8]
    for reduce in ("amin", "amax"):  # self equals the result by chance
        for op in ("index_reduce", "scatter_reduce"):
            for include in (True, False):
                case(f"{op} {reduce} ties {include}", [t.t([1.0, 5.0, 2.0], grad=True), t.t([0, 1, 0, 1]), t.t([1.0, 5.0, 1.0, 5.0], grad=True)],
                     f"a.{op}(0, b, c, '{reduce}', include_self={include})", variants=[])
    case("scatter_reduce amax special", [special, torch.tensor([0, 1, 2, 3, 4, 5, 6, 6]), special.flip(0)], "a.scatter_reduce(0, b, c, 'amax')", variants=[])

    case("index_add", [t.g(5, 2), torch.tensor([4, 0, 4]), t.g(3, 2)], "a.index_add(0, b, c)")
    case("index_add alpha", [t.g(5, 2), torch.tensor([1, 1]), t.g(5, 2)], "a.index_add(1, b, c, alpha=0.5)", variants=plain)
    case("index_add_", [t.g(5, 2), torch.tensor([4, 0, 4], dtype=torch.int32), t.g(3, 2)], "a.clone().index_add_(0, b, c)", variants=plain)
    case("index_copy", [t.g(5, 3), torch.tensor([4, 0]), t.g(2, 3)], "a.index_copy(0, b, c)")
    case("index_copy columns", [t.g(5, 3), torch.tensor([2, 0]), t.g(5, 2)], "a.index_copy(1, b, c)", variants=plain)
    case("index_fill", [t.g(5, 3), torch.tensor([4, -5])], "a.index_fill(0, b, 1.5)", variants=plain)
    case("index_fill tensor", [t.g(5, 3), torch.tensor([1]), t.g()], "a.index_fill(1, b, c)", variants=["strided", "float64"])
    case("index_fill_", [t.g(5, 3), torch.tensor([2, 0])], "a.clone().index_fill_(1, b, -1)", variants=plain)
    error("index_add out of bounds", [t.f(3), t.t([-1]), t.f(1)], "a.index_add(0, b, c)")
    error("index_copy out of bounds", [t.f(3), t.t([3]), t.f(1)], "a.index_copy(0, b, c)")
    error("index_add shapes", [t.f(3, 2), t.t([0]), t.f(2, 2)], "a.index_add(0, b, c)")
    error("index_fill of a vector", [t.f(3), t.t([0]), t.f(1)], "a.index_fill(0, b, c)")

    case("take", [t.g(3, 4), t.i(12, 5, low=-12)], "a.take(b)", variants=plain)
    case("take of a shape", [t.g(3, 4), t.i(12, 2, 3)], "a.take(b)", variants=plain)
    case("take_along_dim", [t.g(3, 4), t.i(4, 3, 2)], "a.take_along_dim(b, dim=1)", variants=plain)
    case("take_along_dim broadcast", [t.g(3, 4), t.i(4, 1, 2)], "a.take_along_dim(b, 1)", variants=plain)
    case("take_along_dim flat", [t.g(3, 4), t.i(12, 5)], "a.take_along_dim(b)", variants=plain)
    case("put", [t.g(3, 4), torch.tensor([1, -1, 3]), t.g(3)], "a.put(b, c)", variants=plain)
    case("put accumulate", [t.g(3, 4), torch.tensor([1, 1, 3]), t.g(3)], "a.put(b, c, accumulate=True)", variants=plain)
    error("take out of bounds", [t.f(3), t.t([3])], "a.take(b)")

    case("index_put", [t.g(3, 4), torch.tensor([2, 0]), torch.tensor([1, -1]), t.g(2)], "a.index_put((b, c), d)", variants=plain)
    case("index_put rows", [t.g(3, 4), torch.tensor([2, 0]), t.g(4)], "a.index_put((b,), c)", variants=plain)
    case("index_put accumulate", [t.g(3, 4), torch.tensor([2, 0, 2]), t.g(3, 4)], "a.index_put((b,), c, accumulate=True)", variants=plain)
    case("index_put accumulate pairs", [t.g(3, 4), torch.tensor([[2], [0]]), torch.tensor([1, 1, 3]), t.g(2, 3)],
         "a.index_put((b, c), d, accumulate=True)", variants=plain)
    case("index_put_", [t.g(3, 4), torch.tensor([2, 0]), torch.tensor([1, -1]), t.g(2)], "a.clone().index_put_((b, c), d)", variants=plain)
    error("index_put shapes", [t.f(3), t.t([0, 1]), t.f(3)], "a.index_put((b,), c)")
    error("index_put out of bounds", [t.f(3), t.t([-4]), t.f(1)], "a.index_put((b,), c)")

    case("masked_scatter", [t.g(3, 4), t.mask(3, 4), t.g(12)], "a.masked_scatter(b, c)", variants=plain)
    case("masked_scatter broadcast", [t.g(3, 4), t.mask(4), t.g(3, 4)], "a.masked_scatter(b, c)", variants=plain)
    case("masked_select", [t.g(3, 4), torch.tensor([True, False, True, True])], "a.masked_select(b)", variants=plain)
    case("masked_select wide", [t.g(4), torch.tensor([[True, False, True, True], [False, False, True, False]])], "a.masked_select(b)", variants=plain)
    error("masked_scatter too few", [t.f(3), t.t([True, True, True]), t.f(2)], "a.masked_scatter(b, c)")
    error("masked_select of integers", [t.f(3), t.t([1, 0, 1])], "a.masked_select(b)")
    case("nonzero", [t.i(2, 3, 4)], "a.nonzero()", variants=["strided"])
    case("nonzero of floats", [t.special], "a.nonzero()", variants=[])
    case("nonzero tuple", [t.i(2, 3, 4)], "a.nonzero(as_tuple=True)", "unpack(a:nonzero{as_tuple = true})", variants=["strided"])
    case("nonzero 0-dim", [t.t(5)], "a.nonzero()", variants=[])
    case("argwhere", [t.i(2, 3, 4)], "torch.argwhere(a)", variants=["strided"])
    case("where one", [t.i(2, 3, 4)], "torch.where(a)", "unpack(lt.where(a))", variants=["strided"])

    case("tensor index", [t.g(5, 2), torch.tensor([4, 0, -1])], "a[b]", "a[b]", variants=plain)
    case("tensor index of a shape", [t.g(5, 2), t.i(5, 2, 3)], "a[b]", "a[b]", variants=plain)
    case("tensor index int32", [t.g(5, 2), t.i(5, 3, dtype=torch.int32)], "a[b]", "a[b]", variants=[])
    case("tensor index columns", [t.g(3, 5, 2), t.i(5, 4)], "a[:, b]", 'a[{":", b}]', variants=plain)
    case("tensor indices", [t.g(3, 5, 2), t.i(3, 4), t.i(5, 2, 1)], "a[b, c]", "a[{b, c}]", variants=plain)
    case("tensor indices apart", [t.g(3, 5, 2), t.i(3, 4), t.i(2, 4)], "a[b, :, c]", 'a[{b, ":", c}]', variants=plain)
    case("tensor index and number", [t.g(3, 5, 2), t.i(2, 4)], "a[1, :, b]", 'a[{1, ":", b}]', variants=plain)
    case("tensor index and newaxis", [t.g(3, 5), t.i(3, 4), t.i(5, 4)], "a[b, None, c]", "a[{b, lt.newaxis, c}]", variants=plain)
    case("mask of rows", [t.g(3, 2), torch.tensor([True, False, True])], "a[b]", "a[b]", variants=plain)
    case("mask and tensor", [t.g(3, 5), torch.tensor([True, False, True]), torch.tensor([4, 1])], "a[b, c]", "a[{b, c}]", variants=plain)
    case("mask 0-dim", [t.g(3), torch.tensor(True)], "a[b]", "a[b]", variants=[])

    case("embedding", [t.i(5, 2, 3), t.g(5, 4)], "F.embedding(a, b)", variants=["float64", "float16", "bfloat16"])
    case("embedding padding", [torch.tensor([1, 4, 1, 0]), t.g(5, 4)], "F.embedding(a, b, padding_idx=1)", variants=["float64"])
    case("embedding padding from the end", [torch.tensor([1, 4, 1, 0]), t.g(5, 4)], "F.embedding(a, b, padding_idx=-1)", variants=["float64"])
    case("embedding by frequency", [torch.tensor([1, 4, 1, 0]), t.g(5, 4)], "F.embedding(a, b, scale_grad_by_freq=True)", variants=["float64"])
    case("embedding of one", [t.t(3), t.g(5, 4)], "F.embedding(a, b)", variants=[])
    error("embedding out of bounds", [t.t([5]), t.f(5, 4)], "F.embedding(a, b)")
    for norm in ("1.0", "1.0, norm_type=1.0", "0.5, norm_type=inf"):
        lua = norm.replace("norm_type=", "{norm_type = ").replace("inf", "lt.inf") + ("}" if "norm_type" in norm else "")
        case(f"embedding max_norm {norm}", [t.i(5, 2, 3), t.g(5, 4)], f"F.embedding(a, b * 1, None, {norm})",
             f"lt.nn.functional.embedding(a, b * 1, nil, {lua})", variants=["float64"], tol=1e-6)
    case("embedding max_norm twice", [torch.tensor([1, 4, 1, -0]), t.f(5, 4)], "(lambda w, i: (F.embedding(i, w, max_norm=0.25), w))(b.clone(), a)",
         "(function(w) return lt.nn.functional.embedding(a, w, {max_norm = 0.25}), w end)(b:clone())", variants=["float64"])
    case("embedding_renorm_", [t.i(5, 6), t.f(5, 4)], "torch.embedding_renorm_(b.clone(), a, 0.5, 2.0)", "lt.embedding_renorm_(b:clone(), a, 0.5, 2)",
         variants=["float64"])
    error("embedding max_norm out of bounds", [t.t([5]), t.f(5, 4)], "F.embedding(a, b, max_norm=1.0)")
    case("unravel_index", [t.i(24, 3, 5)], "tuple(torch.unravel_index(a, (2, 3, 4)))", "lt.unravel_index(a, {2, 3, 4})", variants=["strided"])
    case("unravel_index beyond", [t.t([50, -3])], "tuple(torch.unravel_index(a, (2, 4)))", "lt.unravel_index(a, {2, 4})", variants=[])
    case("unravel_index of int32", [t.i(9, 4, dtype=torch.int32)], "torch.unravel_index(a, 9)[0]", "lt.unravel_index(a, 9)[1]", variants=[])
    error("unravel_index of floats", [t.f(3)], "torch.unravel_index(a, (2, 3))", "lt.unravel_index(a, {2, 3})")
    error("unravel_index shape", [t.i(3, 3)], "torch.unravel_index(a, (2, -3))", "lt.unravel_index(a, {2, -3})")
