"""Samples of PyTorch's own tests (op_db) that nobody of us chose: op_samples.py SEED FILE [op...] writes calls with PyTorch's answers.

Each op that Lutra may have, in each dtype: its sample inputs, the same strided and expanded, as methods, in place, with out= (right, empty, strided,
of another dtype, of another shape), its error inputs, and mutations of all these (an argument more, less, of another kind, dtype or shape).
A line of FILE is a Lua table: op, kind, code over I[1], I[2] ..., inputs, results or error.
"""
import json
import math
import os
import random
import sys
import types
import warnings
import zlib

warnings.simplefilter("ignore")
sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=object))  # op_db's module asks for it, its samples do not
import torch
from torch.testing._internal.common_methods_invocations import op_db

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
WORDS = {"and", "end", "repeat", "or", "not", "in", "function", "if", "for", "while", "do", "local", "nil", "return", "then", "until", "from"}
RANDOM = ("rand", "bernoulli", "multinomial", "normal", "empty", "new_empty", "nn.functional.dropout", "nn.functional.alpha_dropout",
          "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "nn.functional.fractional_max_pool2d", "resize_", "nn.functional.scaled_dot_product_attention")
LEFT_OUT = ("_", "torch.", "jiterator", "sparse.", "masked.", "fft.", "signal.", "linalg.lu", "to_sparse", "cdouble", "cfloat", "chalf",
            "lu_unpack", "native_batch_norm", "triu", "gradient")


class NotWritten(Exception):
    """What Lua has no word for: complex numbers, layouts, Python's own types."""


def number(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if v != v:
        return "nan"
    if v in (math.inf, -math.inf):
        return "inf" if v > 0 else "-inf"
    if isinstance(v, int):
        return "(-9223372036854775807LL-1)" if v == -2**63 else repr(v) + ("LL" if abs(v) >= 2**53 else "")
    return "-0.0" if v == 0 and math.copysign(1, v) < 0 else f"{v:.17g}"


def storage(t):
    """The elements of t's memory from its first to its last, in order."""
    extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
    return t.as_strided((extent,), (1,), t.storage_offset())


def tensor_text(t, layout=True):
    if t.dtype not in DTYPES or t.layout != torch.strided or t.numel() > 5000:
        raise NotWritten
    t = torch.zeros(t.shape, dtype=t.dtype) if t._is_zerotensor() else t.detach()
    strides = layout and t.numel() and not t.is_contiguous()
    values = (storage(t) if strides else t.reshape(-1)).tolist()
    fields = [f'dtype="{str(t.dtype)[6:]}"', f'shape={{{",".join(map(str, t.shape))}}}']
    if strides:
        fields.append(f'strides={{{",".join(map(str, t.stride()))}}}')
    return "{" + ",".join(fields + list(map(number, values))) + "}"


def lua(v, tensors):
    if isinstance(v, torch.Tensor):
        at = next((i for i, x in enumerate(tensors) if x is v), len(tensors))
        if at == len(tensors):
            tensors.append(v)
        return f"I[{at + 1}]"
    if v is None:
        return "nil"
    if isinstance(v, (bool, int, float)):
        return number(v)
    if isinstance(v, str):
        return json.dumps(v)
    if isinstance(v, (list, tuple)) and not any(x is None for x in v):
        return "{" + ",".join(lua(x, tensors) for x in v) + "}"
    if isinstance(v, torch.dtype) and v in DTYPES or isinstance(v, torch.memory_format):
        return '"' + str(v)[6:] + '"'
    raise NotWritten


def call_text(name, args, kwargs, tensors, method):
    parts = [lua(a, tensors) for a in args]
    keys = [(f'["{k}"]' if k in WORDS else k) + "=" + lua(v, tensors) for k, v in kwargs.items() if k not in ("layout", "pin_memory", "device")]
    if keys:
        parts.append("{" + ",".join(keys) + "}")
    path = "lt" + "".join(f'["{p}"]' if p in WORDS else "." + p for p in name.split("."))
    if not method or name in WORDS:
        return f'{path}({",".join(parts)})'
    if not (parts and parts[0].startswith("I[")):
        raise NotWritten
    return f'{parts[0]}:{name}({",".join(parts[1:])})'


def mapped(v, f):
    if isinstance(v, torch.Tensor):
        return f(v)
    return [mapped(x, f) for x in v] if isinstance(v, (list, tuple)) else v


def copied(t):
    if not t.numel() or t.layout != torch.strided:
        return t.detach().clone()
    return storage(t.detach()).clone().as_strided(t.shape, t.stride(), 0)


def memory_text(x, inputs):
    """Which input x lies in the memory of, how many bytes behind its first element, and how."""
    for i, t in enumerate(inputs):
        if x.numel() and t.numel() and x.layout == torch.strided and x.untyped_storage().data_ptr() == t.untyped_storage().data_ptr():
            return f'of={i + 1},behind={x.data_ptr() - t.data_ptr()},laid={{{",".join(map(str, x.stride()))}}},'
    return ""


def results_text(r, inputs=()):
    flat = []
    for x in r if isinstance(r, (list, tuple)) else [r]:
        flat += x if isinstance(x, (list, tuple)) else [x]
    texts = []
    for x in flat:
        if isinstance(x, torch.Tensor):
            texts.append("{" + memory_text(x, inputs) + tensor_text(x, False)[1:])
        elif isinstance(x, (bool, int, float)):
            texts.append(number(x))
        elif x is None:
            texts.append("false")
        else:
            raise NotWritten
    return "{" + ",".join(texts) + "}"


def whole(v):
    """Lua has one kind of number: 2.0 is 2."""
    if isinstance(v, (list, tuple)):
        return type(v)(map(whole, v)) if type(v) in (list, tuple) else v
    return int(v) if isinstance(v, float) and math.isfinite(v) and v == int(v) else v


def floats(v):
    return float(v) if isinstance(v, int) and not isinstance(v, bool) else v


# Ops that may choose among equal elements: where their dim stands.
CHOICES = {"sort": 1, "argsort": 1, "msort": None, "topk": 2, "kthvalue": 2, "median": 1, "nanmedian": 1, "mode": 1}


def ties_text(op, args, kwargs):
    """The dim along which a result's positions may be others, as long as the elements there are equal."""
    name = op.rstrip("_")
    if name not in CHOICES or kwargs.get("stable") or not isinstance(args[0], torch.Tensor):
        return ""
    at = CHOICES[name]
    dim = kwargs.get("dim", args[at] if at is not None and at < len(args) else -1)
    return f",ties={int(dim)}" if args[0].dim() else ""


class Writer:
    def __init__(self, out, op):
        self.out, self.op, self.seen = out, op, set()
        self.random = op.startswith(RANDOM)

    def run(self, f, args, kwargs):
        self.copies = []  # of each tensor one

        def copy(t):
            known = next((c for o, c in self.copies if o is t), None)
            if known is None:
                known = copied(t)
                self.copies.append((t, known))
            return known

        args, kwargs = [mapped(a, copy) for a in args], {k: mapped(v, copy) for k, v in kwargs.items()}
        torch.manual_seed(0)
        try:
            return f(*args, **kwargs), None
        except Exception as e:  # whatever PyTorch says no with
            return None, f"{type(e).__name__} {e}"[:150]

    def __call__(self, kind, f, name, args, kwargs, method=False):
        tensors = []
        try:
            code = call_text(name, args, kwargs, tensors, method)
            inputs = ",".join(map(tensor_text, tensors))
            if (code, inputs) in self.seen:
                return
            self.seen.add((code, inputs))
            result, error = self.run(f, args, kwargs)
            if error and kind == "mutated" and "nil" in code:
                return  # nil is what is not given
            written = [next(c for o, c in self.copies if o is t) for t in tensors] if not error else []
            if self.op == "topk" and not error and not kwargs.get("sorted", args[4] if len(args) > 4 else True):
                return  # in any order
            answers = [] if error else [results_text(result, written)]
            for change in (whole, floats) if self.op in ("full", "where", "scalar_tensor") else (whole,):
                other, no = self.run(f, [change(a) for a in args], {k: change(v) for k, v in kwargs.items()})
                if error and not no:
                    return  # Lua cannot say 2.0 for what must not be 2
                if not no:
                    written = [next((c for o, c in self.copies if o is t), t) for t in tensors]
                    answers.append(results_text(other, written))
        except NotWritten:
            return
        answers = list(dict.fromkeys(answers))
        what = f"error={json.dumps(error)}" if error else f'answers={{{",".join(answers)}}}{ties_text(self.op, args, kwargs)}'
        line = f'{{op="{self.op}",kind="{kind}",random={str(bool(self.random)).lower()},code=[==[{code}]==],inputs={{{inputs}}},{what}}}'
        self.out.write(line.replace("\n", " ") + "\n")


def strided(rng):
    def change(t):
        if t.dim() == 0 or t.numel() == 0:
            return t
        t = t.detach()
        if rng.randrange(2) and t.dim() > 1:
            order = rng.sample(range(t.dim()), t.dim())
            return t.permute(order).contiguous().permute([order.index(i) for i in range(t.dim())])
        d = rng.randrange(t.dim())
        return torch.stack([t, t.flip(0)], d + 1).flatten(d, d + 1)[(slice(None),) * d + (slice(None, None, 2),)]
    return change


def expanded(rng):
    def change(t):
        if t.dim() == 0 or t.numel() == 0:
            return t
        d = rng.randrange(t.dim())
        return t.detach().select(d, 0).unsqueeze(d).expand(t.shape)
    return change


def mutated_value(v, rng):
    if isinstance(v, torch.Tensor):
        t = v.detach()
        ways = [t.unsqueeze(0), t.to(rng.choice(DTYPES)), t.reshape(-1)[:1], rng.choice([2, 0.5, True, -1]), torch.cat([t, t]) if t.dim() else t.expand(2)]
        if t.dim():
            ways += [t[:0], t.narrow(-1, 0, max(t.shape[-1] - 1, 0)), t.sum(0, dtype=t.dtype) if t.dtype != torch.bool else t.any(0)]
        return rng.choice(ways)
    if isinstance(v, bool):
        return not v
    if isinstance(v, int):
        return rng.choice([v + 1, v - 1, -v, 0, 7, -7, 0.5, torch.tensor(v), True, [v]])
    if isinstance(v, float):
        return rng.choice([v + 1, -v, 0.0, 3, torch.tensor(v), math.nan])
    if isinstance(v, str):
        return rng.choice([v + "x", "sum", "none"])
    if isinstance(v, torch.dtype):
        return rng.choice(DTYPES)
    if isinstance(v, (list, tuple)) and v:
        at = rng.randrange(len(v))
        return rng.choice([list(v[:-1]), list(v) + [v[-1]], v[0], list(v[:at]) + [mutated_value(v[at], rng)] + list(v[at + 1:])])
    return v


def mutated(args, kwargs, rng):
    args, kwargs = list(args), dict(kwargs)
    slot = rng.choice(list(range(len(args))) + list(kwargs) + [None])
    if slot is None:
        return (args[:-1] if rng.randrange(2) else args + [1]), kwargs
    where = args if isinstance(slot, int) else kwargs
    where[slot] = mutated_value(where[slot], rng)
    return args, kwargs


def out_forms(write, f, name, args, kwargs, rng):
    result, error = write.run(f, args, kwargs)
    many = isinstance(result, (list, tuple))
    parts = list(result) if many else [result]
    if error or not all(isinstance(x, torch.Tensor) and x.dtype in DTYPES for x in parts):
        return
    forms = {"out": lambda x: torch.zeros(x.shape, dtype=x.dtype), "out empty": lambda x: torch.empty(0, dtype=x.dtype),
             "out strided": lambda x: strided(rng)(torch.zeros(x.shape, dtype=x.dtype)),
             "out dtype": lambda x: torch.zeros(x.shape, dtype=rng.choice(DTYPES)),
             "out shape": lambda x: torch.zeros((*x.shape, 2), dtype=x.dtype)}
    outs = {kind: tuple(map(make, parts)) if many else make(result) for kind, make in forms.items()}
    if write.run(f, args, {**kwargs, "out": outs["out"]})[1]:
        return  # PyTorch has no out= there
    for kind, out in outs.items():
        write(kind, f, name, args, {**kwargs, "out": out})


def samples(generator, most, rng):
    found = []
    try:
        for s in generator:
            found.append(((s.input, *s.args), dict(s.kwargs)))
            if len(found) == 200:
                break
    except Exception:  # samples of other devices
        pass
    return rng.sample(found, min(most, len(found)))


def write_op(op, write, rng):
    name, function = op.name, torch
    try:
        for part in name.split("."):
            function = getattr(function, part)
    except AttributeError:
        function = None
    of_tensor = getattr(torch.Tensor, name, None) if "." not in name else None
    inplace = getattr(torch.Tensor, name + "_", None) if of_tensor and op.inplace_variant else None
    f, method = (function, False) if function else (of_tensor, True)
    if f is None:
        return
    pool = []
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for i, (args, kwargs) in enumerate(samples(op.sample_inputs("cpu", dtype, requires_grad=False), 8, rng)):
            pool.append((args, kwargs))
            write("base", f, name, args, kwargs, method)
            if i >= 2:
                continue
            for kind, change in (("strided", strided(rng)), ("expanded", expanded(rng))):
                write(kind, f, name, mapped(args, change), {k: mapped(v, change) for k, v in kwargs.items()}, method)
            if function and of_tensor and isinstance(args[0], torch.Tensor):
                write("method", of_tensor, name, args, kwargs, True)
            if inplace and isinstance(args[0], torch.Tensor):
                write("inplace", inplace, name + "_", mapped(args, strided(rng)), kwargs, True)
            if op.supports_out and function:
                out_forms(write, f, name, args, kwargs, rng)
    for args, kwargs in samples(op.error_inputs("cpu"), 40, rng) if op.error_inputs_func else []:
        write("error", f, name, args, kwargs, method)
    for _ in range(30 if pool else 0):
        try:
            args, kwargs = mutated(*rng.choice(pool), rng)
        except Exception:  # a mutation that PyTorch itself cannot make
            continue
        write("mutated", f, name, args, kwargs, method)


def main():
    seed, path, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    torch.set_num_threads(1)
    with open(path, "w") as out:
        for op in op_db:
            if op.name.startswith(LEFT_OUT) or wanted and op.name not in wanted:
                continue
            key = zlib.crc32(f"{seed} {op.name} {op.variant_test_name}".encode())
            torch.manual_seed(key)
            write_op(op, Writer(out, op.name), random.Random(key))
    out.close()
    os._exit(0)  # op_db leaves threads behind


if __name__ == "__main__":
    main()
