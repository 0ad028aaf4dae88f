"""Random calls by PyTorch's own schemas: call_samples.py SEED FILE [name...] writes them with PyTorch's answers, as op_samples.py does.

Each function of torch, Tensor, nn.functional, linalg and special that Lutra may have, in each overload: each argument positional, by keyword or left out; every
dtype; permuted, sliced, expanded, overlapping and offset tensors, empty and 0-dim ones; numbers as 0-dim tensors; in-place forms; out= of other
shapes and layouts and on the inputs' own memory. The samples of op_db with arguments named, defaults said, and with gradients. Which results share
memory with which input is recorded, too.
"""
import inspect
import itertools
import os
import random
import re
import sys
import zlib

import op_samples as base
import torch
from op_samples import DTYPES, NotWritten, Writer, copied, lua, mapped, samples, tensor_text
from torch.testing._internal.common_methods_invocations import op_db

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SHAPES = [(), (1,), (3,), (5,), (0,), (2, 3), (3, 3), (3, 1), (1, 4), (2, 0), (2, 3, 4), (2, 1, 3), (1, 2, 3, 3), (2, 2, 4, 5)]
# What differs by nature: state, devices, types that Lua lacks, names of dimensions.
ANYWHERE = r"""
    ^_ sparse quant cuda mkldnn fbgemm fft storage names?$ named complex cudnn miopen batch_norm_ native_ nested
    conv_tbc
""".split()
AT_THE_BEGINNING = r"""
    is_ has to_ from_ as_tensor asarray frombuffer tensor$ set_ get_ use_ seed initial_seed manual_seed save
    load compile cond$ vmap while_loop Generator data$ apply_ map_ map2_ module_load retain_grad register
    backward share pin record_stream numpy tolist element_size dense dim_order storage_offset layout untyped
    type$ new$ new_tensor empty new_empty resize gru lstm rnn embedding_renorm geqrf from_dlpack stft istft
    align refine rename crow col_indices ccol row_indices values indices$ coalesce q_ int_repr dequantize
    result_type can_cast promote set_num unsafe unify device requires_grad detach_$ __ sym_
    slice_inverse mH H$ T$ mT nonzero_static binomial poisson$ imag real view_as_ chalf
    cfloat cdouble triangular_solve ormqr orgqr lu qr svd cholesky inverse logdet det$ slogdet pinverse solve
    eig lstsq ldl inv cond householder matrix_rank tensorinv pca lobpcg multi_head boolean_dispatch
    handle_torch has_torch reduce_op normalize_op Optional Union Callable adaptive_max_pool3d .*3d ctc assert
    autocast_ import_ parse_ clear_ init_num merge_ read_v vitals wait fork choose_ dsmm hsmm hspmm saddmm smm
    spmm sspaddmm data_ptr reinforce ipu xpu mtia symeig qscheme as_subclass scaled_ grouped_ native
    numel$ size$ stride$ index$ item$ indices_copy affine_grid_gen feature_dropout grid_sampler
""".split()
LEFT_OUT = re.compile("|".join(ANYWHERE) + "|^(" + "|".join(AT_THE_BEGINNING) + ")")
DRAWS = re.compile("dropout|^rand|rrelu|gumbel|(random|uniform|normal|bernoulli|exponential|geometric|cauchy)_$|empty|fractional")
INDEX = {"index", "indices", "target", "input_index"}


NOT_WRITTEN = "NotImplementedError|not implemented for|nternal|omplex|not support|ot yet|0-d tensor|Unsupported (input type|dtype)"
# What docs/from_pytorch.md says Lutra takes on purpose: other names of keywords, one number for a list,
# int32 positions.
PERMITTED = ("unexpected keyword|missing 1 required|combination of arguments|tuple of ints, not|long tensor for index|should be Long|"
             "dtype int64 for index|expected Tensor as element 0 in argument 0, but got list")
NUMBERS = {"linspace", "logspace"}  # of tensors, which must not require grad in Lutra
IGNORED = {"sparse_grad", "implicit", "cudnn_enabled", "size_average", "reduce_", "_stacklevel"}


def numbers(rng, whole):
    if whole:
        return rng.choice([0, 1, 2, 3, -1, -2, 1, 2])
    return rng.choice([0, 1, 2, -1, 0.5, -1.5, 3, 0.25, 2.0, True, float("inf"), float("nan")] + [1, 2, 0.5, 0.75] * 2)


