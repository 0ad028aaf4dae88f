"""The cases of cpu.lua in PyTorch, eager and torch.compile: the same JSON lines.

python torch_peer.py [--threads N] [--seconds S] [--adamw KIND] [CASE...]     a CASE stands for all that begin with it

KIND is how AdamW runs: "fused", one kernel; "foreach", PyTorch's default; "compiled", torch.compile of its step.
"""
import argparse, json, resource, statistics, time
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--seconds", type=float, default=1.0)
parser.add_argument("--adamw", choices=["fused", "foreach", "compiled"], default="fused")
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
    print(json.dumps({"case": name, "threads": options.threads, "eager_ms": round(eager, 5), "compiled_ms": round(steady, 5),
                      "compile_ms": round(max(first - steady, 0), 1), "peak_mb": round(peak, 1)}), flush=True)


def plain(name, op, *tensors, calls=1):
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


def train_step(compile, net, loss_of):
    """The model is compiled; backward and the optimiser's step run outside it, as PyTorch's users have it."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=options.adamw == "fused")
    update = torch.compile(optimizer.step) if options.adamw == "compiled" and compile is torch.compile else optimizer.step
    model = compile(net)

    def step():
        loss = loss_of(model)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        update()
        return loss
    return step


def mlp(compile):
    net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    images, labels = torch.randn(128, 784), torch.randint(0, 10, (128,))
    return train_step(compile, net, lambda model: F.cross_entropy(model(images), labels))


both("mlp_b128_adamw", mlp)


class Convnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.f, self.g = nn.Linear(64 * 49, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.a(x)), 2)
        x = F.max_pool2d(F.relu(self.b(x)), 2)
        return self.g(F.relu(self.f(x.flatten(1))))


def convnet(compile):
    images, labels = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
    return train_step(compile, Convnet(), lambda model: F.cross_entropy(model(images), labels))


both("convnet_b64_adamw", convnet)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.l1, self.l2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o, self.f1, self.f2 = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.l1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        return x + self.f2(F.gelu(self.f1(self.l2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, d, heads, layers, vocabulary, length):
        super().__init__()
        self.e, self.p = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
        self.b = nn.ModuleList([Block(d, heads) for _ in range(layers)])
        self.n, self.hd = nn.LayerNorm(d), nn.Linear(d, vocabulary)

    def forward(self, ids):
        x = self.e(ids) + self.p(torch.arange(ids.shape[1]))
        for block in self.b:
            x = block(x)
        return self.hd(self.n(x))


def chargpt(compile):
    ids, next_ids = torch.randint(0, 96, (16, 128)), torch.randint(0, 96, (16, 128))
    return train_step(compile, GPT(128, 4, 4, 96, 128), lambda model: F.cross_entropy(model(ids).view(-1, 96), next_ids.view(-1)))


both("chargpt_d128_l4_b16_t128_adamw", chargpt)
