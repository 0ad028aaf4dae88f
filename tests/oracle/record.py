"""Asks PyTorch what it answers: cases/<family>.py in, references/<family>.lua out, which check.lua reads. See README.md.

    record.py [family...]                     writes references/, which is committed
    record.py --seed N --out DIR [family...]  writes fresh random inputs and their answers to DIR, for a live run
"""
import argparse
import ast
import glob
import importlib.util
import math
import os
import sys
import zlib

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = "abcdefgh"
LUA_WORDS = {"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local", "nil", "not", "or",
             "repeat", "return", "then", "true", "until", "while"}
BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "^", ast.Mod: "%"}
METHODS = {ast.MatMult: "matmul", ast.FloorDiv: "floor_divide", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
           ast.BitXor: "bitwise_xor", ast.LShift: "bitwise_left_shift", ast.RShift: "bitwise_right_shift"}
COMPARES = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


class Inputs:
    """Makers of inputs. Floats are rounded to three decimals, so that they are short and equal in every dtype's text."""

    def __init__(self, seed):
        self.seed = seed

    def reseed(self, text):
        torch.manual_seed(zlib.crc32(f"{self.seed} {text}".encode()))

    def f(self, *shape, scale=1.0, positive=False, dtype=torch.float32):
        """Normal floats."""
        x = torch.randn(shape, dtype=torch.float64) * scale
        if positive:
            x = x.abs() + 0.25
        return x.round(decimals=3).to(dtype)

    def g(self, *shape, **options):
        """The same, and their gradient is recorded."""
        return self.f(*shape, **options).requires_grad_(True)

    def distinct(self, *shape):
        """g without equal elements: where PyTorch's answer among equals is one of several."""
        x = self.g(*shape)
        while x.unique().numel() < x.numel():
            x = self.g(*shape)
        return x

    def u(self, low, high, *shape, dtype=torch.float32, grad=True):
        """Even in [low, high)."""
        x = (torch.rand(shape, dtype=torch.float64) * (high - low) + low).round(decimals=3).to(dtype)
        return x.requires_grad_(True) if grad else x

    def i(self, high, *shape, low=0, dtype=torch.int64):
        return torch.randint(low, high, shape, dtype=torch.int64).to(dtype)

    def mask(self, *shape):
        return torch.randint(0, 2, shape).bool()

    def t(self, values, dtype=None, grad=False):
        return torch.tensor(values, dtype=dtype).requires_grad_(grad)

    @property
    def special(self):
        """NaN, infinities, zeros of both signs, denormals, large and ordinary numbers."""
        nan, inf = float("nan"), float("inf")
        return torch.tensor([0.0, -0.0, 1.5, -2.5, inf, -inf, nan, 1e-30, 3e38, 1e-42, -1e-42, 1.0, -1.0, 0.5, 100.0, -100.0])


def to_lua(node):
    """A Python expression over tensors as Lua: methods by ':', keywords in a trailing table, torch.f as lt.f, F.f as lt.nn.functional.f."""
    if isinstance(node, ast.Constant):
        if node.value is None or isinstance(node.value, bool):
            return {None: "nil", True: "true", False: "false"}[node.value]
        return '"' + node.value + '"' if isinstance(node.value, str) else repr(node.value)
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, (ast.Tuple, ast.List)):
        return "{" + ", ".join(map(to_lua, node.elts)) + "}"
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Invert):
            return f"{to_lua(node.operand)}:bitwise_not()"
        return "(-" + to_lua(node.operand) + ")" if not isinstance(node.operand, ast.Constant) else "-" + to_lua(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = to_lua(node.left), to_lua(node.right)
        if type(node.op) in METHODS:
            return f"{left}:{METHODS[type(node.op)]}({right})"
        return f"({left} {BINARY[type(node.op)]} {right})"
    if isinstance(node, ast.Compare):
        return f"{to_lua(node.left)}:{COMPARES[type(node.ops[0])]}({to_lua(node.comparators[0])})"
    if isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id == "torch":
            return f'"{node.attr}"' if isinstance(getattr(torch, node.attr, None), torch.dtype) else "lt." + node.attr
        return to_lua(node.value) + "." + node.attr
    if isinstance(node, ast.Subscript):
        where = ast.unparse(node.slice).strip("()")
        simple = isinstance(node.slice, ast.Constant) or isinstance(node.slice, ast.Name)
        return f"{to_lua(node.value)}[{where}]" if simple else f'{to_lua(node.value)}["{where}"]'
    if isinstance(node, ast.Call):
        args = list(map(to_lua, node.args))
        if node.keywords:
            pairs = [(f'["{k.arg}"]' if k.arg in LUA_WORDS else k.arg) + " = " + to_lua(k.value) for k in node.keywords]
            args.append("{" + ", ".join(pairs) + "}")
        if isinstance(node.func, ast.Attribute):
            base, name = node.func.value, node.func.attr
            module = ast.unparse(base)
            if module in ("torch", "F", "torch.linalg", "torch.special"):
                table = {"torch": "lt", "F": "lt.nn.functional", "torch.linalg": "lt.linalg", "torch.special": "lt.special"}[module]
                return f'{table}["{name}"]({", ".join(args)})' if name in LUA_WORDS else f'{table}.{name}({", ".join(args)})'
            if name in LUA_WORDS:
                return f'lt["{name}"]({", ".join([to_lua(base)] + args)})'
            receiver = to_lua(base)
            return f'{receiver}:{name}({", ".join(args)})'
        return f'{to_lua(node.func)}({", ".join(args)})'
    raise SystemExit(f"no Lua for {ast.dump(node)}: give the Lua expression")


def number(value, digits):
    if isinstance(value, bool):
        return "true" if value else "false"
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, int):
        return repr(value) if abs(value) < 2**53 else repr(value) + "LL"
    return f"{value:.{digits}g}"


