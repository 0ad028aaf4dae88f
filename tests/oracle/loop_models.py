"""Asks PyTorch what four programs give whose data decide how they go on: writes loop_models.lua, which
tests/lua/loop_models.lua reads.

Inputs and parameters are sines of their number, so that nothing of them has to be written down; a gradient is recorded
as its norm and its product with cosines.
"""
import math
import os

import torch

HERE = os.path.dirname(os.path.abspath(__file__))


def values(shape, k, scale=0.5, add=0.0, grad=True):
    n = math.prod(shape)
    data = [math.sin(i * 0.37 + k) * scale + add for i in range(n)]
    return torch.tensor(data, dtype=torch.float64).float().view(shape).requires_grad_(grad)


def rnn(steps):
    w, u, b, h = values((6, 6), 1), values((4, 6), 2), values((6,), 3), values((3, 6), 4)
    xs = values((steps, 3, 4), 5, 1)
    p, ys = [w, u, b, h, xs], []
    for x in xs:
        h = (h @ w + x @ u + b).tanh()
        ys.append(h)
    return p, h.sum() + torch.stack(ys).square().mean()


def newton(scale):
    a = values((5, 7), 1, 0.4 * scale, scale)
    x, last, steps = a * 1, a + 1, 0
    while (last - x).abs().max() > 1e-3:
        x, last, steps = (x + a / x) * 0.5, x, steps + 1
    return [a], (x * a).sum() + steps


def experts(shift):
    x = values((4, 6), 1, 1)
    p = [values((6, 8), 2), values((8, 6), 3), values((6, 8), 4), values((8, 6), 5), x]
    total = 0
    for row in range(4):
        first = x[row].sum() > shift
        up, down = (p[0], p[1]) if first else (p[2], p[3])
        h = x[row] @ up
        total = total + ((h.relu() if first else h.tanh()) @ down).square().sum()
    return p, total


def ode(tolerance):
    k, y = values((4, 4), 1), values((3, 4), 2, 1)
    p = [k, y]
    t, h, tries = torch.tensor(0.0), torch.tensor(0.5), 0

    def slope(y):
        return (y @ k).tanh()

    while t < 1 and tries < 40:
        h = torch.minimum(h, 1 - t)
        whole, half = y + h * slope(y), y + h / 2 * slope(y)
        twice = half + h / 2 * slope(half)
        if (whole - twice).abs().max() > tolerance:
            h = h / 2
        else:
            t, y, h = t + h, twice * 2 - whole, h * 1.5
        tries += 1
    return p, y.square().sum() + tries


def main():
    torch.set_num_threads(1)
    with open(os.path.join(HERE, "loop_models.lua"), "w") as out:
        out.write("-- Recorded by loop_models.py: programs whose data decide how they go on. Do not edit.\n")
        out.write("return {\n")
        cases = {rnn: (1, 5, 20, 33), newton: (1.0, 9.0, 200.0), experts: (-9.0, 0.0, 9.0), ode: (1.0, 0.01, 0.001)}
        for model, numbers in cases.items():
            for number in numbers:
                p, loss = model(number)
                loss.backward()
                out.write(f"  {{model = '{model.__name__}', number = {number}, loss = {loss.item():.7g}, grads = {{\n")
                for t in p:
                    g = t.grad if t.grad is not None else torch.zeros_like(t)
                    g = g.double().flatten()
                    cosines = torch.tensor([math.cos(i * 0.61) for i in range(g.numel())], dtype=torch.float64)
                    out.write(f"    {{{g.norm().item():.7g}, {(g @ cosines).item():.7g}}},\n")
                out.write("  }},\n")
        out.write("}\n")


if __name__ == "__main__":
    main()