def laid_out(t, rng):
    """The same elements, or the same shape over less memory."""
    way = rng.randrange(8)
    if way < 3 or not t.numel() or not t.dim():
        return t
    if way == 3 and t.dim() > 1:
        order = rng.sample(range(t.dim()), t.dim())
        return t.permute(order).contiguous().permute([order.index(i) for i in range(t.dim())])
    if way == 4:
        return torch.stack([t, t.flip(0)], t.dim()).select(-1, 0)
    if way == 5:
        return torch.cat([t, t])[t.shape[0]:]
    if way == 6:
        d = rng.randrange(t.dim())
        return t.select(d, 0).unsqueeze(d).expand(t.shape)
    return t.reshape(-1).as_strided(t.shape, [1] * t.dim())  # windows that overlap


class Drawer:
    """Values for the arguments of one call, which go together more often than not."""

    def __init__(self, rng, words):
        self.rng, self.words = rng, words
        self.shape, self.dtype = rng.choice(SHAPES), rng.choice(DTYPES + FLOATS)

    def tensor(self, name, shape=None, dtype=None):
        rng = self.rng
        if shape is None:
            shape = self.shape
            way = rng.randrange(12)
            if way == 0:
                shape = rng.choice(SHAPES)
            elif way == 1:
                shape = tuple(1 if rng.randrange(2) else n for n in shape)
            elif way == 2:
                shape = shape[1:]
            elif way == 3 and len(shape) > 1:
                shape = shape[:-2] + shape[-1:] + shape[-2:-1]
        if name in INDEX:
            most = max(self.shape or (1,)) if rng.randrange(8) == 0 else min(self.shape or (1,))
            dtype = dtype or rng.choice([torch.int64] * 6 + [torch.int32])
            return laid_out(torch.randint(-max(most, 1) if rng.randrange(10) == 0 else 0, max(most, 1), shape, dtype=dtype), rng)
        if name in ("mask", "condition"):
            return laid_out(torch.randint(0, 2, shape, dtype=torch.bool if rng.randrange(8) else rng.choice(DTYPES)), rng)
        dtype = dtype or (self.dtype if rng.randrange(5) else rng.choice(DTYPES))
        if dtype == torch.bool:
            t = torch.randint(0, 2, shape, dtype=dtype)
        elif dtype in FLOATS:
            t = torch.randn(shape, dtype=torch.float64) * rng.choice([1, 1, 3])
            if t.numel() and rng.randrange(6) == 0:
                t.view(-1)[rng.randrange(t.numel())] = rng.choice([0.0, -0.0, float("inf"), float("-inf"), float("nan")])
            t = t.to(dtype)
        else:
            t = torch.randint(0 if dtype == torch.uint8 else -5, 6, shape, dtype=dtype)
        return laid_out(t, rng)

    def number(self, name, whole):
        rng, rank = self.rng, len(self.shape)
        if name.startswith(("dim", "axis")) or name in ("start_dim", "end_dim", "source", "destination"):
            return rng.randrange(-rank - (rng.randrange(6) == 0), rank + (rng.randrange(6) == 0)) if rank else rng.choice([0, -1, 0, -1, 1])
        if name in ("quant_min", "low"):
            return 0
        if name in ("quant_max", "high", "n", "steps", "num_classes", "bins"):
            return rng.choice([3, 5, 7, 1, 0, -1])
        return numbers(rng, whole)

    def integers(self, name):
        rng, rank = self.rng, len(self.shape)
        if name.startswith(("dim", "axis")) or name in ("source", "destination"):
            if name == "dims" and rng.randrange(2):
                return rng.sample(range(rank), rank)
            return [d - rank * rng.randrange(2) for d in rng.sample(range(rank), rng.randrange(rank + 1))]
        if name in ("size", "shape", "normalized_shape", "sizes"):
            return rng.choice([list(self.shape), [-1], list(self.shape[::-1]), [2] + list(self.shape), list(self.shape[-1:]), [-1] * (rank > 0) + list(self.shape[1:]), [2, 3], []])
        return [rng.choice([1, 1, 2, 2, 3, 0, -1]) for _ in range(rng.choice([rank, rank, 1, 2, 2]))]

    def value(self, name, kind):
        rng = self.rng
        if kind.startswith("Optional"):
            if rng.randrange(3) == 0:
                return None
            kind = kind[9:-1]
        if kind == "Tensor":
            return numbers(rng, False) if rng.randrange(25) == 0 else self.tensor(name)
        if kind == "List[Tensor]":
            return [self.tensor(name) for _ in range(rng.choice([1, 2, 2, 3, 0] if rng.randrange(8) == 0 else [1, 2, 3]))]
        if kind in ("int", "SymInt"):
            v = self.number(name, True)
            return torch.tensor(v) if rng.randrange(20) == 0 else v
        if kind in ("number", "float", "Scalar"):
            v = self.number(name, False)
            if kind == "float" and v is True or v != v and name not in ("other", "value", "fill_value"):
                v = 1  # PyTorch's kernels differ in what they make of NaN as a bound or an exponent
            finite = v == v and abs(v) < 4
            return torch.tensor(v, dtype=rng.choice([None, None, None, *DTYPES]) if finite and v >= 0 else None) if rng.randrange(12) == 0 else v
        if kind in ("List[int]", "List[SymInt]"):
            return self.integers(name) if rng.randrange(6) else self.number(name, True)
        if kind == "bool":
            return bool(rng.randrange(2))
        if kind == "dtype":
            return rng.choice(DTYPES)
        if kind == "str":
            return rng.choice(self.words)
        raise NotWritten


