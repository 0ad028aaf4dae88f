"""Deep chains, and tensors used twice."""


def cases(case, error, t):
    case("chain", [t.g(3, 4), t.g(4, 4)], "((a.mm(b).tanh() * a).sigmoid() + a).sum(0).exp()")
