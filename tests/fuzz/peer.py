# Runs the programs that tests/fuzz/python.lua writes to standard input, and prints what was seen of each, a line each.
import sys

import torch

torch.set_num_threads(1)


def element(v):
    return repr(v)


def show(kind, name, v):
    if isinstance(v, torch.Tensor):
        flat = v.detach().reshape(-1)
        if flat.dtype in (torch.float16, torch.bfloat16):
            flat = flat.float()
        values = " ".join(repr(e) for e in flat.tolist())
        shape = ", ".join(str(n) for n in v.shape)
        print(kind, name, "tensor", str(v.dtype)[6:], shape, v.requires_grad, values, sep="\t")
    else:
        text = "nil" if v is None else {True: "true", False: "false"}.get(v, v) if isinstance(v, bool) else v
        print(kind, name, "other", text, sep="\t")


def see(name, *values):
    if len(values) <= 1:
        return show("value", name, values[0] if values else None)
    for i, v in enumerate(values):
        show("value", f"{name}.{i + 1}", v)


def gradient(name, v):
    show("gradient", name, v)


def failed(name, e):
    print("error", name, " ".join(str(e).split())[:300], sep="\t")


def attempt(name, f, *arguments):
    try:
        result = f(*arguments)
    except Exception as e:
        failed(name, e)
        return (False, None, None, None, None, None)
    results = tuple(result) if isinstance(result, (tuple, list)) else () if result is None else (result,)
    see(name, *results)
    return (True,) + results + (None, None, None, None, None)


def fresh(*tensors):
    """A view made before its base got a history is taken for a leaf until its grad_fn was asked for."""
    for t in tensors:
        if isinstance(t, torch.Tensor):
            t.grad_fn


def data(seed, *sizes, dtype=torch.float32, requires_grad=False):
    count = 1
    for size in sizes:
        count *= size
    state, values = (seed * 48271 + 7) % 2147483647, []
    for _ in range(count):
        state = state * 16807 % 2147483647
        values.append((state // 8 % 17 - 8) / 4)
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype)
    x = torch.tensor(values, dtype=dtype).reshape(sizes).clone()
    return x.requires_grad_() if requires_grad else x


def run(text):
    torch.manual_seed(1)
    torch.set_grad_enabled(True)
    world = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "see": see, "gradient": gradient, "attempt": attempt, "data": data, "fresh": fresh}
    try:
        exec(compile(text, "program", "exec"), world)
    except Exception as e:
        failed("program", e)


def main():
    lines = []
    for line in sys.stdin:
        if line != "%end\n":
            lines.append(line)
            continue
        run("".join(lines))
        lines = []
        print("%end", flush=True)


main()
