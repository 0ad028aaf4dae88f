"""PyTorch in; tests/ops/promotion.txt and tests/ops/layout.txt out: dtypes and layouts of results as PyTorch gives them.

Run with PyTorch 2.11: python tests/ops/make_references.py (from the repository's root)
"""
import itertools
import torch

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
# An operand: dtype and number of dimensions, or a Python scalar (in Lua a whole number next to an integer tensor is an
# integer, so it is written as one here).
OPERANDS = [f"{d}:{n}" for d in DTYPES for n in (1, 0)]


def operand(text):
    if ":" not in text:
        return eval(text)
    dtype, dims = text.split(":")
    return torch.ones([2] * int(dims), dtype=getattr(torch, dtype))


def record(f):
    try:
        r = f()
        return str(r.dtype).removeprefix("torch.")
    except (RuntimeError, TypeError):
        return "error"


def promotion(out):
    binary = {"add": torch.add, "div": torch.div, "eq": torch.eq, "pow": torch.pow}
    for a, b in itertools.product(OPERANDS, OPERANDS + ["2", "0.5", "True"]):
        row = [record(lambda: f(operand(a), operand(b))) for f in binary.values()]
        print(a, b, *row, file=out)


def unary(out):
    names = ("neg abs exp floor sign relu square sqrt logical_not sum mean amax argmax any all").split()
    print("#", *names, file=out)
    for d in DTYPES:
        row = [record(lambda: getattr(torch, n)(operand(d + ":1"))) for n in names]
        print(d, *row, file=out)


# Layouts: sizes and strides of inputs, then sizes and strides of what comes out.
def strided(sizes, strides):
    return torch.empty_strided(sizes, strides).fill_(1)


PAIRS = [
    ([((2, 3), (3, 1))]),
    ([((2, 3), (1, 2))]),
    ([((2, 3), (6, 2))]),
    ([((2, 3), (0, 1))]),
    ([((2, 3), (1, 0))]),
    ([((2, 3, 4), (1, 2, 6))]),
    ([((2, 3, 4), (4, 8, 1))]),
    ([((2, 1, 4), (1, 7, 2))]),
    ([((2, 3), (1, 2)), ((2, 3), (1, 2))]),
    ([((2, 3), (1, 2)), ((2, 3), (3, 1))]),
    ([((2, 3), (3, 1)), ((2, 3), (1, 2))]),
    ([((2, 3), (1, 2)), ((3,), (1,))]),
    ([((3,), (1,)), ((2, 3), (1, 2))]),
    ([((2, 1), (1, 1)), ((1, 3), (3, 1))]),
    ([((4, 2, 3), (1, 12, 4)), ((2, 1), (1, 1))]),
    ([((4, 2, 3), (6, 1, 2)), ((), ())]),
    ([((2, 3, 4, 5), (60, 1, 15, 3)), ((2, 3, 4, 5), (60, 1, 15, 3))]),
    ([((2, 3, 4, 5), (60, 1, 15, 3)), ((1, 3, 1, 1), (3, 1, 1, 1))]),
    ([((0, 3), (3, 1)), ((1, 3), (3, 1))]),
]


def layout(out):
    def show(t):
        return f"{list(t.shape)}/{list(t.stride())}".replace(" ", "")

    for tensors in PAIRS:
        ts = [strided(*t) for t in tensors]
        if len(ts) == 1:
            print("unary", show(ts[0]), show(torch.neg(ts[0])), show(ts[0].clone()), show(ts[0].double()), file=out)
        else:
            print("binary", show(ts[0]), show(ts[1]), show(ts[0] + ts[1]), file=out)
    views = [
        ((2, 3, 4), (12, 4, 1), (6, 4)), ((2, 3, 4), (12, 4, 1), (-1,)), ((2, 3), (1, 2), (6,)), ((2, 3), (1, 2), (2, 3, 1)),
        ((2, 3), (1, 2), (2, 1, 3)), ((4, 3), (6, 2), (2, 2, 3)), ((4, 3), (6, 2), (12,)), ((4, 3), (6, 1), (2, 6)),
        ((4, 6), (12, 2), (4, 2, 3)), ((2, 0, 3), (3, 3, 1), (0, 5)), ((1, 4), (9, 2), (2, 2)), ((), (), (1, 1)),
        ((4, 1, 3), (3, 77, 1), (12,)), ((2, 2, 2), (8, 4, 2), (8,)), ((3, 4), (0, 1), (12,)), ((3, 4), (0, 1), (3, 2, 2)),
    ]
    for sizes, strides, shape in views:
        t = strided(sizes, strides)
        try:
            r = show(t.view(shape))
        except RuntimeError:
            r = "error"
        print("view", show(t), str(list(shape)).replace(" ", ""), r, file=out)


