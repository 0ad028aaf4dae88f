"""How ops are called: positions and names of arguments, in-place forms by position, what is refused, results of no elements."""
import torch


def cases(case, error, t):
    activations = {"relu": "", "relu6": "", "selu": "", "silu": "", "mish": "", "hardswish": "", "hardsigmoid": "", "elu": "0.5, ", "celu": "0.5, ",
                   "leaky_relu": "0.5, ", "hardtanh": "-0.5, 0.5, ", "threshold": "0.5, -1, "}
    for name, options in activations.items():
        for inplace in (True, False):
            case(f"{name} {inplace}", [t.f(3, 4)], f"F.{name}(a, {options}{inplace})", variants=[])
        case(f"{name} writes", [t.f(3, 4)], f"F.{name}(a, {options}True) + a", variants=[])
    for name, options in {"relu": "", "selu": "", "celu": ", 0.5", "threshold": ", 0.5, -1"}.items():
        error(f"{name} of torch takes no inplace", [t.f(3)], f"torch.{name}(a{options}, True)")
    error("relu as a method takes no inplace", [t.f(3)], "a.relu(True)")
    error("softmax along an axis", [t.f(3)], "F.softmax(a, axis=0)")
    error("normalize along an axis", [t.f(3)], "F.normalize(a, axis=0)")
    case("torch.softmax along an axis", [t.f(3)], "torch.softmax(a, axis=0)", variants=[])
    error("sum of dims", [t.f(3)], "torch.sum(a, dims=0)")
    error("flip by dim", [t.f(3)], "torch.flip(a, dim=(0,))")
    error("squeeze by dims", [t.f(3)], "torch.squeeze(a, dims=0)")
    error("full of a fraction below zero as bytes", [], "torch.full((2,), -1.5, dtype=torch.uint8)")
    error("hardtanh of bytes", [t.i(3, 3, dtype=torch.uint8)], "F.hardtanh(a)")
    error("gradient along a dim twice", [t.f(3, 3)], "torch.gradient(a, dim=(0, -2))", "lt.gradient(a, {dim = {0, -2}})")
    case("bucketize a fraction among integers", [t.t([1, 2, 3])], "torch.bucketize(2.5, a)", variants=[])
    case("bucketize infinity among integers", [t.t([1, 2, 3])], "torch.bucketize(inf, a, right=True)", variants=[])
    case("searchsorted of a byte beyond", [t.t([1, 2, 3], dtype=torch.uint8)], "torch.searchsorted(a, 300)", variants=[])
    for shape in ((0, 0), (0, 3), (3, 0)):
        for ord in ("1", "inf"):
            case(f"norm of a matrix of {shape} {ord}", [torch.ones(shape)], f"torch.linalg.norm(a, {ord})", variants=[])
    error("least column of no matrix", [torch.ones(3, 0)], "torch.linalg.norm(a, -1)", op="linalg_norm")
    case("multilabel_margin_loss of a number", [torch.tensor(0.5), torch.tensor(0)], "F.multilabel_margin_loss(a, b)", variants=[])
    nans = torch.tensor([[float("nan"), 0.5, 1.0], [0.1, 2.0, float("nan")]])
    case("multilabel_margin_loss of NaN", [nans, torch.tensor([[1, -1, 0], [0, 1, -1]])], "F.multilabel_margin_loss(a, b, reduction='none')", variants=[])
    case("multi_margin_loss of NaN", [nans, torch.tensor([1, 0])], "F.multi_margin_loss(a, b, reduction='none')", variants=[])
    case("broadcast_shapes", [t.f(2, 1, 3)], "a.expand(torch.broadcast_shapes((2, 1, 1), (4, 3), 3))",
         "a:expand(lt.broadcast_shapes({2, 1, 1}, {4, 3}, 3))", variants=[])
    error("broadcast_shapes that do not fit", [], "torch.broadcast_shapes((2, 3), (2,))", "lt.broadcast_shapes({2, 3}, {2})")
    case("igamma to a wider dtype", [t.u(1, 3, 4, grad=False), t.u(1, 3, 4, grad=False), t.f(4, dtype=torch.float64)],
         "torch.igamma(a, b, out=c)", tol=4e-6, variants=[])
    case("as_strided_scatter", [t.f(3, 4), t.g(2, 2)], "torch.as_strided_scatter(a, b, (2, 2), (4, 2), 1)", variants=[])
    case("as_strided_scatter without an offset", [t.f(3, 4), t.g(2, 2)], "a.as_strided_scatter(b, (2, 2), (4, 1))", variants=[])
    error("as_strided_scatter of another size", [t.f(3, 4), t.f(2)], "a.as_strided_scatter(b, (2, 2), (4, 1))")
    case("scatter_reduce max", [t.f(3), t.i(2, 3), t.f(3)], "a.scatter_reduce(0, b, c, 'max')", variants=[])
    case("scatter_reduce min", [t.f(3), t.i(2, 3), t.f(3)], "a.scatter_reduce(0, b, c, 'min')", variants=[])
    case("tensordot by a tensor", [t.g(2, 3), t.g(3, 2)], "torch.tensordot(a, b, torch.tensor(1))",
         "lt.tensordot(a, b, lt.tensor(1, {dtype = 'int64'}))", variants=[])
    case("special.polygamma", [t.u(0.5, 3, 4, grad=False)], "torch.special.polygamma(1, a)", tol=4e-6, variants=[])
    error("special.polygamma of its order", [t.f(3)], "torch.special.polygamma(a, 1)", op="special.polygamma")
    case("sum over a dim by a boolean", [t.f(2, 3, 4)], "a.sum((0, True))", "a:sum({0, true})", variants=[])
    error("sum over a boolean", [t.f(2, 3, 4)], "a.sum((True, 0))", "a:sum({true, 0})")
    case("l1_loss of integers", [t.i(9, 4), t.i(9, 4)], "F.l1_loss(a, b, reduction='sum')", variants=[])
    error("mean l1_loss of integers", [t.i(9, 4), t.i(9, 4)], "F.l1_loss(a, b)", op="l1_loss")
    error("binary_cross_entropy_with_logits of classes", [t.f(3), t.i(2, 3)], "F.binary_cross_entropy_with_logits(a, b)")
    error("soft_margin_loss of integers", [t.i(9, 3), t.f(3)], "F.soft_margin_loss(a, b)")
    error("cdist of two dtypes", [t.f(3, 2), t.f(3, 2, dtype=torch.float64)], "torch.cdist(a, b)")
    case("bincount of nothing by weights", [torch.empty(0, dtype=torch.int64), t.f(3)], "torch.bincount(a, b, 2)", variants=[])
    error("linalg.matrix_norm of integers", [t.i(9, 3, 3)], "torch.linalg.matrix_norm(a, 1)", op="linalg_matrix_norm")
    for op, rest in (("dot", "a"), ("vdot", "a"), ("topk", "1"), ("kthvalue", "1"), ("median", ""), ("median", "0"), ("nanmedian", ""), ("mvlgamma", "2")):
        error(f"{op} of bools by {rest or 'nothing'}", [t.mask(3)], f"a.{op}({rest})")
    error("isin of bools", [t.mask(3)], "torch.isin(a, a)")
    error("isin of a bool", [t.i(3, 3)], "torch.isin(a, True)")
    error("logcumsumexp of integers", [t.i(9, 3)], "a.logcumsumexp(0)")
    for op, numbers in (("arange", "2"), ("linspace", "0, 1, 2"), ("logspace", "0, 1, 2")):
        error(f"{op} of bools", [], f"torch.{op}({numbers}, dtype=torch.bool)")
    error("unsafe_split by a list", [t.f(4)], "torch.unsafe_split(a, (2, 2))")
    error("soft_margin_loss of a wider target", [t.f(1), t.f(5)], "F.soft_margin_loss(a, b)")
    case("is_conj", [t.f(3)], "torch.is_conj(a)", variants=[])
    case("is_same_size", [t.f(3, 1), t.f(1, 3)], "torch.is_same_size(a, b)", variants=[])
    error("celu alpha", [t.f(3)], "F.celu(a, 0.)")
    error("hardtanh bounds", [t.f(3)], "F.hardtanh(a, 1., -1.)")
    error("add with a boolean alpha", [t.f(3), t.f(3)], "torch.add(a, b, alpha=True)")
    error("addr of integers with a fraction", [t.i(3, 2), t.i(3, 2), t.i(3, 2)], "torch.addr(a, b, c, alpha=0.5)", "lt.addr(a, b, c, {alpha = 0.5})")

    case("copy_ without blocking", [t.f(3), t.f(3)], "a.clone().copy_(b, non_blocking=True)", variants=[])
    case("hsplit by name", [t.f(2, 4)], "torch.hsplit(a, sections=2)[1]", "lt.hsplit(a, {sections = 2})[2]", variants=[])
    case("vsplit by name", [t.f(4, 2)], "torch.vsplit(a, indices=(1, 3))[1]", "lt.vsplit(a, {indices = {1, 3}})[2]", variants=[])
    case("swapaxes by name", [t.f(2, 3)], "torch.swapaxes(a, axis0=0, axis1=1)", variants=[])
    case("vecdot by name", [t.f(2, 3), t.f(2, 3)], "torch.linalg.vecdot(a, y=b)", variants=[])
    case("dot by name", [t.f(3), t.f(3)], "torch.dot(a, tensor=b)", variants=[])

    case("alpha_dropout is for training only where asked", [t.f(20)], "F.alpha_dropout(a)", variants=[])
    case("dropout2d of two dimensions", [t.f(2, 3)], "F.dropout2d(a, training=False)", variants=[])

    case("median of no integers", [t.i(3, 0)], "a.median()", variants=[])
    case("median of no bytes", [t.i(3, 0, dtype=torch.int8)], "a.median()", variants=[])
    case("adaptive mean of no images", [t.g(0, 8, 8)], "F.adaptive_avg_pool1d(a, 5)", variants=[])
    case("gather by nothing", [t.g(5), torch.zeros(2, 0, dtype=torch.uint8)], "torch.gather(a, 0, b)", variants=[])
    case("scatter by nothing", [t.f(2, 0), torch.zeros(0, 2, dtype=torch.int64), t.f(2, 0)], "a.scatter(1, b, c)", variants=[])
    case("sum_to_size of one integer", [torch.tensor(3, dtype=torch.int32)], "a.sum_to_size(())", "a:sum_to_size({})", variants=[])
    case("arange of int64 from fractions", [], "torch.arange(1, 5.000001, 2, dtype=torch.int64)", "lt.arange(1, 5.000001, 2, {dtype = 'int64'})", variants=[])
    case("adjoint of a number", [torch.tensor(3.0)], "a.adjoint()", variants=[])

    error("repeat_interleave output_size", [t.f(3)], "a.repeat_interleave(2, output_size=5)")
    error("diff prepend", [t.f(3, 3), t.f(3)], "torch.diff(a, prepend=b)", "lt.diff(a, {prepend = b})")
    error("pdist of integers", [t.i(3, 3, 2)], "F.pdist(a)", "lt.nn.functional.pdist(a)")
    error("cumsum_ of another dtype", [t.f(3)], "a.clone().cumsum_(0, dtype=torch.float64)")
    error("cumprod_ of another dtype", [t.i(3, 3)], "a.clone().cumprod_(0, dtype=torch.uint8)")
    case("cumsum_ of int32", [t.i(9, 5, dtype=torch.int32)], "a.clone().cumsum_(0)", variants=[])
    case("copy_ of a number", [t.f(3)], "a.clone().copy_(2)", variants=[])
    case("elu scales", [t.f(5)], "torch._C._nn.elu(a, 1, 2, 3)", "lt.elu(a, 1, 2, 3)", variants=[])
    square, places = t.f(3, 3), t.i(3, 3, 3)
    error("gather into its input", [square, places], "torch.gather(a, 0, b, out=a)")
    error("take into its input", [square, places], "torch.take(a, b, out=a)")
    error("index_select into its input", [square, t.i(3, 3)], "torch.index_select(a, 0, b, out=a)")
    error("scatter_add into its source", [square, places, t.f(3, 3)], "torch.scatter_add(a, 0, b, c, out=c)")
    error("index_add into its source", [square, t.i(3, 3), t.f(3, 3)], "torch.index_add(a, 0, b, c, out=c)")
    error("cross into its input", [square, t.f(3, 3)], "torch.cross(a, b, dim=0, out=a)")
    error("uniform_ up to infinity", [t.f(3)], "a.uniform_(0, float('inf'))", "a:uniform_(0, math.huge)")
    error("clamp by numbers into another dtype", [t.f(3), torch.zeros(3, dtype=torch.float64)], "torch.clamp(a, max=1, out=b)")
    error("linalg_vector_norm in a narrower dtype", [t.f(3)], "torch.linalg.vector_norm(a, dtype=torch.float16)")
    error("randint beyond bool", [], "torch.randint(0, 5, (2,), dtype=torch.bool)", "lt.randint(0, 5, {2}, {dtype = 'bool'})")

    # Half types whose cast lies otherwise: a channel that is repeated.
    shared = t.f(2, 1, 6, 6)
    for dtype in (torch.float16, torch.bfloat16):
        case(f"avg_pool2d of a repeated channel {dtype}", [shared.to(dtype)], "F.avg_pool2d(a.expand(2, 3, 6, 6), 3)", variants=[])
        case(f"adaptive_avg_pool2d of a repeated channel {dtype}", [shared.to(dtype)], "F.adaptive_avg_pool2d(a.expand(2, 3, 6, 6), 4)", variants=[])