def argument_kind(a, schema_text):
    kind = str(a.type)
    if re.search(r"ScalarType\?? " + a.name + r"\b", schema_text):
        return "dtype" if kind == "int" else "Optional[dtype]"
    if re.search(r"(Layout|Device|MemoryFormat|Generator)\?? " + a.name + r"\b", schema_text) or a.name == "pin_memory":
        return None
    return kind


class Signature:
    """One overload: rows of name, kind, whether it is needed, whether it stands by keyword only, default."""

    def __init__(self, rows):
        self.rows = rows

    @staticmethod
    def of_schema(s):
        text = str(s)
        if re.search(r"str(\[\d*\])?\??\]? (dim|names?|axis|out_dim)\b|hacked_twin|prim_|\bt\[\]|Dimname", text):
            return None
        rows = []
        for a in s.arguments:
            kind = argument_kind(a, text)
            if a.is_out or (kind and "complex" in kind):
                return None
            if kind and a.name not in IGNORED:
                rows.append((a.name, kind, not a.has_default_value(), a.kwarg_only or a.name == "alpha", a.default_value))
        if not rows or not any("Tensor" in r[1] for r in rows) and "-> Tensor" not in text:
            return None
        return Signature(rows)

    @staticmethod
    def of_python(f):
        rows = []
        try:
            for p in inspect.signature(f).parameters.values():
                kind = str(p.annotation)
                kind = re.sub(r"<class '(.*)'>", r"\1", kind).replace("torch.", "").replace("typing.", "").replace("_tensor.", "")
                kind = re.sub(r"(\w+) \| None", r"Optional[\1]", kind)
                kind = re.sub(r"BroadcastingList\d(\[int\])?", "List[int]", kind)
                if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) or kind == "inspect._empty":
                    return None
                rows.append((p.name, kind, p.default is p.empty, p.kind == p.KEYWORD_ONLY, p.default))
        except (TypeError, ValueError):
            return None
        kept, keyword = [], False
        for name, kind, needed, only, default in rows:
            lacks = ("_stacklevel", "size_average", "reduce", *(["weight"] if name == rows[-1][0] else []))
            if name in lacks and not needed:
                keyword = True  # Lutra lacks it: what follows has another place
            else:
                kept.append((name, kind, needed, only or keyword, default))
        return Signature(kept)


def signatures(name, f):
    last = name.replace("nn.functional.", "").replace("linalg.", "linalg_").replace("special.", "special_")
    found = [Signature.of_schema(s) for s in torch._C._jit_get_schemas_for_operator("aten::" + last)]
    found = [s for s in found if s]
    if inspect.isfunction(f) and name.startswith("nn.functional."):
        found = [Signature.of_python(f)]
    return [s for s in found if s]


def drawn(signature, rng, words, function):
    draw, args, kwargs, positional = Drawer(rng, words), [], {}, True
    for i, (name, kind, needed, keyword, default) in enumerate(signature.rows):
        if not needed and rng.randrange(2):
            positional = False
            continue
        value = draw.value(name, kind)
        if keyword or not positional or i and rng.randrange(4) == 0:
            positional = False
            kwargs["input" if name == "self" and function else name] = value
        else:
            args.append(value)
    return args, kwargs


