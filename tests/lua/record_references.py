"""Records what PyTorch answers: writes references.lua beside itself, which reference.lua reads. Run it with PyTorch 2.11 after adding a case.

A case is (name, inputs, PyTorch expression, Lua expression); both see the inputs as a, b, c. Where the Lua expression is None it is the
Python one with methods called by ':'. Gradients of the inputs marked with 'g' are recorded for a fixed gradient of the first result.
"""
import os
import torch
import torch.nn.functional as F

torch.manual_seed(0)


def f(*shape, scale=1.0, dtype=torch.float32):
    return (torch.randn(shape, dtype=torch.float64) * scale).round(decimals=3).to(dtype)


def g(*shape, positive=False, dtype=torch.float32):
    x = f(*shape, dtype=dtype)
    if positive:
        x = x.abs() + 0.25
    return x.requires_grad_(True)


def i(high, *shape, low=0, dtype=torch.int64):
    return torch.randint(low, high, shape, dtype=torch.int64).to(dtype)


def mask(*shape):
    return torch.randint(0, 2, shape).bool()


f64 = torch.float64
special = torch.tensor([0.0, -0.0, 1.5, -2.5, float("inf"), float("-inf"), float("nan"), 1e-30, 3e38])
cases = []


def case(name, inputs, python, lua=None):
    cases.append((name, inputs, python, lua or python.replace(".", ":").replace("True", "true").replace("False", "false").replace("None", "nil")))


# Arithmetic and broadcasting.
for op, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/")):
    case(op, [g(3, 4), g(3, 4)], f"a {sign} b")
    case(op + " broadcast", [g(3, 1, 4), g(2, 1)], f"a {sign} b")
    case(op + " number", [g(5)], f"a {sign} 2.5", f"a {sign} 2.5")
    case(op + " number left", [g(5, positive=True)], f"2.5 {sign} a", f"2.5 {sign} a")
    case(op + " integers", [i(9, 6, low=1), i(9, 6, low=1)], f"a {sign} b")
    case(op + " promotion", [i(9, 6, low=1), g(6, positive=True)], f"a {sign} b")
    case(op + " float64", [g(4, dtype=f64), f(4)], f"a {sign} b")
    case(op + " special", [special, f(9)], f"a {sign} b")
case("add alpha", [g(4), g(4)], "a.add(b, alpha=3)", "a:add(b, {alpha=3})")
case("pow", [g(5, positive=True), g(5)], "a.pow(b)")
case("pow number", [g(5)], "a ** 2", "a ^ 2")
case("pow third", [g(5, positive=True)], "a ** 0.5", "a ^ 0.5")
case("remainder", [f(6), f(6)], "a.remainder(b)")
case("remainder integers", [i(9, 6, low=-9), i(5, 6, low=1)], "a % b")
case("floor_divide", [i(9, 6, low=-9), i(5, 6, low=1)], "a.floor_divide(b)")
case("floor_divide floats", [f(6), f(6)], "a.floor_divide(b)")
case("maximum", [g(6), g(6)], "a.maximum(b)")
case("minimum", [g(6), g(6)], "a.minimum(b)")
case("clamp", [g(8)], "a.clamp(-0.5, 0.5)", "a:clamp(-0.5, 0.5)")
case("clamp min", [g(8)], "a.clamp(min=0.1)", "a:clamp{min=0.1}")
for op in ("neg", "abs", "exp", "tanh", "sigmoid", "relu", "square", "sign", "floor", "ceil"):
    case(op, [g(3, 4)], f"a.{op}()")
    if op not in ("square",):
        case(op + " special", [special], f"a.{op}()")
for op in ("log", "sqrt", "rsqrt", "reciprocal"):
    case(op, [g(3, 4, positive=True)], f"a.{op}()")
    case(op + " special", [special], f"a.{op}()")
case("exp float64", [g(7, dtype=f64)], "a.exp()")
case("tanh float64", [g(7, dtype=f64)], "a.tanh()")
case("log float64", [g(7, dtype=f64, positive=True)], "a.log()")
case("exp integers", [i(4, 5)], "a.exp()")
case("addcmul", [g(4), g(4), g(4)], "a.addcmul(b, c, value=0.5)", "a:addcmul(b, c, {value=0.5})")
case("addcdiv", [g(4), g(4), g(4, positive=True)], "a.addcdiv(b, c, value=0.5)", "a:addcdiv(b, c, {value=0.5})")
case("lerp", [g(4), g(4)], "a.lerp(b, 0.3)", "a:lerp(b, 0.3)")

