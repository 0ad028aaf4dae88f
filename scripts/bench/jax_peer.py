"""Times the cases of cpu.lua and gpu.lua in JAX as jitted functions. Prints the same lines of JSON.

python jax_peer.py [--device cpu|gpu] [--threads N] [--seconds S] [CASE...]     a CASE stands for all that begin with it

Needs only jax. Times are wall times from the call until the result is ready; on a GPU that adds a few microseconds.
--threads binds the process to so many processors, as XLA has no setting for it. Products on a GPU may use TF32. AdamW
has PyTorch's defaults: decay 0.01, betas 0.9 and 0.999.
"""
import argparse, json, os, statistics, time

parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--seconds", type=float, default=1.0)
parser.add_argument("cases", nargs="*")
options = parser.parse_intermixed_args()
on_gpu = options.device == "gpu"
if not on_gpu:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.threads])
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax import lax

if on_gpu:
    assert jax.default_backend() == "gpu", "jax_peer: JAX finds no GPU"
    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
keys = iter(jax.random.split(jax.random.key(0), 4096))


def randn(*shape):
    return jax.random.normal(next(keys), shape)


def draw(high, *shape):
    return jax.random.randint(next(keys), shape, 0, high)


def wanted(name):
    return not options.cases or any(name.startswith(case) for case in options.cases)


def bench(name, f, calls=1):
    """Times f(), including the wait for the arrays that it returns."""
    start = time.perf_counter()
    jax.block_until_ready(f())
    first = (time.perf_counter() - start) * 1e3
    for _ in range(3 * calls):
        jax.block_until_ready(f())
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < options.seconds or len(times) < 5:
        before = time.perf_counter()
        for _ in range(calls):
            last = f()
        jax.block_until_ready(last)
        times.append((time.perf_counter() - before) / calls)
    steady = statistics.median(times) * 1e3
    row = {"case": name, "compiled_ms": round(steady, 5), "compile_ms": round(max(first - steady, 0), 1)}
    print(json.dumps(row if on_gpu else {"threads": options.threads, **row}), flush=True)


def plain(name, op, *shapes, calls=16, dtype=jnp.float32):
    if not wanted(name):
        return
    tensors, f = [randn(*shape).astype(dtype) for shape in shapes], jax.jit(op)
    bench(name, lambda: f(*tensors), calls)


def layernorm(x, w, b):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w + b


n = 8192 if on_gpu else 1024
prefix = "kernel_" if on_gpu else ""
plain(prefix + "copy", jnp.copy, (n, n))
plain(prefix + "gelu_bias_res", lambda x, w, b: jax.nn.gelu(x * w + b, approximate=True) + x, (n, n), (n,), (n,))
plain(prefix + "softmax", lambda x: jax.nn.softmax(x, -1), (n, n))
plain(prefix + "sum_dim0", lambda x: x.sum(0), (n, n))
plain(prefix + "layernorm", layernorm, (n, n), (n,), (n,))
if on_gpu:
    plain("kernel_rmsnorm", lambda x, w: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w, (n, n), (n,))
    plain("kernel_sum_all", lambda x: x.sum(), (n, n))
    plain("kernel_transpose_add", lambda x, w: x.T + w, (n, n), (n,))
    for size in (1024, 4096, 8192):
        for dtype in (jnp.float32, jnp.bfloat16):
            plain(f"matmul_{size}_{jnp.dtype(dtype).name}", jnp.matmul, (size, size), (size, size), dtype=dtype)
else:
    for size in (128, 512, 1024):
        plain(f"matmul_{size}", jnp.matmul, (size, size), (size, size))
    plain("tiny_graph", jnp.add, (3,), (3,), calls=1000)


# A model is a pair: its weights, and a function of weights and input. Weights are drawn as PyTorch's layers draw them.
def uniform(fan_in, *shape):
    return jax.random.uniform(next(keys), shape, minval=-fan_in ** -0.5, maxval=fan_in ** -0.5)


def linear(to, fan_in):
    return {"w": uniform(fan_in, fan_in, to), "b": uniform(fan_in, to)}


def apply_linear(p, x):
    return x @ p["w"] + p["b"]


def mlp():
    weights = [linear(256, 784), linear(256, 256), linear(10, 256)]

    def run(layers, x):
        for layer in layers[:-1]:
            x = jax.nn.relu(apply_linear(layer, x))
        return apply_linear(layers[-1], x)
    return weights, run


