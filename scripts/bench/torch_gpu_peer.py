"""Times the cases of gpu.lua in PyTorch on a GPU: eager, by torch.compile, and train steps recorded by hand as one CUDA
graph. Prints a line of JSON per case.

python torch_gpu_peer.py [--seconds S] [--adamw KIND] [CASE...]     a CASE stands for all that begin with it

Times are medians of GPU time between two events. Products may use TF32, as gpu.lua's.
"""
import argparse, json, statistics, time
import torch
import torch.nn.functional as F
import torch_models as models

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=0.3)
models.add_adamw(parser)
parser.add_argument("cases", nargs="*")
options = parser.parse_intermixed_args()
torch.set_default_device("cuda")
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.allow_tf32 = True
torch.manual_seed(0)


def wanted(name):
    return not options.cases or any(name.startswith(case) or case.startswith(name) for case in options.cases)


def milliseconds(f, calls=1):
    for _ in range(5):
        f()
    torch.cuda.synchronize()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < options.seconds or len(times) < 10:
        first.record()
        for _ in range(calls):
            f()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) / calls)
    return statistics.median(times)


def recorded(step):
    """Returns the step as one CUDA graph, recorded after some runs on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def case(name, make, calls=1, moved=0, by_hand=False):
    """make(compile) returns the function to time; a sample is `calls` calls. moved: bytes that it reads and writes."""
    if not wanted(name):
        return
    torch._dynamo.reset()
    row = {"case": name, "eager_ms": milliseconds(make(lambda f: f), calls)}
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    compiled = make(torch.compile)
    start = time.perf_counter()
    compiled()
    torch.cuda.synchronize()
    first = (time.perf_counter() - start) * 1e3
    row["compiled_ms"] = milliseconds(compiled, calls)
    row["compile_ms"] = max(first - row["compiled_ms"], 0)
    row["peak_mb"] = torch.cuda.max_memory_allocated() / 2**20
    if moved:
        row["gbps"] = moved / row["compiled_ms"] / 1e6
    if by_hand:
        row["one_graph_ms"] = milliseconds(recorded(make(torch.compile)))
    rounded = {key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()}
    print(json.dumps(rounded), flush=True)


def plain(name, op, moved, *tensors):
    def make(compile):
        f = compile(op)
        return lambda: f(*tensors)
    with torch.no_grad():
        case(name, make, 16, moved)


if wanted("kernel_"):
    n = 8192
    x, w, b = torch.randn(n, n), torch.randn(n), torch.randn(n)
    once = n * n * 4
    plain("kernel_copy", lambda x: x.clone(), 2 * once, x)
    plain("kernel_gelu_bias_res", lambda x, w, b: F.gelu(x * w + b, approximate="tanh") + x, 2 * once, x, w, b)
    plain("kernel_softmax", lambda x: x.softmax(-1), 2 * once, x)
    plain("kernel_layernorm", lambda x, w, b: F.layer_norm(x, (n,), w, b), 2 * once, x, w, b)
    plain("kernel_rmsnorm", lambda x, w: x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * w, 2 * once, x, w)
    plain("kernel_sum_all", lambda x: x.sum(), once, x)
    plain("kernel_sum_dim0", lambda x: x.sum(0), once, x)
    plain("kernel_transpose_add", lambda x, w: x.t().contiguous() + w, 2 * once, x, w)
    del x, w, b
for n in (1024, 4096, 8192):
    for dtype in (torch.float32, torch.bfloat16):
        name = f"matmul_{n}_{str(dtype).removeprefix('torch.')}"
        if wanted(name):
            plain(name, torch.mm, 0, torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype))
if wanted("overhead"):
    a, b = torch.randn(3), torch.randn(3)
    rounds = []
    for _ in range(7):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(2000):
            a + b
        rounds.append((time.perf_counter() - start) / 2000 * 1e6)
    print(json.dumps({"case": "overhead", "eager_add_us": round(statistics.median(rounds), 5)}), flush=True)


def train(name, make_net, make_data, autocast=False):
    def make(compile):
        x, y = make_data()

        def loss_of(model):
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                out = model(x)
                return F.cross_entropy(out.view(-1, out.shape[-1]), y.view(-1))
        return models.train_step(compile, options.adamw, make_net(), loss_of, 1e-4)
    case(name, make, by_hand=True)


def tokens(vocabulary, *shape):
    return lambda: (torch.randint(0, vocabulary, shape), torch.randint(0, vocabulary, shape))


train("mlp_b128_adamw", models.mlp, lambda: (torch.randn(128, 784), torch.randint(0, 10, (128,))))
train("convnet_b64_adamw", models.Convnet, lambda: (torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))))
train("chargpt_d128_l4_b16_t128_adamw", lambda: models.GPT(128, 4, 4, 96, 128), tokens(96, 16, 128))


def images(batch):
    def draw():
        x = torch.randn(batch, 3, 224, 224).to(memory_format=torch.channels_last)
        return x, torch.randint(0, 1000, (batch,))
    return draw


for autocast in (False, True):
    kind = "_bf16" if autocast else ""
    train("resnet50_b32_adamw" + kind, lambda: models.resnet50(1000).to(memory_format=torch.channels_last),
          images(32), autocast)
    train("mobilenet_v2_b96_adamw" + kind, lambda: models.mobilenet_v2(1000).to(memory_format=torch.channels_last),
          images(96), autocast)
    train("gpt2_124m_b8_t512_adamw" + kind, lambda: models.GPT(768, 12, 12, 50257, 1024),
          tokens(50257, 8, 512), autocast)
