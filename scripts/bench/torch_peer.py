"""Times the cases of cpu.lua in PyTorch, eager and by torch.compile. Prints the same lines of JSON.

python torch_peer.py [--threads N] [--seconds S] [--adamw KIND] [CASE...]     a CASE stands for all that begin with it
"""
import argparse, json, resource, statistics, time
import torch
import torch.nn.functional as F
import torch_models as models

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--seconds", type=float, default=1.0)
models.add_adamw(parser)
parser.add_argument("cases", nargs="*")
options = parser.parse_intermixed_args()
torch.set_num_threads(options.threads)
torch.manual_seed(0)


def bench(f, calls=1):
    for _ in range(3 * calls):
        f()
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < options.seconds or len(times) < 5:
        before = time.perf_counter()
        for _ in range(calls):
            f()
        times.append((time.perf_counter() - before) / calls)
    return statistics.median(times) * 1e3


def both(name, make, calls=1):
    """make(compile) gives the function to time; compile is torch.compile or the identity."""
    if options.cases and not any(name.startswith(case) for case in options.cases):
        return
    torch._dynamo.reset()
    eager = bench(make(lambda f: f), calls)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # before torch.compile
    compiled = make(torch.compile)
    start = time.perf_counter()
    compiled()
    first = (time.perf_counter() - start) * 1e3
    steady = bench(compiled, calls)
    print(json.dumps({"case": name, "threads": options.threads,
                      "eager_ms": round(eager, 5), "compiled_ms": round(steady, 5),
                      "compile_ms": round(max(first - steady, 0), 1), "peak_mb": round(peak, 1)}), flush=True)


def plain(name, op, *tensors, calls=16):
    def make(compile):
        f = compile(op)
        return lambda: f(*tensors)
    with torch.no_grad():
        both(name, make, calls)


x, w, bias = torch.randn(1024, 1024), torch.randn(1024), torch.randn(1024)
plain("copy", lambda t: t.clone(), x)
plain("gelu_bias_res", lambda t, scale, shift: F.gelu(t * scale + shift, approximate="tanh") + t, x, w, bias)
plain("softmax", lambda t: t.softmax(-1), x)
plain("sum_dim0", lambda t: t.sum(0), x)
plain("layernorm", lambda t, scale, shift: F.layer_norm(t, (1024,), scale, shift), x, w, bias)
for n in (128, 512, 1024):
    plain(f"matmul_{n}", lambda a, b: a @ b, torch.randn(n, n), torch.randn(n, n))
plain("tiny_graph", lambda a, b: a + b, torch.randn(3), torch.randn(3), calls=1000)


def train(name, make_net, x, y):
    def loss_of(model):
        out = model(x)
        return F.cross_entropy(out.view(-1, out.shape[-1]), y.view(-1))
    both(name, lambda compile: models.train_step(compile, options.adamw, make_net(), loss_of, 1e-3))


def draw(high, *shape):
    return torch.randint(0, high, shape)


train("mlp_b128_adamw", models.mlp, torch.randn(128, 784), draw(10, 128))
train("convnet_b64_adamw", models.Convnet, torch.randn(64, 1, 28, 28), draw(10, 64))
train("chargpt_d128_l4_b16_t128_adamw", lambda: models.GPT(128, 4, 4, 96, 128), draw(96, 16, 128), draw(96, 16, 128))
