"""PyTorch's side of `ops`: answers the requests of ops_lutra.lua, with expressions in Python.

python ops_torch.py THREADS cpu|wall
"""
import json, math, statistics, sys, time
import torch
import torch.nn.functional as F

torch.set_num_threads(int(sys.argv[1]))
torch.set_grad_enabled(False)
torch.manual_seed(0)
clock = time.process_time if sys.argv[2] == "cpu" else time.perf_counter
inputs, forms = {}, {}


def bytes_of(value):
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(bytes_of, value)) if isinstance(value, (tuple, list)) else 0


def set_input(name, text):
    inputs[name] = eval(text)
    return {}


def take_case(names, text):
    values = [inputs[name] for name in names.split(",") if name]
    f = eval(f"lambda {names}: {text}")
    torch._dynamo.reset()
    compiled = torch.compile(f)
    forms.update(eager=lambda: f(*values), compiled=lambda: compiled(*values))
    return {"bytes": bytes_of(values) + bytes_of(f(*values))}


def take_time(form, seconds):
    f, seconds, times = forms[form], float(seconds), []
    for _ in range(3):
        f()
    before = clock()
    f()
    once = max(clock() - before, 1e-6)
    calls = min(max(16, math.ceil(0.002 / once)), max(1, math.ceil(seconds / 3 / once)))
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 3:
        before = clock()
        for _ in range(calls):
            f()
        times.append((clock() - before) / calls * 1e3)
    return {"ms": statistics.median(times)}


serve = {"set": set_input, "case": take_case, "time": take_time}
for line in sys.stdin:
    what, first, second = line.rstrip("\n").split("\t")
    try:
        reply = serve[what](first, second)
    except Exception as error:
        reply = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    print(json.dumps(reply), flush=True)
