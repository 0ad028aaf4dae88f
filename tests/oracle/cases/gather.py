"""Gathering and scattering."""
import torch


def cases(case, error, t):
    case("gather", [t.g(3, 5), t.i(5, 3, 2)], "a.gather(1, b)")
    case("scatter_add", [t.g(3, 5), t.i(5, 3, 2), t.g(3, 2)], "a.scatter_add(1, b, c)")
    case("index_select", [t.g(5, 3), torch.tensor([4, 0, 0])], "a.index_select(0, b)")
    case("index_add", [t.g(5, 2), torch.tensor([4, 0, 4]), t.g(3, 2)], "a.index_add(0, b, c)")