with open("tests/ops/promotion.txt", "w") as out:
    promotion(out)
with open("tests/ops/unary_dtypes.txt", "w") as out:
    unary(out)
with open("tests/ops/layout.txt", "w") as out:
    layout(out)


# Values: an op, its arguments in the order of its schema, and what comes out. See read_value in values_test.cc.
import math
import torch.nn.functional as F

NAN, INF = math.nan, math.inf
FLOATS = [0.0, -0.0, 0.5, -1.5, 2.0, -3.25, 7.0, INF, -INF, NAN, 1e-3, 123456.0]
OTHERS = [2.0, -3.0, 0.25, -1.5, INF, 3.25, -2.0, 1.0, 2.0, 1.0, NAN, 1000.0]
INTS = [0, 1, -1, 7, -7, 100, -128, 127, 3, -3, 2, 5]
DIVISORS = [3, -3, 3, 3, 3, -7, 5, 2, -2, -2, 7, -5]
BOOLS = [True, False, True, True, False, False, True, False, True, True, False, True]
BYTES = [0, 1, 255, 7, 128, 100, 3, 127, 3, 254, 2, 5]
SAMPLES = {"float32": FLOATS, "float64": FLOATS, "int64": INTS, "int32": INTS, "int8": INTS, "uint8": BYTES, "bool": BOOLS}
SECONDS = {"float32": OTHERS, "float64": OTHERS, "int64": DIVISORS, "int32": DIVISORS, "int8": DIVISORS,
           "uint8": [abs(d) for d in DIVISORS], "bool": BOOLS[::-1]}


def number(v, digits=17):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, int):
        return str(v)
    return "nan" if v != v else str(v) if math.isinf(v) else "%.*g" % (digits, v)


def token(v, mark=""):
    if v is None:
        return "none"
    if isinstance(v, torch.Tensor):
        dtype = str(v.dtype).removeprefix("torch.")
        shape = ",".join(map(str, v.shape))
        digits = 9 if dtype == "float32" else 17
        return f"{dtype}[{shape}]{mark}:" + ",".join(number(x, digits) for x in v.reshape(-1).tolist())
    if isinstance(v, torch.dtype):
        return "@" + str(v).removeprefix("torch.")
    if isinstance(v, str):
        return "'" + v
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, (tuple, list)):
        return "(" + ",".join(map(str, v)) + ")"
    return "#" + number(v)


SPECIAL = {
    "to_dtype": lambda x, d: x.to(d),
    "masked_fill": lambda x, m, v: x.masked_fill(m, v),
    "max_dim": lambda x, d, k=False: tuple(torch.max(x, d, k)),
    "min_dim": lambda x, d, k=False: tuple(torch.min(x, d, k)),
    "add": lambda a, b, alpha=1: torch.add(a, b, alpha=alpha) if isinstance(a, torch.Tensor) else a + b,
    "sub": lambda a, b, alpha=1: torch.sub(a, b, alpha=alpha) if isinstance(a, torch.Tensor) else a - b,
    "addcmul": lambda x, a, b, value=1: torch.addcmul(x, a, b, value=value),
    "addcdiv": lambda x, a, b, value=1: torch.addcdiv(x, a, b, value=value),
    "sum": lambda x, d=None, k=False, t=None: torch.sum(x, dtype=t) if d is None else torch.sum(x, d, k, dtype=t),
    "mean": lambda x, d=None, k=False, t=None: torch.mean(x, dtype=t) if d is None else torch.mean(x, d, k, dtype=t),
    "amax": lambda x, d=(), k=False: torch.amax(x, d, k),
    "amin": lambda x, d=(), k=False: torch.amin(x, d, k),
    "any": lambda x, d=None, k=False: torch.any(x) if d is None else torch.any(x, d, k),
    "all": lambda x, d=None, k=False: torch.all(x) if d is None else torch.all(x, d, k),
    "linear": F.linear,
    "softmax": lambda x, d, t=None: torch.softmax(x, d, dtype=t),
    "log_softmax": lambda x, d, t=None: torch.log_softmax(x, d, dtype=t),
    "nll_loss": lambda x, t, w=None, i=-100, r="mean": F.nll_loss(x, t, w, ignore_index=i, reduction=r),
    "cross_entropy": lambda x, t, w=None, i=-100, r="mean": F.cross_entropy(x, t, w, ignore_index=i, reduction=r),
    "mse_loss": lambda x, t, r="mean": F.mse_loss(x, t, reduction=r),
    "view": lambda x, s: x.view(s),
    "expand": lambda x, s: x.expand(s),
    "permute": lambda x, d: x.permute(d),
    "squeeze": lambda x, d=None: x.squeeze() if d is None else x.squeeze(d),
    "slice": lambda x, d=0, a=None, b=None, s=1: x[(slice(None),) * d + (slice(a, b, s),)],
    "full": lambda s, v, t=None: torch.full(s, v, dtype=t or (torch.bool if isinstance(v, bool) else torch.float32)),
    "arange": lambda a, b=None, s=1, t=None: torch.arange(0 if b is None else a, a if b is None else b, s, dtype=t),
}