def renamed(args, kwargs, signature, rng):
    """The same call with arguments named in another order, and with some defaults said."""
    rows = signature.rows
    if len(args) > len(rows) or any(r[3] for r in rows[:len(args)]):
        return None
    keep = rng.randrange(1, len(args) + 1)
    named = {r[0]: v for r, v in zip(rows[keep:], args[keep:])}
    for name, kind, needed, _, default in rows[len(args):]:
        if not needed and name not in kwargs and rng.randrange(2) and kind not in ("Optional[dtype]",):
            named[name] = default
    named.update(kwargs)
    order = list(named)
    rng.shuffle(order)
    return list(args[:keep]), {k: named[k] for k in order}


def numbers_as_tensors(v, rng):
    if isinstance(v, (list, tuple)) and v and all(isinstance(x, int) for x in v):
        return [torch.tensor(x) for x in v]
    return torch.tensor(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else v


def dense_copy(t):
    return t.detach().clone(memory_format=torch.contiguous_format)


def same(x, y):
    """The same elements or nearly so; positions may be others."""
    if x.shape != y.shape or x.dtype == y.dtype == torch.int64:
        return True
    return torch.allclose(x.double(), y.double(), 2e-2, 2e-2, equal_nan=True)


def windows(t):
    """Whether PyTorch may write an element of t several times without seeing it."""
    return t.numel() and not 0 in t.stride() and t.numel() > 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))


class CallWriter(Writer):
    """Writes a call like Writer, with what results share memory, or with gradients."""

    def __call__(self, kind, f, name, args, kwargs, method=False):
        result, error = self.run(f, args, kwargs)
        if error and re.search(f"{NOT_WRITTEN}|{PERMITTED}", error):
            return False
        if not error and not self.random and kind not in ("drawn in place", "out call") and not self.stands(result, f, args, kwargs):
            return False
        super().__call__(kind, f, name, args, kwargs, method)
        return not error

    def stands(self, result, f, args, kwargs):
        """Whether PyTorch gives the same for the same inputs one behind the other: some of its kernels misread memory that overlaps."""
        dense, error = self.run(f, [mapped(a, dense_copy) for a in args], {k: mapped(v, dense_copy) for k, v in kwargs.items()})
        pair = [r if isinstance(r, (list, tuple)) else [r] for r in (result, dense)]
        return self.op.startswith("as_strided") or not error and all(same(x, y) for x, y in zip(*pair) if isinstance(x, torch.Tensor))

    def gradients(self, f, name, args, kwargs, method):
        leaves = []

        def leaf(t):
            known = next((c for o, c in leaves if o is t), None)
            if known is None:
                known = copied(t)
                if t.is_floating_point():
                    known.requires_grad_()
                leaves.append((t, known))
            return known
        try:
            own_args, own_kwargs, tensors = [mapped(a, leaf) for a in args], {k: mapped(v, leaf) for k, v in kwargs.items()}, []
            code = base.call_text(name, args, kwargs, tensors, method)
            result = f(*own_args, **own_kwargs)
            flat = list(result) if isinstance(result, (list, tuple)) else [result]
            if not all(isinstance(r, torch.Tensor) for r in flat):
                return
            grads_of = [torch.linspace(-1, 2, r.numel(), dtype=torch.float64).reshape(r.shape).to(r.dtype) if r.requires_grad else None for r in flat]
            own = [next(c for o, c in leaves if o is t) for t in tensors]
            wanted = [t for t in own if t.requires_grad]
            outs = [(r, g) for r, g in zip(flat, grads_of) if g is not None]
            if not wanted:
                return
            grads = iter(torch.autograd.grad([r for r, _ in outs], wanted, [g for _, g in outs], allow_unused=True) if outs else [None] * len(wanted))
            texts = ["false" if not t.requires_grad else (lambda g: "false" if g is None else tensor_text(g, False))(next(grads)) for t in own]
            inputs = ",".join(map(tensor_text, tensors))
            cotangents = ",".join("false" if g is None else tensor_text(g, False) for g in grads_of)
            line = (f'{{op="{self.op}",kind="gradient",random=false,code=[==[{code}]==],inputs={{{inputs}}},cotangents={{{cotangents}}},'
                    f'grads={{{",".join(texts)}}},answers={{{base.results_text(result, own)}}}{base.ties_text(self.op, args, kwargs)}}}')
        except Exception:  # whatever PyTorch says no with
            return
        self.out.write(line.replace("\n", " ") + "\n")


