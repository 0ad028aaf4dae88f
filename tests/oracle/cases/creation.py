"""Creation."""


def cases(case, error, t):
    case("arange", [], "torch.arange(2, 11, 3)", "lt.arange(2, 11, 3)")
    case("full", [], "torch.full((2, 2), 3.5)", "lt.full({2, 2}, 3.5)")
