"""PyTorch in; tests/ops/promotion.txt and tests/ops/layout.txt out: dtypes and layouts of results as PyTorch gives them.

Run with PyTorch 2.11: python tests/ops/make_references.py (from the repository's root)
"""
import itertools
import torch

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
# An operand: dtype and number of dimensions, or a Python scalar (API.md: a whole number next to an integer tensor is an
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
