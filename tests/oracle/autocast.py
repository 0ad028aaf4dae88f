"""Asks PyTorch for the types of results under autocast: cases/*.py in, autocast_dtypes.lua out, which autocast.lua reads.

Each case runs under bfloat16 autocast of the CPU, and of CUDA on fake tensors, with its float32 inputs as they are (f), in bfloat16 (b), and mixed
(m: all but the first in bfloat16; n: only the first). A letter a result: b, h, f, d floats, o others; "-" where PyTorch refuses. Where all four are
what they are without autocast there is no row.
"""
import glob
import importlib.util
import math
import os

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import record

LETTERS = {torch.bfloat16: "b", torch.float16: "h", torch.float32: "f", torch.float64: "d"}


def formed(inputs, form):
    made, first = [], True
    for x in inputs:
        to = x.dtype
        if x.dtype == torch.float32:
            to = {"f": torch.float32, "b": torch.bfloat16, "m": torch.float32 if first else torch.bfloat16,
                  "n": torch.bfloat16 if first else torch.float32}[form]
            first = False
        made.append(x.detach().to(to).requires_grad_(x.requires_grad))
    return made


def types(inputs, python, device, autocast):
    with FakeTensorMode() if device == "cuda" else torch.enable_grad():
        if device == "cuda":
            inputs = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda").requires_grad_(x.requires_grad) for x in inputs]
        torch.set_autocast_enabled(device, autocast)
        torch.set_autocast_dtype(device, torch.bfloat16)
        try:
            results = eval(python, {"torch": torch, "F": F, "inf": math.inf, "nan": math.nan, "math": math}, dict(zip(record.NAMES, inputs)))
        except Exception:
            return "-"
        finally:
            torch.set_autocast_enabled(device, False)
            torch.clear_autocast_cache()
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    return "".join(LETTERS.get(r.dtype, "o") if isinstance(r, torch.Tensor) else "o" for r in results)


class Types:
    def __init__(self, out):
        self.out = out

    def case(self, name, inputs, python, lua=None, **options):
        rows = []
        for device in ("cpu", "cuda"):
            found = {on: [types(formed(inputs, form), python, device, on) for form in "fbmn"] for on in (True, False)}
            if found[True] != found[False] or "-" in found[True]:
                rows.append(f'{device} = "{" ".join(found[True])}"')
        if rows:
            self.out.write(f"  [{name!r}] = {{{', '.join(rows)}}},\n")

    def error(self, *arguments, **options):
        pass


def main():
    torch.set_num_threads(1)
    with open(os.path.join(record.HERE, "autocast_dtypes.lua"), "w") as out:
        out.write("-- Recorded by autocast.py: the types of results under autocast. Do not edit.\nreturn {\n")
        for path in sorted(glob.glob(os.path.join(record.HERE, "cases", "*.py"))):
            family = os.path.basename(path)[:-3]
            spec = importlib.util.spec_from_file_location(family, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            inputs = record.Inputs(0)
            inputs.reseed(family)
            out.write(f"{family} = {{\n")
            types_of = Types(out)
            module.cases(types_of.case, types_of.error, inputs)
            out.write("},\n")
        out.write("}\n")


if __name__ == "__main__":
    main()
