"""Softmax and losses."""
import torch


def cases(case, error, t):
    case("softmax", [t.g(3, 5)], "a.softmax(-1)")
    case("softmax dim 0", [t.g(3, 5)], "a.softmax(0)")
    case("log_softmax", [t.g(3, 5)], "a.log_softmax(1)")
    case("softmax large", [torch.tensor([[1000.0, 1001.0, -1000.0]])], "a.softmax(-1)")
    target = t.i(5, 6)
    ignored = torch.tensor([0, -100, 3, 4, -100, 1])
    case("nll_loss", [t.g(6, 5), target], "F.nll_loss(a, b)", "lt.nll_loss(a, b)", exact=True)
    case("cross_entropy", [t.g(6, 5), target], "F.cross_entropy(a, b)", "lt.cross_entropy(a, b)")
    case("cross_entropy sum", [t.g(6, 5), target], 'F.cross_entropy(a, b, reduction="sum")', 'lt.cross_entropy(a, b, {reduction="sum"})')
    case("cross_entropy none", [t.g(6, 5), target], 'F.cross_entropy(a, b, reduction="none")', 'lt.cross_entropy(a, b, {reduction="none"})')
    case("cross_entropy ignore", [t.g(6, 5), ignored], "F.cross_entropy(a, b)", "lt.cross_entropy(a, b)")
    case("cross_entropy weight", [t.g(6, 5), target, t.f(5).abs() + 0.5], "F.cross_entropy(a, b, c)", "lt.cross_entropy(a, b, c)")
    case("mse_loss", [t.g(6), t.g(6)], "F.mse_loss(a, b)", "lt.mse_loss(a, b)")
