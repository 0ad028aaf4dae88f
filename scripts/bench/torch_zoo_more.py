"""More models for torch_zoo.py: convnext, unet, gat, dlrm and swin, equal to those of scripts/models."""
import torch
import torch.nn as nn
import torch.nn.functional as F

# convnext.lua --------------------------------------------------------------------------------------------------------


class ChannelNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        far = x - x.mean(1, keepdim=True)
        unit = far / torch.sqrt(far.pow(2).mean(1, keepdim=True) + 1e-6)
        return self.weight[:, None, None] * unit + self.bias[:, None, None]


class ConvNeXtBlock(nn.Module):
    def __init__(self, d, scale):
        super().__init__()
        self.depthwise = nn.Conv2d(d, d, 7, padding=3, groups=d)
        self.norm, self.act = nn.LayerNorm(d, eps=1e-6), nn.GELU()
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.gamma = nn.Parameter(scale * torch.ones(d))

    def forward(self, x):
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.gamma * self.down(self.act(self.up(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, s):
        super().__init__()
        d = s.d
        self.stages = nn.Sequential(nn.Conv2d(3, d, 4, stride=4), ChannelNorm(d))
        for i, count in enumerate([2, 2, 6, 2]):
            if i > 0:
                self.stages.append(nn.Sequential(ChannelNorm(d), nn.Conv2d(d, 2 * d, 2, stride=2)))
                d = 2 * d
            for _ in range(count):
                self.stages.append(ConvNeXtBlock(d, s.scale))
        self.norm, self.head = nn.LayerNorm(d, eps=1e-6), nn.Linear(d, s.classes)

    def forward(self, x):
        return self.head(self.norm(self.stages(x).mean((-2, -1))))


# unet.lua ------------------------------------------------------------------------------------------------------------


def double_conv(c, k):
    return nn.Sequential(nn.Conv2d(c, k, 3, padding=1, bias=False), nn.GroupNorm(4, k), nn.SiLU(),
                         nn.Conv2d(k, k, 3, padding=1, bias=False), nn.GroupNorm(4, k), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, s):
        super().__init__()
        c = s.width
        self.first, self.pool = double_conv(3, c), nn.MaxPool2d(2)
        self.downs, self.ups, self.joins = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for _ in range(s.levels):
            self.downs.append(double_conv(c, 2 * c))
            c = 2 * c
        for _ in range(s.levels):
            self.ups.append(nn.ConvTranspose2d(c, c // 2, 2, stride=2))
            self.joins.append(double_conv(c, c // 2))
            c = c // 2
        self.head = nn.Conv2d(c, s.classes, 1)

    def forward(self, x):
        skips, x = [], self.first(x)
        for down in self.downs:
            skips.append(x)
            x = down(self.pool(x))
        for up, join in zip(self.ups, self.joins):
            x = join(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)

    @staticmethod
    def draw(s, random):
        return random.floats((s.batch, 3, s.image, s.image)), random.below(s.classes, (s.batch, s.image, s.image))


# gat.lua -------------------------------------------------------------------------------------------------------------


class GATLayer(nn.Module):
    def __init__(self, c, d, heads):
        super().__init__()
        self.heads = heads
        self.linear, self.skip = nn.Linear(c, d, bias=False), nn.Linear(c, d)
        self.source = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, d // heads)))
        self.target = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, d // heads)))

    def attention(self, values, source, target):
        nodes = values.shape[0]
        score = (values * self.source).sum(-1)[source] + (values * self.target).sum(-1)[target]
        score = F.leaky_relu(score, 0.2)
        most = score.new_zeros(nodes, self.heads).scatter_reduce(0, target[:, None].expand_as(score), score.detach(),
                                                                 "amax", include_self=False)
        weight = (score - most[target]).exp()
        sum = score.new_zeros(nodes, self.heads).index_add(0, target, weight)
        return weight / (sum[target] + 1e-16)

    def forward(self, x, source, target):
        values = self.linear(x).view(x.shape[0], self.heads, -1)
        weight = self.attention(values, source, target)
        out = torch.zeros_like(values).index_add(0, target, values[source] * weight[..., None])
        return out.flatten(1) + self.skip(x)


class GAT(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.layers = nn.ModuleList(GATLayer(s.features if i == 0 else s.d, s.d, s.heads) for i in range(s.layers))
        self.dropout, self.head = nn.Dropout(s.dropout), nn.Linear(s.d, s.classes)

    def forward(self, x, edges):
        source, target = edges.unbind(0)
        for layer in self.layers:
            x = self.dropout(F.elu(layer(x, source, target)))
        return self.head(x)

    @staticmethod
    def draw(s, random):
        edges = torch.cat([random.below(s.nodes, (2, s.edges)), torch.arange(s.nodes).expand(2, -1)], 1)
        return (random.floats((s.nodes, s.features)), edges), random.below(s.classes, (s.nodes,))


# dlrm.lua ------------------------------------------------------------------------------------------------------------


def mlp(*widths):
    layers = []
    for c, k in zip(widths, widths[1:]):
        layers += [nn.Linear(c, k), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(s.rows, s.d, mode="sum") for _ in range(s.tables))
        self.bottom = mlp(s.dense, 16 * s.d, 4 * s.d, s.d)
        self.register_buffer("pairs", torch.tril_indices(s.tables + 1, s.tables + 1, -1))
        self.top = mlp(s.d + self.pairs.shape[1], 16 * s.d, 8 * s.d, 1)

    def forward(self, dense, ids):
        x = self.bottom(dense).relu()
        all = torch.stack([x] + [bag(ids[i]) for i, bag in enumerate(self.bags)], 1)
        dots = torch.bmm(all, all.transpose(1, 2))
        rows, columns = self.pairs.unbind(0)
        return self.top(torch.cat([x, dots[:, rows, columns]], 1)).squeeze(1)

    @staticmethod
    def draw(s, random):
        dense, ids = random.floats((s.batch, s.dense)), random.below(s.rows, (s.tables, s.batch, s.bag))
        return (dense, ids), random.below(2, (s.batch,))

    @staticmethod
    def loss(out, y):
        return F.binary_cross_entropy_with_logits(out, y.to(out.dtype))


# swin.lua ------------------------------------------------------------------------------------------------------------


def to_windows(x, w):
    b, height, width, d = x.shape
    return x.view(b, height // w, w, width // w, w, d).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, d)


def from_windows(windows, w, height, width):
    d = windows.shape[-1]
    return windows.view(-1, height // w, width // w, w, w, d).permute(0, 1, 3, 2, 4, 5).reshape(-1, height, width, d)


def shift_mask(side, w, shift):
    region, n = torch.zeros(1, side, side, 1), 0
    cuts = slice(0, side - w), slice(side - w, side - shift), slice(side - shift, side)
    for rows in cuts:
        for columns in cuts:
            region[:, rows, columns] = n
            n += 1
    region = to_windows(region, w).squeeze(-1)
    return region.unsqueeze(1).ne(region.unsqueeze(2)) * -100.0


def relative_index(w):
    at = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(w), indexing="ij")).flatten(1)
    far = at[:, :, None] - at[:, None] + (w - 1)
    return far[0] * (2 * w - 1) + far[1]


class WindowAttention(nn.Module):
    def __init__(self, d, heads, w):
        super().__init__()
        self.heads, self.scale = heads, (d // heads)**-0.5
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.table = nn.Parameter(torch.randn((2 * w - 1)**2, heads) * 0.02)
        self.register_buffer("index", relative_index(w), persistent=False)

    def forward(self, x, mask):
        _, n, d = x.shape
        q, k, v = self.qkv(x).view(-1, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * self.scale) @ k.transpose(-2, -1)
        scores = scores + self.table[self.index.view(-1)].view(n, n, -1).permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            scores = scores.view(-1, mask.shape[0], self.heads, n, n) + mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, self.heads, n, n)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))


class SwinBlock(nn.Module):
    def __init__(self, d, heads, side, w, shift):
        super().__init__()
        self.window, self.shift = w, shift if side > w else 0
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(d), WindowAttention(d, heads, w), nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.register_buffer("mask", shift_mask(side, w, shift) if self.shift > 0 else None, persistent=False)

    def forward(self, x):
        _, height, width, _ = x.shape
        y = self.norm1(x)
        if self.shift > 0:
            y = y.roll((-self.shift, -self.shift), (1, 2))
        y = from_windows(self.attention(to_windows(y, self.window), self.mask), self.window, height, width)
        if self.shift > 0:
            y = y.roll((self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class Merge(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * d), nn.Linear(4 * d, 2 * d, bias=False)

    def forward(self, x):
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.reduce(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    def __init__(self, s):
        super().__init__()
        d, side = s.d, s.image // 4
        self.patches, self.norm0 = nn.Conv2d(3, d, 4, stride=4), nn.LayerNorm(d)
        self.blocks = nn.Sequential()
        for stage in range(2):
            for i in range(2):
                self.blocks.append(SwinBlock(d, d // s.head, side, s.window, i * s.window // 2))
            if stage == 0:
                self.blocks.append(Merge(d))
                d, side = 2 * d, side // 2
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, s.classes)

    def forward(self, images):
        x = self.norm0(self.patches(images).permute(0, 2, 3, 1))
        return self.head(self.norm(self.blocks(x)).mean((1, 2)))


MODELS = {
    "convnext": (ConvNeXt, dict(d=48, scale=1e-6, batch=8, image=64, classes=1000),
                 dict(d=8, scale=1e-6, batch=4, image=32, classes=10)),
    "unet": (UNet, dict(width=16, levels=3, batch=4, image=64, classes=10),
             dict(width=4, levels=2, batch=2, image=16, classes=5)),
    "gat": (GAT, dict(nodes=2048, edges=16384, features=128, d=128, heads=4, layers=3, classes=40, dropout=0.1),
            dict(nodes=20, edges=60, features=6, d=8, heads=2, layers=2, classes=5, dropout=0.0)),
    "dlrm": (DLRM, dict(tables=8, rows=10000, d=32, bag=4, dense=13, batch=512),
             dict(tables=3, rows=20, d=4, bag=2, dense=5, batch=8)),
    "swin": (Swin, dict(d=96, head=32, window=4, batch=8, image=64, classes=1000),
             dict(d=8, head=4, window=2, batch=4, image=32, classes=10)),
}
