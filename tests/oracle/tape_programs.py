"""Random programs of views and in-place writes with history, and what PyTorch makes of them, for tape_programs.lua.

    tape_programs.py SEED COUNT FILE

A program makes tensors of two leaves and two constants: functions, views with offsets, overlapping or not, writes in place
through any of them, detached aliases, writes in no_grad; then it goes backward from some. Recorded are which statements raise,
all values, which tensors require grad, whether backward raises, and the leaves' gradients.
"""
import random
import re
import sys
import warnings

import torch

import torch.nn.functional as F

warnings.simplefilter("ignore")
torch.set_num_threads(1)

# In place PyTorch has no gradient of these, or keeps more than it needs: there it may refuse what we do not.
KEEPS_MORE = "index_add_ index_copy_ asinh_ acosh_ atanh_ cumprod_ lerp_ pow_ sgn_".split()
UNARY = "neg abs exp log tanh sigmoid sqrt rsqrt reciprocal floor ceil sign relu square sin cos tan asin acos atan sinh cosh asinh acosh atanh exp2 expm1 log2 log10 log1p erf erfc erfinv lgamma digamma trunc round deg2rad rad2deg frac sgn sinc nan_to_num".split()
BINARY = "add sub mul div pow atan2 hypot copysign fmod remainder xlogy".split()
# Those whose in-place form is an option in PyTorch: its call, ours.
ACTIVATIONS = [
    ("F.relu6({x}, True)", "{x}:relu6_()"), ("F.hardtanh({x}, -0.5, 0.5, True)", "{x}:hardtanh_(-0.5, 0.5)"),
    ("F.leaky_relu({x}, 0.1, True)", "{x}:leaky_relu_(0.1)"), ("F.elu({x}, 0.7, True)", "{x}:elu_(0.7)"),
    ("F.celu({x}, 0.7, True)", "{x}:celu_(0.7)"), ("F.selu({x}, True)", "{x}:selu_()"), ("F.silu({x}, True)", "{x}:silu_()"),
    ("F.hardswish({x}, True)", "{x}:hardswish_()"), ("F.hardsigmoid({x}, True)", "{x}:hardsigmoid_()"),
    ("F.mish({x}, True)", "{x}:mish_()"), ("F.threshold({x}, 0.1, 0.2, True)", "{x}:threshold_(0.1, 0.2)"),
    ("{x}.logit_(0.1)", "{x}:logit_(0.1)"), ("F.dropout({x}, 0.0, True, True)", "lt.nn.functional.dropout({x}, 0, true, true)"),
]


def text(t):
    return ",".join("nan" if v != v else "%.12g" % v for v in t.detach().reshape(-1).tolist())