# Comparison, logic, selection, casts.
for op in ("eq", "ne", "lt", "le", "gt", "ge"):
    case(op, [i(3, 8), i(3, 8)], f"a.{op}(b)")
    case(op + " number", [f(8)], f"a.{op}(0)")
case("logical_and", [mask(6), mask(6)], "a.logical_and(b)")
case("logical_or", [mask(6), mask(6)], "a.logical_or(b)")
case("logical_xor", [mask(6), mask(6)], "a.logical_xor(b)")
case("logical_not", [i(2, 6)], "a.logical_not()")
case("isnan", [special], "a.isnan()")
case("where", [mask(3, 4), g(3, 4), g(4)], "torch.where(a, b, c)", "lt.where(a, b, c)")
case("where number", [mask(5), g(5)], "torch.where(a, b, 2.5)", "lt.where(a, b, 2.5)")
case("masked_fill", [g(3, 4), mask(4)], "a.masked_fill(b, -1.5)", "a:masked_fill(b, -1.5)")
case("mask plus number", [mask(5)], "a + 1")
case("to int64", [f(6, scale=3)], "a.to(torch.int64)", 'a:to("int64")')
case("to bool", [i(2, 6)], "a.to(torch.bool)", 'a:to("bool")')
case("to float64", [g(6)], "a.to(torch.float64)", 'a:to("float64")')
case("uint8 to float", [i(256, 6, dtype=torch.uint8)], "a.to(torch.float32) / 255", 'a:to("float32") / 255')

# Reductions.
for op in ("sum", "mean", "amax", "amin"):
    case(op, [g(3, 4)], f"a.{op}()")
    case(op + " dim", [g(3, 4, 2)], f"a.{op}(1)")
    case(op + " keepdim", [g(3, 4)], f"a.{op}(-1, True)")
    case(op + " dims", [g(3, 4, 2)], f"a.{op}((0, 2))", f"a:{op}({{0, 2}})")
case("sum integers", [i(9, 3, 4)], "a.sum(0)")
case("sum bool", [mask(9)], "a.sum()")
case("sum dtype", [i(9, 4)], "a.sum(dtype=torch.float64)", 'a:sum{dtype="float64"}')
case("argmax", [f(3, 5)], "a.argmax(-1)")
case("argmax all", [f(3, 5)], "a.argmax()")
case("argmin", [f(3, 5)], "a.argmin(0)")
case("any", [mask(3, 4)], "a.any(1)")
case("all", [mask(3, 4)], "a.all(0)")
case("max dim", [g(3, 5)], "a.max(1)[0]", "(a:max(1))")
case("max indices", [f(3, 5)], "a.max(1)[1]", "select(2, a:max(1))")
case("max all", [g(3, 5)], "a.max()")
case("amax ties", [torch.tensor([[1.0, 3.0, 3.0]]).requires_grad_(True)], "a.amax(1)")

# Views.
case("view", [g(3, 4)], "a.view(2, -1)")
case("reshape of a transpose", [g(3, 4)], "a.transpose(0, 1).reshape(-1)")
case("permute", [g(2, 3, 4)], "a.permute(2, 0, 1)")
case("expand", [g(3, 1)], "a.expand(2, 3, 4)")
case("select", [g(3, 4)], "a.select(1, -1)")
case("index row", [g(3, 4)], "a[1]", "a[1]")
case("slice", [g(7, 2)], "a[1:6:2]", 'a["1:6:2"]')
case("slice columns", [g(3, 6)], "a[:, -3:]", 'a[":, -3:"]')
case("slice table", [g(5, 6)], "a[1:4, 2]", "a[{{1, 4}, 2}]")
case("newaxis", [g(3)], "a[:, None]", 'a[":, None"]')
case("ellipsis", [g(2, 3, 4)], "a[..., 0]", 'a["..., 0"]')
case("unsqueeze", [g(3)], "a.unsqueeze(0)")
case("squeeze", [g(1, 3, 1)], "a.squeeze()")
case("squeeze dim", [g(1, 3, 1)], "a.squeeze(0)")
case("flatten", [g(2, 3, 4)], "a.flatten(1)")
case("mask index", [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True])], "a[b]", "a[b]")
case("tensor index", [g(5, 2), torch.tensor([4, 0, 4])], "a[b]", "a[b]")