def out_calls(write, f, name, args, kwargs, rng):
    result, error = write.run(f, args, kwargs)
    if error or not isinstance(result, torch.Tensor) or result.dtype not in DTYPES:
        return
    if write.run(f, args, {**kwargs, "out": torch.empty(0, dtype=result.dtype)})[1]:
        return
    zeros = torch.zeros(result.shape, dtype=result.dtype)
    outs = [base.strided(rng)(zeros), torch.zeros(result.shape, dtype=rng.choice(DTYPES)), torch.zeros((2, *result.shape), dtype=result.dtype)[1]]
    outs += [a for a in args if isinstance(a, torch.Tensor) and a.shape == result.shape and not windows(a)]
    for out in outs:
        given, error = write.run(f, args, {**kwargs, "out": out})
        if error or same(given, result):  # some kernels of PyTorch read what they have written
            write("out call", f, name, args, {**kwargs, "out": out})


def write_calls(name, f, method, write, rng, words):
    """Drawn calls of each overload: as many as PyTorch accepts, fewer that it refuses."""
    for signature in signatures(name, f):
        accepted = refused = 0
        for _ in range(100):
            if accepted == 8:
                break
            try:
                args, kwargs = drawn(signature, rng, words, not method)
            except NotWritten:
                break
            if method and not (args and isinstance(args[0], torch.Tensor)):
                continue
            if method and name.endswith("_") and (windows(args[0]) or 0 in args[0].stride()):
                continue
            fits = not write.run(f, args, kwargs)[1]
            if not fits and refused >= 3:
                continue
            kind = "drawn" if not method else "drawn in place" if name.endswith("_") else "drawn method"
            write(kind, f, name, args, kwargs, method)
            accepted, refused = accepted + fits, refused + (not fits)
            if fits and not method and accepted % 4 == 0:
                out_calls(write, f, name, args, kwargs, rng)


def write_samples(op, name, f, method, write, rng):
    found = signatures(name, f)
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for args, kwargs in samples(op.sample_inputs("cpu", dtype, requires_grad=False), 3, rng):
            if dtype in FLOATS and not write.random and name not in NUMBERS:
                write.gradients(f, name, args, kwargs, method)
            for signature in found[:1]:
                again = renamed(args, kwargs, signature, rng)
                if again:
                    write("named", f, name, *again, method)
            tensors = [numbers_as_tensors(a, rng) for a in args], {k: numbers_as_tensors(v, rng) for k, v in kwargs.items() if not isinstance(v, bool)}
            write("tensors for numbers", f, name, *tensors, method)
    for args, kwargs in samples(op.error_inputs("cpu"), 60, rng) if op.error_inputs_func else []:
        write("error", f, name, args, kwargs, method)


def functions():
    """name, function, whether it is a method."""
    for module, prefix in ((torch, ""), (torch.nn.functional, "nn.functional."), (torch.linalg, "linalg."), (torch.special, "special.")):
        for key in sorted(dir(module)):
            f = getattr(module, key)
            if callable(f) and not inspect.isclass(f) and not LEFT_OUT.search(key) and (prefix or not inspect.isfunction(f) or signatures(key, f)):
                if prefix or not hasattr(torch.nn.functional, key):
                    yield prefix + key, f, False
    for key in sorted(dir(torch.Tensor)):
        if callable(getattr(torch.Tensor, key)) and not LEFT_OUT.search(key):
            yield key, getattr(torch.Tensor, key), True


def main():
    seed, path, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    torch.set_num_threads(1)
    infos = {}
    for op in op_db:
        infos.setdefault(op.name, []).append(op)
    with open(path, "w") as out:
        found = list(functions())
        random.Random(seed).shuffle(found)  # a file that is not complete holds some of everything
        for name, f, method in found:
            if wanted and name not in wanted:
                continue
            key = zlib.crc32(f"{seed} {name} {method}".encode())
            torch.manual_seed(key)
            rng, write = random.Random(key), CallWriter(out, name)
            write.random = write.random or DRAWS.search(name)
            ops = [] if method and hasattr(torch, name) else infos.get(name, [])
            strings = {v for op in ops for d in (torch.float32, torch.int64) if d in op.supported_dtypes("cpu")
                       for args, kwargs in samples(op.sample_inputs("cpu", d, requires_grad=False), 50, rng)
                       for v in itertools.chain(args, kwargs.values()) if isinstance(v, str)}
            words = sorted(strings) * 3 + ["mean", "sum", "none", "x"]
            try:
                write_calls(name, f, method, write, rng, words)
                for op in ops:
                    write_samples(op, name, f, method, write, rng)
            except Exception as e:  # what PyTorch's own functions cannot do with these tensors
                print(f"{name}: {type(e).__name__} {e}"[:200], file=sys.stderr)
            out.flush()
    os._exit(0)  # op_db leaves threads behind


if __name__ == "__main__":
    main()