def convnet():
    weights = {"a": uniform(9, 3, 3, 1, 32), "a0": uniform(9, 32),
               "b": uniform(288, 3, 3, 32, 64), "b0": uniform(288, 64),
               "f": linear(128, 64 * 49), "g": linear(10, 128)}

    def half(x, w, b):
        x = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + b
        return lax.reduce_window(jax.nn.relu(x), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def run(p, x):
        x = half(half(x, p["a"], p["a0"]), p["b"], p["b0"])
        return apply_linear(p["g"], jax.nn.relu(apply_linear(p["f"], x.reshape(x.shape[0], -1))))
    return weights, run


def gpt(width, heads, layers, vocabulary, length):
    """Its last layer has weights of its own, as common.lua's."""
    def norm():
        return {"w": jnp.ones(width), "b": jnp.zeros(width)}

    def apply_norm(p, x):
        return layernorm(x, p["w"], p["b"])

    weights = {"tokens": randn(vocabulary, width), "places": randn(length, width), "norm": norm(),
               "head": linear(vocabulary, width),
               "layers": [{"norm1": norm(), "norm2": norm(), "project": linear(3 * width, width),
                           "out": linear(width, width), "up": linear(4 * width, width),
                           "down": linear(width, 4 * width)} for _ in range(layers)]}

    def run(p, ids):
        batch, time_steps = ids.shape
        x = p["tokens"][ids] + p["places"][:time_steps]
        for layer in p["layers"]:
            parts = apply_linear(layer["project"], apply_norm(layer["norm1"], x))
            parts = parts.reshape(batch, time_steps, 3, heads, -1)
            mixed = jax.nn.dot_product_attention(parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], is_causal=True)
            x = x + apply_linear(layer["out"], mixed.reshape(batch, time_steps, width))
            up = jax.nn.gelu(apply_linear(layer["up"], apply_norm(layer["norm2"], x)), approximate=True)
            x = x + apply_linear(layer["down"], up)
        return apply_linear(p["head"], apply_norm(p["norm"], x))
    return weights, run


def adamw(weights, gradients, state, lr, decay=0.01, beta1=0.9, beta2=0.999):
    step = state["step"] + 1
    tree = jax.tree.map
    first = tree(lambda m, g: beta1 * m + (1 - beta1) * g, state["first"], gradients)
    second = tree(lambda v, g: beta2 * v + (1 - beta2) * g * g, state["second"], gradients)
    scale1, scale2 = 1 - beta1 ** step, 1 - beta2 ** step

    def moved(w, m, v):
        return w * (1 - lr * decay) - lr * (m / scale1) / (jnp.sqrt(v / scale2) + 1e-8)
    return tree(moved, weights, first, second), {"step": step, "first": first, "second": second}


def train(name, model, x, y, lr, dtype=jnp.float32):
    """dtype: what the forward is computed in; weights and the update stay float32."""
    if not wanted(name):
        return
    weights, run = model()
    state = {"step": jnp.float32(0), "first": jax.tree.map(jnp.zeros_like, weights),
             "second": jax.tree.map(jnp.zeros_like, weights)}

    def loss_of(weights):
        cast = jax.tree.map(lambda w: w.astype(dtype), weights)
        out = run(cast, x.astype(dtype) if x.dtype == jnp.float32 else x).astype(jnp.float32)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(out.reshape(-1, out.shape[-1])), y.reshape(-1, 1), 1)
        return -chosen.mean()

    @jax.jit
    def step(weights, state):
        loss, gradients = jax.value_and_grad(loss_of)(weights)
        return *adamw(weights, gradients, state, lr), loss

    def once():
        nonlocal weights, state
        weights, state, loss = step(weights, state)
        return loss
    bench(name, once)


lr = 1e-4 if on_gpu else 1e-3
train("mlp_b128_adamw", mlp, randn(128, 784), draw(10, 128), lr)
train("convnet_b64_adamw", convnet, randn(64, 28, 28, 1), draw(10, 64), lr)
train("chargpt_d128_l4_b16_t128_adamw", lambda: gpt(128, 4, 4, 96, 128), draw(96, 16, 128), draw(96, 16, 128), lr)
if on_gpu:
    for name, dtype in (("gpt2_124m_b8_t512_adamw", jnp.float32), ("gpt2_124m_b8_t512_adamw_bf16", jnp.bfloat16)):
        train(name, lambda: gpt(768, 12, 12, 50257, 1024), draw(50257, 8, 512), draw(50257, 8, 512), lr, dtype)
