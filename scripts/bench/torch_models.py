"""The models of common.lua in PyTorch, and a train step with AdamW, for torch_peer.py and torch_gpu_peer.py."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp():
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


class Convnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.f, self.g = nn.Linear(64 * 49, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(self.a(x).relu(), 2)
        x = F.max_pool2d(self.b(x).relu(), 2)
        return self.g(self.f(x.flatten(1)).relu())


class Layer(nn.Module):
    """A block of GPT-2: attention and a feed-forward net, each with a pre-norm and a residual connection."""
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        parts = self.project(self.norm1(x)).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Its last layer has weights of its own, as common.lua's."""
    def __init__(self, width, heads, layers, vocabulary, length):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.layers(x)))


def normed(source, target, size, stride=1, groups=1, activation=None):
    conv = nn.Conv2d(source, target, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(target), *([activation()] if activation else []))


class Bottleneck(nn.Module):
    def __init__(self, source, width, stride):
        super().__init__()
        self.body = nn.Sequential(normed(source, width, 1, 1, 1, nn.ReLU), normed(width, width, 3, stride, 1, nn.ReLU),
                                  normed(width, width * 4, 1))
        self.down = normed(source, width * 4, 1, stride) if stride != 1 or source != width * 4 else nn.Identity()

    def forward(self, x):
        return (self.body(x) + self.down(x)).relu()


class Inverted(nn.Module):
    def __init__(self, source, target, stride, expand):
        super().__init__()
        width = source * expand
        self.body = nn.Sequential(*([normed(source, width, 1, 1, 1, nn.ReLU6)] if expand != 1 else []),
                                  normed(width, width, 3, stride, width, nn.ReLU6), normed(width, target, 1))
        self.joins = stride == 1 and source == target

    def forward(self, x):
        return x + self.body(x) if self.joins else self.body(x)


def classifier(features, width, classes):
    return nn.Sequential(*features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def resnet50(classes):
    parts, source = [normed(3, 64, 7, 2, 1, nn.ReLU), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for i in range(count):
            parts.append(Bottleneck(source, 64 << stage, 2 if i == 0 and stage else 1))
            source = 256 << stage
    return classifier(parts, source, classes)


def mobilenet_v2(classes):
    parts, source = [normed(3, 32, 3, 2, 1, nn.ReLU6)], 32
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expand, target, count, stride in rows:
        for i in range(count):
            parts.append(Inverted(source, target, stride if i == 0 else 1, expand))
            source = target
    return classifier([*parts, normed(source, 1280, 1, 1, 1, nn.ReLU6)], 1280, classes)


def add_adamw(parser):
    parser.add_argument("--adamw", choices=["fused", "foreach", "compiled"], default="fused",
                        help="fused: one kernel; foreach: PyTorch's default; compiled: torch.compile of its step")


def train_step(compile, kind, net, loss_of, lr):
    """The model is compiled; backward and the optimiser's step run outside it, as PyTorch's users have it."""
    parameters = list(net.parameters())
    capturable = parameters[0].is_cuda  # CUDA graphs record it
    optimizer = torch.optim.AdamW(parameters, lr=lr, fused=kind == "fused", capturable=capturable)
    update = torch.compile(optimizer.step) if kind == "compiled" and compile is torch.compile else optimizer.step
    model = compile(net)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model)
        loss.backward()
        update()
        return loss
    return step