DIGITS = {torch.float16: 6, torch.bfloat16: 6, torch.float32: 9, torch.float64: 17}


def tensor(x):
    if not isinstance(x, torch.Tensor):
        return number(x, 17)
    if x._is_zerotensor():
        x = torch.zeros(x.shape, dtype=x.dtype)
    values = ", ".join(number(v, DIGITS.get(x.dtype)) for v in x.detach().reshape(-1).tolist())
    flags = ", grad = true" if x.requires_grad and x.is_leaf else ""
    return f'{{dtype = "{str(x.dtype)[6:]}", shape = {{{", ".join(map(str, x.shape))}}}{flags}{", " if values else ""}{values}}}'


def like(x, values):
    return values.detach().clone().requires_grad_(x.requires_grad)


def strided(x):
    if x.dim() == 0:
        return x
    if x.dim() == 1:
        return like(x, torch.stack([x.detach(), x.detach()], 1)[:, 0])
    return x.detach().transpose(0, -1).contiguous().transpose(0, -1).requires_grad_(x.requires_grad)


def converted(dtype):
    def convert(inputs):
        if not any(x.dtype == torch.float32 for x in inputs):
            return None
        return [like(x, x.detach().to(dtype)) if x.dtype == torch.float32 else x for x in inputs]
    return convert


def zero_dim(inputs):
    if all(x.dim() == 0 for x in inputs) or any(x.numel() == 0 for x in inputs):
        return None
    return [like(x, x.detach().reshape(-1)[0]) for x in inputs]


def emptied(size):
    """Every dimension of this size becomes empty."""
    return lambda inputs: [like(x, torch.empty([0 if n == size else n for n in x.shape], dtype=x.dtype)) if size in x.shape else x
                           for x in inputs]


