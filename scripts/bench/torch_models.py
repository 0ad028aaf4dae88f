"""What torch_peer.py and torch_gpu_peer.py both train: the models of common.lua in PyTorch, and a train step with AdamW."""
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
    """A block of GPT-2: attention and a feed-forward net, each behind a norm and beside a sum."""
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
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.layers(x)))


def add_adamw(parser):
    parser.add_argument("--adamw", choices=["fused", "foreach", "compiled"], default="fused",
                        help="fused: one kernel; foreach: PyTorch's default; compiled: torch.compile of its step")


def train_step(compile, kind, net, loss_of, lr):
    """The model is compiled; backward and the optimiser's step run outside it, as PyTorch's users have it."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr, fused=kind == "fused")
    update = torch.compile(optimizer.step) if kind == "compiled" and compile is torch.compile else optimizer.step
    model = compile(net)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model)
        loss.backward()
        update()
        return loss
    return step
