"""Asks PyTorch what three networks give under CPU autocast: writes autocast_models.lua, which tests/lua/autocast.lua reads.

Inputs and parameters are sines of their number, so that nothing of them has to be written down; a gradient is recorded as its norm and its
product with cosines.
"""
import math
import os

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))


def values(shape, k, scale=0.5, grad=True):
    n = math.prod(shape)
    return torch.tensor([math.sin(i * 0.37 + k) * scale for i in range(n)], dtype=torch.float64).float().view(shape).requires_grad_(grad)


def mlp():
    p = [values((16, 8), 1), values((16,), 2), values((4, 16), 3), values((4,), 4)]
    x, y = values((5, 8), 5, 1, False), values((5, 4), 6, 1, False)
    h = F.linear(x, p[0], p[1]).relu()
    out = F.linear(h, p[2], p[3])
    return p, [h, out], F.mse_loss(out, y)


def convnet():
    p = [values((4, 2, 3, 3), 1), values((4,), 2), values((4,), 3) .detach().add(1).requires_grad_(True), values((4,), 4), values((5, 36), 5), values((5,), 6)]
    x, y = values((3, 2, 6, 6), 7, 1, False), torch.tensor([0, 3, 4])
    c = F.conv2d(x, p[0], p[1], padding=1)
    b = F.batch_norm(c, torch.zeros(4), torch.ones(4), p[2], p[3], True)
    m = F.max_pool2d(b.relu(), 2)
    out = F.linear(m.flatten(1), p[4], p[5])
    return p, [c, b, m, out], F.cross_entropy(out, y)


def gpt():
    d, heads, length, batch, words = 16, 2, 6, 2, 11
    p = [values((words, d), 1), values((length, d), 2), values((3 * d, d), 3), values((3 * d,), 4), values((d, d), 5), values((4 * d, d), 6),
         values((d, 4 * d), 7), values((d,), 8)]
    ids = torch.tensor([[i * 5 % words for i in range(length)], [i * 7 % words for i in range(length)]])
    y = torch.tensor([[i * 3 % words for i in range(length)], [i * 2 % words for i in range(length)]])
    x = F.embedding(ids, p[0]) + p[1]
    n = F.layer_norm(x, (d,), p[7])
    qkv = F.linear(n, p[2], p[3]).view(batch, length, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
    a = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
    x = x + F.linear(a.transpose(1, 2).reshape(batch, length, d), p[4])
    g = F.gelu(F.linear(F.layer_norm(x, (d,), p[7]), p[5]), approximate="tanh")
    x = x + F.linear(g, p[6])
    out = F.linear(F.layer_norm(x, (d,), p[7]), p[0])
    return p, [n, a, x, g, out], F.cross_entropy(out.view(-1, words), y.view(-1))


def main():
    torch.set_num_threads(1)
    with open(os.path.join(HERE, "autocast_models.lua"), "w") as out:
        out.write("-- Recorded by autocast_models.py: networks under autocast. Do not edit.\nreturn {\n")
        for model in (mlp, convnet, gpt):
            for dtype in (torch.bfloat16, torch.float16):
                with torch.autocast("cpu", dtype):
                    p, parts, loss = model()
                loss.backward()
                types = ", ".join(f'"{str(t.dtype)[6:]}"' for t in [*parts, loss])
                out.write(f"  {{model = {model.__name__!r}, dtype = {str(dtype)[6:]!r}, types = {{{types}}}, loss = {loss.item():.7g}, grads = {{\n")
                for t in p:
                    g = t.grad.double().view(-1)
                    assert t.grad.dtype == torch.float32
                    along = sum(float(v) * math.cos(i) for i, v in enumerate(g))
                    out.write(f"    {{{g.norm():.7g}, {along:.7g}}},\n")
                out.write("  }},\n")
        out.write("}\n")


if __name__ == "__main__":
    main()