class Marked:
    """A tensor that the reader lays out otherwise: T transposed, S every second element."""

    def __init__(self, t, mark):
        self.t, self.mark = t, mark


def values(out):
    count = [0]

    def case(op, *args):
        plain = [a.t if isinstance(a, Marked) else a for a in args]
        shown = [token(a.t, a.mark) if isinstance(a, Marked) else token(a) for a in args]
        try:
            r = SPECIAL.get(op, getattr(torch, op, None))(*plain)
            r = " ".join(token(t) for t in (r if isinstance(r, tuple) else (r,)))
        except (RuntimeError, TypeError, IndexError):
            r = "error"
        print(op, *shown, "->", r, file=out)
        count[0] += 1

    def t(v, dtype="float32", shape=None):
        x = torch.tensor(v, dtype=getattr(torch, dtype))
        return x.reshape(shape) if shape is not None else x

    g = torch.Generator().manual_seed(1)

    def rand(*shape):
        return (torch.randn(shape, generator=g) * 64).round() / 32

    unary = "neg abs exp log tanh sigmoid sqrt rsqrt reciprocal floor ceil sign relu square logical_not isnan".split()
    for op in unary:
        for dtype in SAMPLES:
            case(op, t(SAMPLES[dtype], dtype))
        case(op, Marked(rand(3, 4), "T"))
        case(op, Marked(rand(2, 2, 3), "S"))
        case(op, rand(0, 3))
        case(op, rand())
    binary = ("add sub mul div pow remainder floor_divide minimum maximum eq ne lt le gt ge logical_and logical_or "
              "logical_xor").split()
    for op in binary:
        for dtype in SAMPLES:
            b = t(SECONDS[dtype], dtype)
            case(op, t(SAMPLES[dtype], dtype), b.abs() if op == "pow" and "int" in dtype else b)
        case(op, t(SAMPLES["int64"], "int64"), t(SECONDS["float32"], "float32"))
        case(op, Marked(rand(3, 4), "T"), rand(3, 4))
        case(op, rand(3, 1, 2), Marked(rand(4, 2), "S"))
        case(op, rand(0, 3), rand(1, 3))
        case(op, rand(), rand(2))
        if op in ("add", "sub", "mul", "div", "pow", "remainder", "floor_divide", "eq", "lt", "ge"):
            for n in (2, -3, 0.5):
                for dtype in ("float32", "int64", "uint8", "bool"):
                    if not (dtype == "uint8" and n == -3):
                        # PyTorch takes a power of 0.5 for a root, which differs at -inf; ours is one function.
                        v = [x for x in SAMPLES[dtype] if (op, n, x) != ("pow", 0.5, -INF)]
                        case(op, t(v, dtype), n)
            case(op, 2, t(FLOATS)) if op not in ("eq", "lt", "ge") else None
    for dtype in SAMPLES:
        # Casts of what the target cannot hold differ between machines; PyTorch leaves them open.
        small = [0.0, 0.5, -0.5, 1.9, -1.9, 100.4, NAN, INF]
        source = small if "float" in dtype else SAMPLES[dtype]
        for to in SAMPLES:
            v = [x for x in source if not ("int" in to and (x != x or x in (INF, -INF) or (to == "uint8" and x < 0)))]
            case("to_dtype", t(v, dtype), getattr(torch, to))
    case("add", rand(3), rand(3), 2.5)
    case("sub", t(INTS, "int64"), t(DIVISORS, "int64"), 3)
    for lo, hi in ((-1, 2), (None, 0.5), (-0.5, None), (2, -1)):
        case("clamp", t(FLOATS), lo, hi)
        case("clamp", t(INTS, "int64"), lo, hi)
    case("clamp", t(FLOATS), NAN, 2)
    case("addcmul", rand(2, 3), Marked(rand(2, 3), "T"), rand(3), 0.5)
    case("addcmul", t(INTS, "int64"), t(INTS, "int64"), t(DIVISORS, "int64"), 2)
    case("addcdiv", rand(2, 3), Marked(rand(2, 3), "T"), rand(3), 0.5)
    for w in (0.1, 0.5, 0.9, 1.5, -0.2):
        case("lerp", rand(5), rand(5), w)
    case("lerp", rand(5), rand(5), rand(5))
    c = t(BOOLS, "bool")
    case("where", c, t(FLOATS), t(OTHERS))
    case("where", c, t(INTS, "int64"), 0.5)
    case("where", t(BOOLS[:4], "bool", (4, 1)), Marked(rand(4, 3), "T"), rand(3))
    case("masked_fill", t(FLOATS), c, -INF)
    case("masked_fill", t(INTS, "int64"), c, 0.5)
    case("masked_fill", Marked(rand(3, 4), "T"), t(BOOLS, "bool", (3, 4)), t(2.5))

    for op in "sum mean amax amin argmax argmin any all".split():
        for dtype in SAMPLES:
            case(op, t(SAMPLES[dtype], dtype, (3, 4)))
            case(op, t(SAMPLES[dtype], dtype, (3, 4)), 1)
        for layout in "TS":
            case(op, Marked(rand(3, 4), layout), 0)
            case(op, Marked(rand(2, 3, 4), layout), -1, True)
            if "arg" not in op:
                case(op, Marked(rand(2, 3, 4), layout), (0, 2))
                case(op, Marked(rand(2, 3, 4), layout), (1,), True)
        case(op, rand(0, 3), 0)
        case(op, rand(0, 3), 1)
        case(op, rand(0, 3))
        case(op, rand())
        case(op, rand(), 0, True)
        if "arg" not in op:
            case(op, rand(2, 3) > 0, ()) if op in ("any", "all") else case(op, rand(2, 3), ()) if op != "mean" else None
        case(op, t([1.0, 3.0, 3.0, NAN, 2.0, NAN]))
        case(op, rand(3, 37), 1)
    case("sum", t(INTS, "int64"), None, False, torch.float32)
    case("sum", t([200] * 5, "uint8"))
    case("mean", t(INTS, "int64"), None, False, torch.float64)
    for op in ("max_dim", "min_dim"):
        for dtype in SAMPLES:
            case(op, t(SAMPLES[dtype], dtype, (3, 4)), 1)
        case(op, Marked(rand(2, 3, 4), "T"), 1, True)
        case(op, t([[2.0, 2.0, 1.0], [1.0, 1.0, 2.0]]), 1)
        case(op, rand(2, 0), 1)
        case(op, rand(2, 0), 0)
        case(op, rand(), 0)

    x = rand(2, 3, 4)
    for layout in "TS":
        m = Marked(x, layout)
        case("view", Marked(rand(2, 3), layout), (2, 1, 3))
        case("reshape", m, (4, -1))
        case("flatten", m, 1, 2)
        case("transpose", m, 0, -1)
        case("permute", m, (1, 2, 0))
        case("expand", Marked(rand(2, 1), layout), (3, -1, 2))
        case("select", m, -2, -1)
        case("slice", m, 1, -2, 9, 1)
        case("slice", m, 2, 1, None, 2)
        case("unsqueeze", m, -1)
        case("clone", m)
        case("contiguous", m) if hasattr(torch, "contiguous") else None
        case("select_scatter", m, rand(2, 4), 1, 2)
        case("slice_scatter", m, rand(2, 3, 2), 2, 0, None, 2)
        case("gather", m, 1, t([[[0, 1, 2, 0]], [[2, 2, 1, 1]]], "int64"))
        case("scatter_add", m, 2, t([[[0, 0, 1]], [[3, 3, 3]]], "int64"), Marked(rand(2, 3, 4), layout))
        case("index_select", m, 2, t([3, 0, 3], "int64"))
        case("index_add", m, 0, t([1, 1, 0], "int64"), Marked(rand(3, 3, 4), layout))
    case("slice", rand(5), 0, 4, 2, 1)
    case("squeeze", rand(2, 1, 3, 1))
    case("squeeze", rand(2, 1, 3, 1), 1)
    case("squeeze", rand(2, 1, 3, 1), (0, 3))
    case("gather", rand(3), 0, t([3], "int64"))
    case("index_select", rand(3, 2), 0, t([], "int64"))
    case("index_select", rand(3, 2), 0, t([2, 0], "int32"))
    case("gather", t(INTS, "int64"), 0, t([3, 3, 11], "int64"))
    case("scatter_add", t(INTS, "int64"), 0, t([3, 3, 11], "int64"), t([10, 20, 30], "int64"))

    case("mm", Marked(rand(3, 4), "T"), rand(4, 2))
    case("mm", rand(3, 4), Marked(rand(4, 2), "T"))
    case("mm", Marked(rand(3, 4), "S"), Marked(rand(4, 5), "S"))
    case("mm", rand(3, 0), rand(0, 2))
    case("mm", rand(0, 3), rand(3, 2))
    case("mm", rand(7, 20).double(), rand(20, 5).double())
    case("mm", t(INTS, "int64", (3, 4)), t(DIVISORS, "int64", (4, 3)))
    case("bmm", Marked(rand(2, 3, 4), "T"), rand(2, 4, 2))
    for a, b in (((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 3)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (3, 4, 2)),
                 ((3, 4), (2, 4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 3)), ((0, 3, 4), (4, 5)), ((3, 4), (3, 4)), ((), (4,))):
        case("matmul", rand(*a), rand(*b))
    case("linear", rand(4), rand(3, 4), rand(3))
    case("linear", rand(2, 5, 4), rand(3, 4), rand(3))
    case("linear", rand(0, 4), rand(3, 4), rand(3))
    case("linear", rand(2, 4), rand(3, 4))

    for op in ("softmax", "log_softmax"):
        case(op, rand(3, 5), 1)
        case(op, Marked(rand(3, 5), "T"), 0)
        case(op, Marked(rand(2, 3, 4), "S"), -2)
        case(op, t([[INF, 1.0], [-INF, -INF], [NAN, 0.0], [1000.0, -1000.0]]), 1)
        case(op, rand(), 0)
        case(op, rand(0, 3), 1)
        case(op, rand(3, 0), 1)
        case(op, t(INTS, "int64"), 0)
        case(op, t(INTS, "int64"), 0, torch.float64)
        case(op, rand(9, 70), 1)
    target, weight = t([1, -100, 0, 2], "int64"), t([0.5, 2.0, 1.0])
    for op in ("nll_loss", "cross_entropy"):
        for r in ("none", "mean", "sum"):
            case(op, rand(4, 3), target, None, -100, r)
            case(op, Marked(rand(4, 3), "T"), target, weight, 0 if r == "sum" else -100, r)
            case(op, rand(2, 3, 2), t([[0, 1], [2, 2]], "int64"), weight, -100, r)
        case(op, rand(3), t(1, "int64"))
        case(op, rand(4, 3), t([3, 0, 0, 0], "int64"))
        case(op, rand(4, 3), t([-100] * 4, "int64"))
        case(op, rand(0, 3), t([], "int64"), None, -100, "sum")
        case(op, rand(2, 3), t([0, 1], "uint8"))
    case("cross_entropy", rand(4, 3), torch.softmax(rand(4, 3), 1), weight)
    for r in ("none", "mean", "sum"):
        case("mse_loss", rand(3, 4), Marked(rand(3, 4), "T"), r)
    case("full", (2, 2), 1.5)
    case("full", (3,), True)
    case("full", (2,), 2.5, torch.int64)
    case("full", (0, 2), 1)
    for a in ((5,), (2, 9, 3), (0, 1, 0.25), (5, 0, -2), (0,), (5, 0)):
        case("arange", *a)
    case("arange", 0, 5, 2, torch.float32)
    print(count[0], "values")


with open("tests/ops/values.txt", "w") as out:
    values(out)
