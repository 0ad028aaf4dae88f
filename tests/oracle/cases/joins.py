"""Joins, and the views and copies that take tensors apart again."""
import torch


def cases(case, error, t):
    case("cat", [t.g(2, 3), t.g(4, 3), t.g(1, 3)], "torch.cat([a, b, c])")
    case("cat dim", [t.g(3, 2, 4), t.g(3, 5, 4)], "torch.cat([a, b], 1)")
    case("cat last", [t.g(3, 2), t.g(3, 5)], "torch.cat([a, b], dim=-1)")
    case("cat promotion", [t.i(9, 3), t.g(2)], "torch.cat([a, b])")
    case("cat three dtypes", [t.mask(3), t.i(9, 2), t.f(2, dtype=torch.float64)], "torch.cat([a, b, c])")
    case("cat with an empty vector", [t.g(0), t.g(2, 3)], "torch.cat([a, b], 1)")
    case("cat empty", [t.g(0, 3), t.g(2, 3)], "torch.cat([a, b])")
    case("cat of one", [t.g(2, 3)], "torch.cat([a])")
    case("cat aliased", [t.g(3, 4)], "torch.cat([a, a, a.t()[:3, :3]], 1)", 'lt.cat({a, a, a:t()[":3, :3"]}, 1)')
    case("cat of computed", [t.g(3, 4), t.g(3, 2)], "torch.cat([a * 2, b.exp()], 1).sum(0)")
    case("cat of expanded", [t.g(3, 1), t.g(1, 4)], "torch.cat([a.expand(3, 4), b.expand(3, 4)])")
    case("cat many columns", [t.g(40, 1), t.g(40, 3)], "torch.cat([a, b, a], 1)")
    case("cat bytes", [t.i(255, 2, 3, dtype=torch.uint8), t.i(255, 1, 3, dtype=torch.uint8)], "torch.cat([a, b])")
    error("cat of nothing", [], "torch.cat([])")
    error("cat of numbers", [t.f(), t.f()], "torch.cat([a, b])")
    error("cat of shapes", [t.f(2, 3), t.f(3, 2)], "torch.cat([a, b])")
    error("cat of ranks", [t.f(2, 3), t.f(3)], "torch.cat([a, b])")
    error("cat of a dim out of range", [t.f(2), t.f(2)], "torch.cat([a, b], 1)")
    case("concat", [t.g(2, 3), t.g(1, 3)], "torch.concat([a, b])")
    for dim in (0, 1, 2, -1, -3):
        case(f"stack {dim}", [t.g(3, 4), t.g(3, 4)], f"torch.stack([a, b], {dim})")
    case("stack numbers", [t.g(), t.g()], "torch.stack([a, b])")
    error("stack shapes", [t.f(2), t.f(3)], "torch.stack([a, b])")
    error("stack nothing", [], "torch.stack([])")
    error("stack dim out of range", [t.f(2)], "torch.stack([a], 2)")
    for op in ("hstack", "vstack", "dstack", "column_stack", "row_stack"):
        case(f"{op} vectors", [t.g(3), t.g(3)], f"torch.{op}([a, b])")
        case(f"{op} matrices", [t.g(3, 2), t.g(3, 2)], f"torch.{op}([a, b])")
        case(f"{op} numbers", [t.g(), t.g()], f"torch.{op}([a, b])")
        error(f"{op} nothing", [], f"torch.{op}([])")
    pad = "torch.nn.utils.rnn.pad_sequence"
    case("pad_sequence", [t.g(2, 3), t.g(4, 3), t.g(1, 3)], f"{pad}([a, b, c])", "lt.pad_sequence({a, b, c})")
    case("pad_sequence left", [t.g(2), t.g(4)], f"{pad}([a, b], True, 1.5, 'left')",
         "lt.pad_sequence({a, b}, true, 1.5, 'left')")
    error("pad_sequence shapes", [t.f(2, 3), t.f(2, 4)], f"{pad}([a, b])", "lt.pad_sequence({a, b})")
    case("block_diag", [t.g(2, 3), t.g(1), t.g(3, 1)], "torch.block_diag(a, b, c)")
    case("cartesian_prod", [t.g(3), t.g(2)], "torch.cartesian_prod(a, b)")
    case("cartesian_prod of one", [t.g(3)], "torch.cartesian_prod(a)")
    error("cartesian_prod dtypes", [t.f(2), t.i(3, 2)], "torch.cartesian_prod(a, b)")
    case("combinations", [t.g(4)], "torch.combinations(a, 2)")
    case("combinations with replacement", [t.g(3)], "torch.combinations(a, 3, with_replacement=True)")

    splits = {
        "split": "a.split(2)", "split dim": "a.split(3, dim=1)", "split list": "a.split([1, 4], 1)", "split_with_sizes": "a.split_with_sizes([2, 2])",
        "chunk": "a.chunk(3)", "chunk dim": "a.chunk(2, 1)", "unbind": "a.unbind()", "unbind dim": "a.unbind(-1)",
        "tensor_split": "a.tensor_split(3)", "tensor_split indices": "a.tensor_split([1, 3], 1)", "tensor_split beyond": "a.tensor_split([3, 9])",
        "hsplit": "a.hsplit([2, 3])", "vsplit": "a.vsplit(2)",
    }
    luas = {
        "split dim": "a:split(3, {dim=1})", "split list": "a:split({1, 4}, 1)", "split_with_sizes": "a:split_with_sizes({2, 2})",
        "tensor_split indices": "a:tensor_split({1, 3}, 1)", "tensor_split beyond": "a:tensor_split({3, 9})", "hsplit": "a:hsplit({2, 3})",
    }
    for name, python in splits.items():
        case(name, [t.g(4, 5)], f"tuple({python})", f"unpack({luas.get(name, python.replace('a.', 'a:'))})", variants=["strided", "float64", "bfloat16"])
    case("dsplit", [t.g(2, 2, 4)], "tuple(a.dsplit(2))", "unpack(a:dsplit(2))", variants=["strided"])
    error("split of a length", [t.f(4)], "a.split(-1)")
    error("split lengths", [t.f(4)], "a.split([1, 2])")
    error("chunk count", [t.f(4)], "a.chunk(0)")
    error("hsplit uneven", [t.f(4, 5)], "a.hsplit(2)")
    error("vsplit of a vector", [t.f(4)], "a.vsplit(2)")
    case("meshgrid", [t.g(3), t.g(2)], "torch.meshgrid(a, b, indexing='ij')", 'unpack(lt.meshgrid(a, b, {indexing="ij"}))', variants=["float64"])
    case("meshgrid xy", [t.g(3), t.g(2)], "torch.meshgrid([a, b], indexing='xy')", 'unpack(lt.meshgrid({a, b}, {indexing="xy"}))', variants=["float64"])
    case("broadcast_tensors", [t.g(3, 1), t.g(2)], "torch.broadcast_tensors(a, b)", "unpack(lt.broadcast_tensors(a, b))", variants=["float64"])
    for n in (1, 2, 3):
        for rank, x in enumerate((t.g(), t.g(2), t.g(2, 3), t.g(2, 3, 2))):
            case(f"atleast_{n}d of {rank}", [x], f"torch.atleast_{n}d(a)", variants=["float64"])
    case("atleast_2d of two", [t.g(2), t.g()], "torch.atleast_2d(a, b)", "unpack(lt.atleast_2d(a, b))", variants=["float64"])