def exact_like(x, exact):
    """What float64 says of x, in the dtype of x, where x is farther from it than one rounding of the largest element; else nothing."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.shape != exact.shape or not x.numel():
        return "false"
    rounded, own = exact.detach().to(x.dtype), x.detach()
    finite = torch.isfinite(own)
    scale = own[finite].double().abs().max().item() if finite.any() else 1.0
    off = (own.double() - rounded.double()).abs().nan_to_num(nan=math.inf) > torch.finfo(x.dtype).eps * scale
    same = (own == rounded) | (own.isnan() & rounded.isnan())
    return tensor(rounded) if (off & ~same).any() else "false"


class Recorder:
    def __init__(self, inputs, path):
        self.inputs, self.out, self.count, self.names = inputs, open(path, "w"), 0, set()
        self.out.write("-- Recorded by record.py: what PyTorch answers. Do not edit.\nlocal inf, nan = math.huge, 0 / 0\nreturn {\n")

    def evaluate(self, inputs, python, like_results=None):
        """Results, and gradients or None, seeded with numbers that the dtypes of like_results hold."""
        results = eval(python, {"torch": torch, "F": F, "inf": math.inf, "nan": math.nan, "math": math}, dict(zip(NAMES, inputs)))
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        wanted = [x for x in inputs if x.requires_grad]
        grads = [None] * len(inputs)
        paths = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
        if wanted and paths:
            rounded = [x.dtype for x in like_results or results if isinstance(x, torch.Tensor) and x.requires_grad]
            seeds = [(torch.arange(r.numel(), dtype=torch.float64) * 0.37 - 0.5).reshape(r.shape).to(dtype).to(r.dtype)
                     for r, dtype in zip(paths, rounded)]
            found = iter(torch.autograd.grad(paths, wanted, seeds, allow_unused=True))
            grads = [next(found) if x.requires_grad else None for x in inputs]
        return results, grads

    def answer(self, inputs, python, exact=False):
        results, grads = self.evaluate(inputs, python)
        text = f"results = {{{', '.join(map(tensor, results))}}}, grads = {{{', '.join('false' if g is None else tensor(g) for g in grads)}}}"
        if exact:
            wide = [like(x, x.detach().double()) if x.is_floating_point() else x for x in inputs]
            witness = [["false" if x is None else exact_like(x, y) for x, y in zip(own, true)]
                       for own, true in zip((results, grads), self.evaluate(wide, python, results))]
            for name, texts in zip(("exact", "exact_grads"), witness):
                if any(t != "false" for t in texts):
                    text += f",\n  {name} = {{{', '.join(texts)}}}"
        return text

    def begin(self, name, inputs, python, lua):
        if name in self.names:
            raise SystemExit(f"two cases are called {name}")
        self.names.add(name)
        self.inputs.reseed(name)
        self.count += 1
        code = lua or to_lua(ast.parse(python.strip(), mode="eval").body)
        self.out.write(f"{{name = {name!r}, code = {code!r},\n inputs = {{{', '.join(map(tensor, inputs))}}},\n")

    def variants(self, inputs, python, only, exact):
        """(name, inputs) of the forms of a case that PyTorch itself accepts; the check makes the same inputs."""
        makers = [("float64", converted(torch.float64)), ("float16", converted(torch.float16)), ("bfloat16", converted(torch.bfloat16)),
                  ("zero_dim", zero_dim)]
        sizes = sorted({n for x in inputs for n in x.shape if n > 0}, reverse=True)
        makers += [(f"empty {n}", emptied(n)) for n in sizes[:1]]
        for name, make in makers:
            if only is not None and name.split()[0] not in only:
                continue
            try:
                made = make(inputs)
                if made is not None:
                    yield name, self.answer(made, python, exact)
            except (RuntimeError, ValueError, IndexError, TypeError):
                continue

    def case(self, name, inputs, python, lua=None, *, tol=None, grad_tol=None, ulp=None, signs=False, variants=None, exact=False):
        self.begin(name, inputs, python, lua)
        self.out.write(f" {self.answer(inputs, python, exact)},\n")
        for key, value in (("tol", tol), ("grad_tol", grad_tol), ("ulp", ulp), ("signs", "true" if signs else None)):
            if value is not None:
                self.out.write(f" {key} = {value},\n")
        if inputs:
            try:
                if variants is None or "strided" in variants:
                    self.answer([strided(x) for x in inputs], python)
                    self.out.write(" strided = true,\n")
            except (RuntimeError, ValueError):
                pass
            self.out.write(" variants = {\n")
            for variant, answer in self.variants(inputs, python, variants, exact):
                self.out.write(f"  {{name = {variant!r}, {answer}}},\n")
            self.out.write(" }")
        self.out.write("},\n")

    def error(self, name, inputs, python, lua=None, *, op=None):
        """Both sides refuse; our message begins with op, by default the first word of the case's name."""
        self.begin(name, inputs, python, lua)
        try:
            eval(python, {"torch": torch, "F": F, "inf": math.inf, "nan": math.nan, "math": math}, dict(zip(NAMES, inputs)))
        except Exception:  # whatever PyTorch says no with
            self.out.write(f" error = {(op or name.split()[0])!r}}},\n")
            return
        raise SystemExit(f"{name}: PyTorch does not refuse it")

    def close(self):
        self.out.write("}\n")
        self.out.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=os.path.join(HERE, "references"))
    parser.add_argument("family", nargs="*")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    paths = sorted(glob.glob(os.path.join(HERE, "cases", "*.py")))
    unknown = set(options.family) - {os.path.basename(p)[:-3] for p in paths}
    if unknown:
        sys.exit(f"no such family: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for path in paths:
        family = os.path.basename(path)[:-3]
        if options.family and family not in options.family:
            continue
        spec = importlib.util.spec_from_file_location(family, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        inputs = Inputs(options.seed)
        inputs.reseed(family)
        recorder = Recorder(inputs, os.path.join(options.out, family + ".lua"))
        module.cases(recorder.case, recorder.error, inputs)
        recorder.close()


if __name__ == "__main__":
    main()