# Products, losses, gathering.
case("mm", [g(3, 4), g(4, 5)], "a.mm(b)")
case("matmul vectors", [g(4), g(4)], "a.matmul(b)")
case("matmul matrix vector", [g(3, 4), g(4)], "a.matmul(b)")
case("matmul batches", [g(2, 3, 4), g(4, 5)], "a.matmul(b)")
case("matmul broadcast", [g(2, 1, 3, 4), g(5, 4, 2)], "a.matmul(b)")
case("bmm", [g(2, 3, 4), g(2, 4, 5)], "a.bmm(b)")
case("mm transposed", [g(4, 3), g(4, 5)], "a.transpose(0, 1).mm(b)")
case("mm float64", [g(3, 4, dtype=f64), g(4, 2, dtype=f64)], "a.mm(b)")
case("linear", [g(5, 4), g(3, 4), g(3)], "F.linear(a, b, c)", "lt.linear(a, b, c)")
case("linear no bias", [g(2, 5, 4), g(3, 4)], "F.linear(a, b)", "lt.linear(a, b)")
case("softmax", [g(3, 5)], "a.softmax(-1)")
case("softmax dim 0", [g(3, 5)], "a.softmax(0)")
case("log_softmax", [g(3, 5)], "a.log_softmax(1)")
case("softmax large", [torch.tensor([[1000.0, 1001.0, -1000.0]])], "a.softmax(-1)")
target = i(5, 6)
ignored = torch.tensor([0, -100, 3, 4, -100, 1])
case("nll_loss", [g(6, 5), target], "F.nll_loss(a, b)", "lt.nll_loss(a, b)")
case("cross_entropy", [g(6, 5), target], "F.cross_entropy(a, b)", "lt.cross_entropy(a, b)")
case("cross_entropy sum", [g(6, 5), target], 'F.cross_entropy(a, b, reduction="sum")', 'lt.cross_entropy(a, b, {reduction="sum"})')
case("cross_entropy none", [g(6, 5), target], 'F.cross_entropy(a, b, reduction="none")', 'lt.cross_entropy(a, b, {reduction="none"})')
case("cross_entropy ignore", [g(6, 5), ignored], "F.cross_entropy(a, b)", "lt.cross_entropy(a, b)")
case("cross_entropy weight", [g(6, 5), target, f(5).abs() + 0.5], "F.cross_entropy(a, b, c)", "lt.cross_entropy(a, b, c)")
case("mse_loss", [g(6), g(6)], "F.mse_loss(a, b)", "lt.mse_loss(a, b)")
case("gather", [g(3, 5), i(5, 3, 2)], "a.gather(1, b)")
case("scatter_add", [g(3, 5), i(5, 3, 2), g(3, 2)], "a.scatter_add(1, b, c)")
case("index_select", [g(5, 3), torch.tensor([4, 0, 0])], "a.index_select(0, b)")
case("index_add", [g(5, 2), torch.tensor([4, 0, 4]), g(3, 2)], "a.index_add(0, b, c)")
case("arange", [], "torch.arange(2, 11, 3)", "lt.arange(2, 11, 3)")
case("full", [], "torch.full((2, 2), 3.5)", "lt.full({2, 2}, 3.5)")
# A deep chain, and a tensor used twice.
case("chain", [g(3, 4), g(4, 4)], "((a.mm(b).tanh() * a).sigmoid() + a).sum(0).exp()")


def number(value, digits):
    if isinstance(value, bool):
        return "true" if value else "false"
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return repr(value) if isinstance(value, int) else f"{value:.{digits}g}"


def tensor(x):
    values = ", ".join(number(v, 9 if x.dtype == torch.float32 else 17) for v in x.detach().reshape(-1).tolist())
    flags = ", grad = true" if x.requires_grad and x.is_leaf else ""
    return f'{{dtype = "{str(x.dtype)[6:]}", shape = {{{", ".join(map(str, x.shape))}}}{flags}, {values}}}'


path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "references.lua")
with open(path, "w") as out:
    out.write("-- Recorded by record_references.py: what PyTorch answers. Do not edit.\nlocal inf, nan = math.huge, 0 / 0\nreturn {\n")
    for name, inputs, python, lua in cases:
        names = dict(zip("abc", inputs))
        result = eval(python, {"torch": torch, "F": F}, names)
        grads = ["false"] * len(inputs)
        wanted = [x for x in inputs if x.requires_grad]
        if wanted and result.requires_grad:
            seed = (torch.arange(result.numel(), dtype=torch.float64) * 0.37 - 0.5).reshape(result.shape).to(result.dtype)
            found = iter(torch.autograd.grad(result, wanted, seed))
            grads = [tensor(next(found)) if x.requires_grad else "false" for x in inputs]
        out.write(f"{{name = {name!r}, code = {lua!r},\n inputs = {{{', '.join(map(tensor, inputs))}}},\n"
                  f" result = {tensor(result)},\n grads = {{{', '.join(grads)}}}}},\n")
    out.write("}\n")
