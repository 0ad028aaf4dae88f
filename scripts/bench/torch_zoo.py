"""The models of scripts/models in PyTorch, with the same sizes and names of parameters.

python torch_zoo.py [--threads N] [--seconds S] [--cpu] [--adamw KIND] [--no-compile] MODEL...
                                          prints the line of JSON that the Lua models print with --bench
python torch_zoo.py --losses MODEL...     20 steps at the tiny sizes from weights that a formula gives:
                                          tests/lua/models.lua
"""
import argparse, json, statistics, time
import torch
import torch.nn as nn
import torch.nn.functional as F
from types import SimpleNamespace as Sizes
import torch_models, torch_zoo_more


def channels(wanted):
    whole = max(8, int(wanted + 4) // 8 * 8)
    return whole + 8 if whole < 0.9 * wanted else whole


def init_convolutions(net):
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")


def conv(c, k, kernel, stride=1, groups=1):
    return nn.Conv2d(c, k, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)


# resnet.lua ----------------------------------------------------------------------------------------------------------


def shortcut(c, k, stride):
    return None if c == k and stride == 1 else nn.Sequential(conv(c, k, 1, stride), nn.BatchNorm2d(k))


class Basic(nn.Module):
    grows = 1

    def __init__(self, c, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(c, width, 3, stride), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)
        self.downsample = shortcut(c, width, stride)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    grows = 4

    def __init__(self, c, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(c, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(c, 4 * width, stride)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, s):
        super().__init__()
        block, counts = {18: (Basic, [2, 2, 2, 2]), 50: (Bottleneck, [3, 4, 6, 3])}[s.depth]
        self.conv1 = nn.Conv2d(3, s.width, 7, stride=2, padding=3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(s.width), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        c = s.width
        for i, count in enumerate(counts):
            width, layer = s.width * 2**i, nn.Sequential()
            for at in range(count):
                layer.append(block(c, width, 2 if at == 0 and i > 0 else 1))
                c = width * block.grows
            setattr(self, f"layer{i + 1}", layer)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(c, s.classes)
        init_convolutions(self)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


# mobilenet_v2.lua, mobilenet_v3.lua, mnasnet.lua, efficientnet_b0.lua ------------------------------------------------


class Residual(nn.Module):
    """Inverted residual: layers under the name that each port gives them."""
    def __init__(self, name, layers, residual, drop=0.0):
        super().__init__()
        self.name, self.residual, self.drop = name, residual, drop
        setattr(self, name, nn.Sequential(*layers))

    def forward(self, x):
        y = getattr(self, self.name)(x)
        if not self.residual:
            return y
        if self.training and self.drop > 0:
            keep = 1 - self.drop
            y = y * (torch.rand(x.shape[0], 1, 1, 1) + keep).floor() / keep
        return x + y


class MobileNetV2(nn.Module):
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]

    def __init__(self, s):
        super().__init__()

        def block(*sizes):
            return nn.Sequential(conv(*sizes), nn.BatchNorm2d(sizes[1]), nn.ReLU6(inplace=True))
        c, last = channels(32 * s.width), channels(1280 * max(1, s.width))
        layers = [block(3, c, 3, 2)]
        for expand, wanted, count, stride in self.stages:
            k = channels(wanted * s.width)
            for i in range(count):
                hidden, step = c * expand, stride if i == 0 else 1
                parts = [block(c, hidden, 1)] if expand != 1 else []
                parts += [block(hidden, hidden, 3, step, hidden), conv(hidden, k, 1), nn.BatchNorm2d(k)]
                layers.append(Residual("conv", parts, step == 1 and c == k))
                c = k
        self.features = nn.Sequential(*layers, block(c, last, 1))
        self.classifier = nn.Sequential(nn.Dropout(s.dropout), nn.Linear(last, s.classes))
        init_convolutions(self)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class SqueezeExcite(nn.Module):
    def __init__(self, c, squeezed, activation, scale):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(c, squeezed, 1), nn.Conv2d(squeezed, c, 1)
        self.activation, self.scale = activation(), scale()

    def forward(self, x):
        return x * self.scale(self.fc2(self.activation(self.fc1(x.mean((2, 3), keepdim=True)))))


class MobileNetV3(nn.Module):
    R, H = nn.ReLU, nn.Hardswish
    blocks = [(3, 16, 16, False, R, 1), (3, 64, 24, False, R, 2), (3, 72, 24, False, R, 1), (5, 72, 40, True, R, 2),
              (5, 120, 40, True, R, 1), (5, 120, 40, True, R, 1), (3, 240, 80, False, H, 2), (3, 200, 80, False, H, 1),
              (3, 184, 80, False, H, 1), (3, 184, 80, False, H, 1), (3, 480, 112, True, H, 1),
              (3, 672, 112, True, H, 1), (5, 672, 160, True, H, 2), (5, 960, 160, True, H, 1),
              (5, 960, 160, True, H, 1)]

    def __init__(self, s):
        super().__init__()

        def block(activation, *sizes):
            parts = [conv(*sizes), nn.BatchNorm2d(sizes[1], eps=0.001, momentum=0.01)]
            return nn.Sequential(*parts, *([activation(inplace=True)] if activation else []))
        c = channels(16 * s.width)
        layers = [block(nn.Hardswish, 3, c, 3, 2)]
        for kernel, hidden, wanted, squeeze, activation, stride in self.blocks:
            hidden, k = channels(hidden * s.width), channels(wanted * s.width)
            parts = [block(activation, c, hidden, 1)] if hidden != c else []
            parts.append(block(activation, hidden, hidden, kernel, stride, hidden))
            if squeeze:
                parts.append(SqueezeExcite(hidden, channels(hidden / 4), nn.ReLU, nn.Hardsigmoid))
            layers.append(Residual("block", parts + [block(None, hidden, k, 1)], stride == 1 and c == k))
            c = k
        self.features, last = nn.Sequential(*layers, block(nn.Hardswish, c, 6 * c, 1)), channels(1280 * s.width)
        self.classifier = nn.Sequential(nn.Linear(6 * c, last), nn.Hardswish(inplace=True), nn.Dropout(s.dropout),
                                        nn.Linear(last, s.classes))
        init_convolutions(self)

    def forward(self, x):
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class MNASNet(nn.Module):
    stages = [(24, 3, 2, 3, 3), (40, 5, 2, 3, 3), (80, 5, 2, 6, 3), (96, 3, 1, 6, 2), (192, 5, 2, 6, 4),
              (320, 3, 1, 6, 1)]

    def __init__(self, s):
        super().__init__()

        def block(*sizes, relu=True):
            return [conv(*sizes), nn.BatchNorm2d(sizes[1], momentum=3e-4)] + ([nn.ReLU(inplace=True)] if relu else [])
        c0, c = channels(32 * s.width), channels(16 * s.width)
        layers = block(3, c0, 3, 2) + block(c0, c0, 3, 1, c0) + block(c0, c, 1, relu=False)
        for wanted, kernel, stride, expand, count in self.stages:
            k, stack = channels(wanted * s.width), []
            for i in range(count):
                hidden, step = c * expand, stride if i == 0 else 1
                parts = block(c, hidden, 1) + block(hidden, hidden, kernel, step, hidden)
                parts += block(hidden, k, 1, relu=False)
                stack.append(Residual("layers", parts, step == 1 and c == k))
                c = k
            layers.append(nn.Sequential(*stack))
        self.layers = nn.Sequential(*layers, *block(c, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(s.dropout), nn.Linear(1280, s.classes))
        init_convolutions(self)

    def forward(self, x):
        return self.classifier(self.layers(x).mean((2, 3)))


class EfficientNet(nn.Module):
    stages = [(1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3),
              (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)]

    def __init__(self, s):
        super().__init__()

        def block(*sizes, silu=True):
            return nn.Sequential(conv(*sizes), nn.BatchNorm2d(sizes[1]), *([nn.SiLU(inplace=True)] if silu else []))
        c, at = channels(32 * s.width), 0
        layers = [block(3, c, 3, 2)]
        for expand, kernel, stride, wanted, count in self.stages:
            k = channels(wanted * s.width)
            for i in range(count):
                hidden, step = c * expand, stride if i == 0 else 1
                parts = [block(c, hidden, 1)] if expand != 1 else []
                parts += [block(hidden, hidden, kernel, step, hidden),
                          SqueezeExcite(hidden, max(1, c // 4), nn.SiLU, nn.Sigmoid), block(hidden, k, 1, silu=False)]
                layers.append(Residual("block", parts, step == 1 and c == k, s.drop_path * at / 16))
                c, at = k, at + 1
        self.features = nn.Sequential(*layers, block(c, 4 * c, 1))
        self.classifier = nn.Sequential(nn.Dropout(s.dropout), nn.Linear(4 * c, s.classes))
        init_convolutions(self)

    def forward(self, x):
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


# bert.lua, vit.lua, llama.lua, gru.lua -------------------------------------------------------------------------------


class BertLayer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads, self.dropout = s.heads, nn.Dropout(s.dropout)
        self.query, self.key, self.value = nn.Linear(s.d, s.d), nn.Linear(s.d, s.d), nn.Linear(s.d, s.d)
        self.out, self.norm1 = nn.Linear(s.d, s.d), nn.LayerNorm(s.d, eps=1e-12)
        self.up, self.down = nn.Linear(s.d, s.ffn), nn.Linear(s.ffn, s.d)
        self.norm2 = nn.LayerNorm(s.d, eps=1e-12)

    def forward(self, x, mask):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.dropout(self.out(mixed)))
        return self.norm2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class Bert(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.words, self.positions = nn.Embedding(s.vocabulary, s.d, padding_idx=0), nn.Embedding(s.length, s.d)
        self.norm, self.dropout = nn.LayerNorm(s.d, eps=1e-12), nn.Dropout(s.dropout)
        self.layers = nn.ModuleList(BertLayer(s) for _ in range(s.layers))
        self.pooler, self.classifier = nn.Linear(s.d, s.d), nn.Linear(s.d, s.classes)

    def forward(self, ids):
        mask = ids.ne(0)[:, None, None]
        x = self.dropout(self.norm(self.words(ids) + self.positions(torch.arange(ids.shape[1]))))
        for layer in self.layers:
            x = layer(x, mask)
        return self.classifier(self.pooler(x[:, 0]).tanh())


class ViTBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(d, eps=1e-6), nn.LayerNorm(d, eps=1e-6)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, s):
        super().__init__()
        tokens = (s.image // s.patch)**2
        self.patches = nn.Conv2d(3, s.d, s.patch, stride=s.patch)
        self.class_token = nn.Parameter(torch.randn(1, 1, s.d) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, tokens + 1, s.d) * 0.02)
        self.blocks = nn.Sequential(*(ViTBlock(s.d, s.heads) for _ in range(s.layers)))
        self.norm, self.head = nn.LayerNorm(s.d, eps=1e-6), nn.Linear(s.d, s.classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class LlamaAttention(nn.Module):
    def __init__(self, s):
        super().__init__()
        head = s.d // s.heads
        self.heads, self.kv_heads = s.heads, s.kv_heads
        self.wq, self.wo = nn.Linear(s.d, s.d, bias=False), nn.Linear(s.d, s.d, bias=False)
        self.wk = nn.Linear(s.d, s.kv_heads * head, bias=False)
        self.wv = nn.Linear(s.d, s.kv_heads * head, bias=False)

    def turn(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x, cos, sin):
        q = self.turn(self.wq(x).unflatten(-1, (self.heads, -1)).transpose(1, 2), cos, sin)
        k = self.turn(self.wk(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2), cos, sin)
        v = self.wv(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(mixed.transpose(1, 2).flatten(2))


class LlamaBlock(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(s.d, eps=1e-5), nn.RMSNorm(s.d, eps=1e-5)
        self.attention = LlamaAttention(s)
        self.w1, self.w3 = nn.Linear(s.d, s.ffn, bias=False), nn.Linear(s.d, s.ffn, bias=False)
        self.w2 = nn.Linear(s.ffn, s.d, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        y = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Llama(nn.Module):
    def __init__(self, s):
        super().__init__()
        head = s.d // s.heads
        self.words = nn.Embedding(s.vocabulary, s.d)
        self.layers = nn.ModuleList(LlamaBlock(s) for _ in range(s.layers))
        self.norm, self.head = nn.RMSNorm(s.d, eps=1e-5), nn.Linear(s.d, s.vocabulary, bias=False)
        rates = 10000**(torch.arange(0, head, 2, dtype=torch.float32) / -head)
        angles = torch.outer(torch.arange(s.length, dtype=torch.float32), rates)
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, self.cos[:ids.shape[1]], self.sin[:ids.shape[1]])
        return self.head(self.norm(x))


class GRU(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.d, self.words = s.d, nn.Embedding(s.vocabulary, s.d)
        self.input, self.hidden = nn.Linear(s.d, 3 * s.d), nn.Linear(s.d, 3 * s.d)
        self.head = nn.Linear(s.d, s.vocabulary)

    def cell(self, gates, h):
        (xr, xz, xn), (hr, hz, hn) = gates.chunk(3, -1), self.hidden(h).chunk(3, -1)
        r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
        return (1 - z) * (xn + r * hn).tanh() + z * h

    def forward(self, ids):
        gates, h, states = self.input(self.words(ids)), torch.zeros(ids.shape[0], self.d), []
        for t in range(ids.shape[1]):
            h = self.cell(gates[:, t], h)
            states.append(h)
        return self.head(torch.stack(states, 1))


# Sizes as the ports have them: what --bench runs, and tiny ones -------------------------------------------------------

IMAGES = dict(batch=8, image=64, classes=1000)
TINY = dict(batch=4, image=64, classes=10)
MOBILE = dict(IMAGES, width=1, dropout=0.2), dict(TINY, rate=2e-4, width=0.25, dropout=0.0)
MODELS = {
    "resnet18": (ResNet, dict(IMAGES, depth=18, width=64), dict(TINY, rate=2e-5, depth=18, width=8)),
    "resnet50": (ResNet, dict(IMAGES, depth=50, width=64), dict(TINY, rate=2e-5, depth=50, width=8)),
    "mobilenet_v2": (MobileNetV2, *MOBILE),
    "mobilenet_v3": (MobileNetV3, *MOBILE),
    "mnasnet": (MNASNet, *MOBILE),
    "efficientnet_b0": (EfficientNet, dict(MOBILE[0], drop_path=0.2), dict(MOBILE[1], drop_path=0.0)),
    "bert": (Bert,
             dict(d=384, heads=12, layers=6, ffn=1536, vocabulary=30522, classes=2, batch=8, length=64, dropout=0.1),
             dict(d=16, heads=2, layers=2, ffn=32, vocabulary=50, classes=3, batch=4, length=12, dropout=0.0)),
    "vit": (ViT, dict(d=384, heads=6, layers=12, patch=16, image=128, classes=1000, batch=4),
            dict(d=16, heads=2, layers=2, patch=8, image=32, classes=10, batch=4)),
    "gru": (GRU, dict(d=256, vocabulary=1000, length=32, batch=16), dict(d=16, vocabulary=40, length=8, batch=4)),
    "llama": (Llama, dict(d=512, heads=8, kv_heads=2, layers=8, ffn=1408, vocabulary=32000, batch=1, length=256),
              dict(d=16, heads=4, kv_heads=2, layers=2, ffn=40, vocabulary=50, batch=2, length=8)),
    **torch_zoo_more.MODELS,
}


def is_sequence(name):
    return name in ("gru", "llama")


def call(model, x):
    return model(*x) if isinstance(x, tuple) else model(x)


def loss_of(name, model, x, y):
    out, own = call(model, x), getattr(MODELS[name][0], "loss", None)
    if own:
        return own(out, y)
    return F.cross_entropy(out.flatten(0, 1), y.flatten()) if is_sequence(name) else F.cross_entropy(out, y)


# Numbers that a formula gives: tests/lua/models.lua has the same ------------------------------------------------------

PRIME = 2147483647


def hashed(count, seed):
    h = (torch.arange(count) * 1103515245 + seed) % PRIME
    for _ in range(2):
        h = (h * (h % 65521 + 1) + 12345) % PRIME
    return h


def floats(shape, seed):
    count = torch.Size(shape).numel()
    return (hashed(count, seed).double() / PRIME * 2 - 1).view(shape)


def seed_of(name):
    seed = 7
    for letter in name.encode():
        seed = (seed * 31 + letter) % PRIME
    return seed


def fill(net):
    with torch.no_grad():
        for name, p in net.named_parameters():
            values = floats(p.shape, seed_of(name))
            if p.dim() > 1:
                values *= (3 * p.shape[0] / p.numel())**0.5
            else:
                values = values * 0.1 + (1 if name.endswith("weight") else 0)
            p.copy_(values)


class Formula:
    """Numbers in the place of random ones: each draw has a seed of its own."""
    def __init__(self, seed):
        self.seed = seed

    def floats(self, shape):
        self.seed += 1
        return floats(shape, self.seed)

    def below(self, limit, shape):
        self.seed += 1
        return (hashed(torch.Size(shape).numel(), self.seed) % limit).view(shape)


def tiny_batch(name, s, step):
    seed, own = 1000 * step, getattr(MODELS[name][0], "draw", None)
    if own:
        return own(s, Formula(seed))
    if "image" in vars(s):
        return floats((s.batch, 3, s.image, s.image), seed), hashed(s.batch, seed + 1) % s.classes
    if name == "bert":
        words = (hashed(s.batch * s.length, seed) % s.vocabulary).view(s.batch, s.length)
        return words, hashed(s.batch, seed + 1) % s.classes
    ids = (hashed(s.batch * (s.length + 1), seed) % s.vocabulary).view(s.batch, s.length + 1)
    return ids[:, :-1], ids[:, 1:]


def losses(name):
    """In float64 and by small steps: batch norm of a few numbers makes roundings grow a thousandfold a step."""
    torch.set_default_dtype(torch.float64)
    make, _, tiny = MODELS[name]
    net = make(Sizes(**tiny))
    fill(net)
    optimizer, found = torch.optim.SGD(net.parameters(), lr=tiny.get("rate", 0.01), momentum=0.5), []
    for step in range(20):
        x, y = tiny_batch(name, Sizes(**tiny), step % 4)
        loss = loss_of(name, net, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


# The bench -----------------------------------------------------------------------------------------------------------


def timed(f, options):
    for _ in range(3):
        f()
    times, start, clock = [], time.perf_counter(), time.process_time if options.cpu else time.perf_counter
    while time.perf_counter() - start < options.seconds or len(times) < 5:
        before = clock()
        f()
        times.append(clock() - before)
    return statistics.median(times) * 1e3


RANDOM = Sizes(floats=torch.randn, below=lambda limit, shape: torch.randint(0, limit, shape))


def batch_of(name, s):
    own = getattr(MODELS[name][0], "draw", None)
    if own:
        return own(s, RANDOM)
    if "image" in vars(s):
        return torch.randn(s.batch, 3, s.image, s.image), torch.randint(0, s.classes, (s.batch,))
    if name == "bert":
        return torch.randint(0, s.vocabulary, (s.batch, s.length)), torch.randint(0, s.classes, (s.batch,))
    ids = torch.randint(0, s.vocabulary, (s.batch, s.length + 1))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def bench(name, options):
    make, sizes, _ = MODELS[name]
    row = {"model": name, "threads": options.threads}
    for compile in [None] if options.no_compile else [None, torch.compile]:
        torch.manual_seed(0)
        net = make(Sizes(**sizes))
        x, y = batch_of(name, Sizes(**sizes))
        kind = "_eager" if compile is None else ""
        wrap = compile or (lambda f: f)
        step = torch_models.train_step(wrap, options.adamw, net, lambda m: loss_of(name, m, x, y), 1e-3)
        start = time.perf_counter()
        step()
        row[f"compile{kind}_ms"] = (time.perf_counter() - start) * 1e3
        row[f"train{kind}_ms"] = timed(step, options)
        net.eval()
        infer = compile(net) if compile else net
        with torch.no_grad():
            row[f"infer{kind}_ms"] = timed(lambda: call(infer, x), options)
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}
    print(json.dumps(rounded), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--losses", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    torch_models.add_adamw(parser)
    parser.add_argument("models", nargs="*")
    options = parser.parse_intermixed_args()
    torch.set_num_threads(options.threads)
    for name in options.models or MODELS:
        if options.losses:
            print(name, *(f"{loss:.10g}" for loss in losses(name)), flush=True)
        else:
            bench(name, options)


if __name__ == "__main__":
    main()
