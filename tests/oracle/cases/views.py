"""Views and indexing."""
import torch


def cases(case, error, t):
    case("view", [t.g(3, 4)], "a.view(2, -1)")
    case("reshape of a transpose", [t.g(3, 4)], "a.transpose(0, 1).reshape(-1)")
    case("permute", [t.g(2, 3, 4)], "a.permute(2, 0, 1)")
    case("expand", [t.g(3, 1)], "a.expand(2, 3, 4)")
    case("select", [t.g(3, 4)], "a.select(1, -1)")
    case("index row", [t.g(3, 4)], "a[1]", "a[1]")
    case("slice", [t.g(7, 2)], "a[1:6:2]", 'a["1:6:2"]')
    case("slice columns", [t.g(3, 6)], "a[:, -3:]", 'a[":, -3:"]')
    case("slice table", [t.g(5, 6)], "a[1:4, 2]", "a[{{1, 4}, 2}]")
    case("newaxis", [t.g(3)], "a[:, None]", 'a[":, None"]')
    case("ellipsis", [t.g(2, 3, 4)], "a[..., 0]", 'a["..., 0"]')
    case("unsqueeze", [t.g(3)], "a.unsqueeze(0)")
    case("squeeze", [t.g(1, 3, 1)], "a.squeeze()")
    case("squeeze dim", [t.g(1, 3, 1)], "a.squeeze(0)")
    case("flatten", [t.g(2, 3, 4)], "a.flatten(1)")
    case("mask index", [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True])], "a[b]", "a[b]", variants=["strided", "float64", "float16", "bfloat16"])
    case("tensor index", [t.g(5, 2), torch.tensor([4, 0, 4])], "a[b]", "a[b]")