class Program:
    def __init__(self, rng):
        self.rng, self.v, self.lines = rng, [], []
        self.names = {"F": F, "torch": torch, "v": self.v}

    def pick(self, like=None):
        """A variable's number; with `like` one that has its shape, if there is one."""
        same = [i for i, t in enumerate(self.v) if like is None or t.shape == self.v[like].shape]
        return self.rng.choice(same[-6:] if self.rng.random() < 0.6 else same)

    def number(self):
        return self.rng.choice([2, 0.5, -1.5, 3, 1])

    def other(self, x, whole=False):
        """A tensor that broadcasts to v[x], or a number: in Python and in Lua."""
        r = self.rng.random()
        if r < 0.35:
            n = str(self.number())
            return n, n
        fitting = [i for i, t in enumerate(self.v) if t.dim() <= self.v[x].dim() and self.fits(t.shape, self.v[x].shape)]
        y = self.rng.choice(fitting)
        return f"v[{y}]", f"v[{y + 1}]"

    @staticmethod
    def fits(small, large):
        try:
            return torch.broadcast_shapes(small, large) == large
        except RuntimeError:
            return False

    def view(self, x):
        r, t = self.rng, self.v[x]
        kinds = ["unsqueeze", "as_strided", "view"]
        if t.dim():
            kinds += ["select", "narrow", "narrow", "slice", "transpose", "expand", "reshape", "flatten"]
        if t.dim() > 1:
            kinds += ["t", "diagonal", "transpose", "permute", "select"]
        kind, d = r.choice(kinds), r.randrange(max(t.dim(), 1))
        size = t.shape[d] if t.dim() else 1
        if kind == "unsqueeze":
            return f".unsqueeze({d})", f":unsqueeze({d})"
        if kind == "view":
            return (".view(-1)", ":view(-1)") if t.dim() else (".view(1)", ":view(1)")
        if kind == "flatten":
            return ".flatten()", ":flatten()"
        if kind == "reshape":
            return ".reshape(-1)", ":reshape(-1)"
        if kind == "select":
            i = r.randrange(-size, size)
            return f".select({d}, {i})", f":select({d}, {i})"
        if kind == "narrow":
            a = r.randrange(size)
            n = r.randint(1, size - a)
            return f".narrow({d}, {a}, {n})", f":narrow({d}, {a}, {n})"
        if kind == "slice":
            return "[..., ::2]", "['..., ::2']"
        if kind in ("transpose", "permute", "t"):
            if kind == "t" and t.dim() == 2:
                return ".t()", ":t()"
            return f".transpose({d}, -1)", f":transpose({d}, -1)"
        if kind == "diagonal":
            k = r.randint(-1, 1)
            return f".diagonal({k}, 0, -1)", f":diagonal({k}, 0, -1)"
        if kind == "expand":
            sizes = ", ".join(map(str, [2, *t.shape]))
            return f".expand({sizes})", f":expand({sizes})"
        total = t.untyped_storage().nbytes() // t.element_size()
        rank = r.randint(0, 2)
        sizes = [r.randint(1, 3) for _ in range(rank)]
        strides = [r.choice([1, 1, 2, 3, 4, 0]) for _ in range(rank)]
        offset = r.randint(0, 4)
        while sum((s - 1) * k for s, k in zip(sizes, strides)) + offset >= total:
            offset -= 1
            if offset < 0:
                sizes, strides, offset = [1] * rank, [1] * rank, 0
        args = [", ".join(map(str, a)) for a in (sizes, strides)]
        comma = "," if rank == 1 else ""
        if r.random() < 0.2:
            return (f".as_strided(({args[0]}{comma}), ({args[1]}{comma}))", f":as_strided({{{args[0]}}}, {{{args[1]}}})")
        return (f".as_strided(({args[0]}{comma}), ({args[1]}{comma}), {offset})",
                f":as_strided({{{args[0]}}}, {{{args[1]}}}, {offset})")

    def inplace(self, x):
        r, a, b = self.rng, f"v[{x}]", f"v[{x + 1}]"
        kind = r.random()
        if kind < 0.3:
            op = r.choice(UNARY)
            return f"{a}.{op}_()", f"{b}:{op}_()"
        if kind < 0.55:
            op = r.choice(BINARY if r.random() < 0.6 else ["add", "mul", "div", "sub"])
            p, l = self.other(x)
            if op in ("atan2", "hypot", "copysign") and not p.startswith("v"):
                op = "mul"
            return f"{a}.{op}_({p})", f"{b}:{op}_({l})"
        if kind < 0.75:
            p, l = r.choice(ACTIVATIONS)
            return p.format(x=a), l.format(x=b)
        p, l = self.other(x)
        p2, l2 = self.other(x)
        if not p.startswith("v") or not p2.startswith("v"):
            p2 = l2 = "0.5"
            if p.startswith("v"):
                p, l = "-0.5", "-0.5"
        mask = [r.random() < 0.5 for _ in range(self.v[x].shape[-1] if self.v[x].dim() else 1)]
        mp = f"torch.tensor({mask})" if self.v[x].dim() else f"torch.tensor({mask[0]})"
        ml = "lt.tensor({" + ", ".join(str(m).lower() for m in mask) + "})" if self.v[x].dim() else f"lt.tensor({str(mask[0]).lower()})"
        n = self.number()
        forms = [(f"{a}.clamp_({p}, {p2})", f"{b}:clamp_({l}, {l2})"), (f"{a}.clamp_({n})", f"{b}:clamp_({n})"),
                 (f"{a}.clamp_min_({p})", f"{b}:clamp_min_({l})"), (f"{a}.clamp_max_({p})", f"{b}:clamp_max_({l})"),
                 (f"{a}.masked_fill_({mp}, {n})", f"{b}:masked_fill_({ml}, {n})"), (f"{a}.fill_({n})", f"{b}:fill_({n})"),
                 (f"{a}.zero_()", f"{b}:zero_()"), (f"{a}.cumsum_(-1)", f"{b}:cumsum_(-1)"), (f"{a}.cumprod_(-1)", f"{b}:cumprod_(-1)")]
        if p.startswith("v"):
            forms += [(f"{a}.copy_({p})", f"{b}:copy_({l})")] * 4 + [(f"{a}.addcmul_({p}, {p2})", f"{b}:addcmul_({l}, {l2})")] * 2
            forms += [(f"{a}.addcdiv_({p}, {p2})", f"{b}:addcdiv_({l}, {l2})"), (f"{a}.lerp_({p}, {p2})", f"{b}:lerp_({l}, {l2})"),
                      (f"{a}.lerp_({p}, 0.3)", f"{b}:lerp_({l}, 0.3)"), (f"{a}.masked_fill_({mp}, {p})", f"{b}:masked_fill_({ml}, {l})")]
        if self.v[x].dim() > 1:
            forms += [(f"{a}.tril_()", f"{b}:tril_()"), (f"{a}.triu_(1)", f"{b}:triu_(1)")]
        if self.v[x].dim():
            d = r.randrange(self.v[x].dim())
            size = self.v[x].shape[d]
            at = [r.randrange(size) for _ in range(r.randint(1, 3))]
            ip, il = f"torch.tensor({at})", "lt.tensor({" + ", ".join(map(str, at)) + "}, {dtype = 'int64'})"
            fits = [i for i, t in enumerate(self.v) if t.dim() == self.v[x].dim() and all(
                t.shape[k] == (len(at) if k == d else self.v[x].shape[k]) for k in range(t.dim()))]
            forms += [(f"{a}.index_fill_({d}, {ip}, {n})", f"{b}:index_fill_({d}, {il}, {n})")]
            if fits:
                y = r.choice(fits)
                forms += [(f"{a}.index_add_({d}, {ip}, v[{y}])", f"{b}:index_add_({d}, {il}, v[{y + 1}])")] * 3
                if len(set(at)) == len(at):
                    forms += [(f"{a}.index_copy_({d}, {ip}, v[{y}])", f"{b}:index_copy_({d}, {il}, v[{y + 1}])")] * 2
        return r.choice(forms)

    def statement(self):
        """In Python and in Lua; the name that is assigned, if one is."""
        r = self.rng
        x = self.pick()
        kind = r.random()
        if kind < 0.27:
            p, l = self.view(x)
            return f"v[{x}]{p}", f"v[{x + 1}]{l}", True
        if kind < 0.7:
            p, l = self.inplace(x)
            return p, l, False
        if kind < 0.75:
            return f"v[{x}].detach()", f"v[{x + 1}]:detach()", True
        if kind < 0.78:
            p, l = self.inplace(x)
            return "no_grad " + p, f"lt.no_grad(function() {l} end)", False
        if kind < 0.9:
            op = r.choice(["clone", "sin", "exp", "sigmoid", "tanh", "relu", "sqrt", "abs"])
            return f"v[{x}].{op}()", f"v[{x + 1}]:{op}()", True
        p, l = self.other(x)
        sign = r.choice("+*-*")
        return f"v[{x}] {sign} {p}", f"v[{x + 1}] {sign} {l}", True

    @staticmethod
    def tame(ts):
        return all(bool(((t == t) & (t.abs() < 50)).all()) for t in ts)

    def run(self, python):
        off = python.startswith("no_grad ")
        with torch.set_grad_enabled(not off):
            return eval(python[8:] if off else python, self.names)

    @staticmethod
    def overlaps(t):
        """Whether a place may be shown twice: writes to such a tensor have no defined answer."""
        reached = 0
        for size, stride in sorted(((n, k) for n, k in zip(t.shape, t.stride()) if n > 1), key=lambda d: d[1]):
            if stride <= reached:
                return True
            reached += (size - 1) * stride
        return False

    def reads_written(self, python):
        """Whether an operand shares memory with what is written, in another layout: where that is not refused, PyTorch may
        read what it wrote."""
        target, *others = [self.v[int(n)] for n in re.findall(r"v\[(\d+)\]", python)]
        place = lambda t: (t.storage_offset(), t.shape, t.stride())
        return any(t.untyped_storage().data_ptr() == target.untyped_storage().data_ptr() and place(t) != place(target) for t in others)

    def step(self):
        for _ in range(20):
            p, l, assigns = self.statement()
            if not assigns and self.overlaps(self.v[int(p[p.index("v[") + 2:p.index("]")])]):
                continue
            # On copies first: values are to stay small.
            saved, bases = self.v[:], {}
            for t in self.v:
                s = t.untyped_storage()
                bases.setdefault(s.data_ptr(), torch.tensor(s.tolist(), dtype=torch.uint8).untyped_storage() if s.nbytes() else s)
            with torch.no_grad():
                trial = [torch.empty(0, dtype=t.dtype).set_(bases[t.untyped_storage().data_ptr()], t.storage_offset(), t.shape, t.stride())
                         for t in self.v]
                self.v[:] = trial
                try:
                    made = self.run(p)
                    good = self.tame(trial + ([made] if assigns else [])) and (assigns or not self.reads_written(p))
                except RuntimeError:
                    good = self.rng.random() < 0.2
                self.v[:] = saved
            if good:
                break
        else:
            return
        try:
            made = self.run(p)
            if assigns:
                self.v.append(made)
            self.lines.append(("s" if assigns else "w", l, True))
        except RuntimeError as error:
            # A view made before its base gained history is taken for a leaf until it is asked for its grad_fn.
            written = None if assigns else self.v[int(p[p.index("v[") + 2:p.index("]")])]
            if "a leaf Variable" in str(error) and written.grad_fn is not None:
                return
            self.lines.append(("s" if assigns else "w", l + "  " + str(error)[:70].replace("\n", " "), False))

    def write(self, out, name):
        r = self.rng
        shapes = [r.choice([(2, 3), (3, 3), (4,), (3, 2), (2, 2, 2)])] * 2 + [r.choice([(3,), (2, 3), (1,)]), (3, 4)]
        leaves = []
        for k, shape in enumerate(shapes):
            n = torch.Size(shape).numel()
            values = [round(r.uniform(0.1, 0.9) if r.random() < 0.7 else r.uniform(-2, 2), 3) for _ in range(n)]
            t = torch.tensor(values, dtype=torch.float64).reshape(shape).clone()
            t.requires_grad_(k < 2)
            self.v.append(t)
            leaves.append("{" + ", ".join(map(str, shape)) + "}, {" + ", ".join(map(str, values)) + "}")
        for k in range(2):
            self.v.append(self.v[k] * 1)
            self.lines.append(("s", f"v[{k + 1}] * 1", True))
        for _ in range(r.randint(3, 9)):
            self.step()
        roots = [i for i in range(4, len(self.v)) if self.v[i].requires_grad]
        roots = r.sample(roots, r.randint(1, len(roots)))
        flags = "".join("1" if t.requires_grad else "0" for t in self.v)
        values = ";".join(text(t) for t in self.v)
        shapes_text = ";".join(",".join(map(str, t.shape)) for t in self.v)
        try:
            loss = sum((self.v[i] * (k + 1)).sum() for k, i in enumerate(roots))
            loss.backward()
            grads = '"' + ";".join("none" if t.grad is None else text(t.grad) for t in self.v[:2]) + '"'
        except RuntimeError:
            grads = "'any'" if any(op in l for _, l, _ in self.lines for op in KEEPS_MORE) else "nil"
        out.write(f'p("{name}", {{{", ".join(leaves)}}}, {{\n')
        for kind, l, works in self.lines:
            code, _, refused = l.partition("  ")
            body = f"return {code}" if kind == "s" else code
            why = refused and f" -- {refused}"
            out.write(f"  {{'{kind}', {str(works).lower()}, function(lt, v) {body} end}},{why}\n")
        out.write(f'}}, {{{", ".join(str(i + 1) for i in roots)}}}, "{flags}", "{shapes_text}",\n  "{values}",\n  {grads})\n')


def main():
    seed, count, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    with open(path, "w") as out:
        out.write("local p = ...\n")
        for i in range(count):
            Program(random.Random(seed * 1000003 + i)).write(out, f"{seed}.{i}")


main()
