"""Trains the GPT of scripts/models/gpt.lua in PyTorch: PREFIX.weights.npz, PREFIX.run.npz (ids, targets, losses)."""
import sys
import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F

D, HEADS, LAYERS, VOCABULARY, LENGTH, BATCH, STEPS = 64, 4, 2, 40, 48, 8, 50


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.o, self.f1, self.f2 = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.l1(x)).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        return x + self.f2(F.gelu(self.f1(self.l2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p = nn.Embedding(VOCABULARY, D), nn.Embedding(LENGTH, D)
        self.b = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.n, self.hd = nn.LayerNorm(D), nn.Linear(D, VOCABULARY)

    def forward(self, ids):
        x = self.e(ids) + self.p(torch.arange(ids.shape[1]))
        for block in self.b:
            x = block(x)
        return self.hd(self.n(x))


prefix = sys.argv[1]
torch.manual_seed(0)
net = GPT()
numpy.savez(prefix + ".weights.npz", **{name: value.numpy() for name, value in net.state_dict().items()})
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
# Sequences that can be learned: each letter follows from the one before, but for one in eight.
follows = torch.randperm(VOCABULARY)
ids = torch.empty(STEPS, BATCH, LENGTH + 1, dtype=torch.int64)
ids[:, :, 0] = torch.randint(0, VOCABULARY, (STEPS, BATCH))
for i in range(LENGTH):
    noise = torch.randint(0, VOCABULARY, (STEPS, BATCH))
    ids[:, :, i + 1] = torch.where(torch.rand(STEPS, BATCH) < 0.125, noise, follows[ids[:, :, i]])
losses = []
for step in range(STEPS):
    loss = F.cross_entropy(net(ids[step, :, :-1]).flatten(0, 1), ids[step, :, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
numpy.savez(prefix + ".run.npz", ids=ids.numpy(), losses=numpy.array(losses, dtype="float64"))
