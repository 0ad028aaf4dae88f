"""Windows, slopes at places, diagonals that are filled; pools by norms and their inverses, losses of several labels, images read by cubic weights."""
import torch


def cases(case, error, t):
    case("lp_pool1d", [t.u(0.5, 2, 2, 3, 8).requires_grad_()], "F.lp_pool1d(a, 2, 3)", tol=1e-5, variants=["strided", "float64"])
    case("lp_pool2d", [t.u(0.5, 2, 2, 3, 7, 8).requires_grad_()], "F.lp_pool2d(a, 2, 3, stride=2)", tol=1e-5, variants=["strided", "float64"])
    case("lp_pool2d pairs", [t.u(0.5, 2, 2, 3, 7, 8).requires_grad_()], "F.lp_pool2d(a, 1.5, (2, 3), ceil_mode=True)", tol=1e-5, grad_tol=1e-5, variants=["float64"])

    places = torch.tensor([[[1, 2, 5], [0, 3, 4]]])
    case("max_unpool1d", [t.g(1, 2, 3), places], "F.max_unpool1d(a, b, 2)", variants=["strided", "float64"])
    case("max_unpool1d size", [t.g(1, 2, 3), places], "F.max_unpool1d(a, b, 2, output_size=(7,))", variants=[])
    case("max_unpool2d", [t.g(1, 2, 1, 3), places.view(1, 2, 1, 3)], "F.max_unpool2d(a, b, (2, 2))", variants=["strided", "float64"])
    case("max_unpool2d size", [t.g(2, 1, 3), places.view(2, 1, 3)], "F.max_unpool2d(a, b, 2, output_size=(3, 7))", variants=[])
    case("max_unpool2d of a pool", [t.distinct(1, 2, 6, 6)], "F.max_unpool2d(*F.max_pool2d(a, 2, return_indices=True), 2)",
         "lt.nn.functional.max_unpool2d(select(1, lt.nn.functional.max_pool2d_with_indices(a, 2)), (select(2, lt.nn.functional.max_pool2d_with_indices(a, 2))), 2)",
         variants=[])
    error("max_unpool2d far size", [t.f(1, 2, 1, 3), places.view(1, 2, 1, 3)], "F.max_unpool2d(a, b, 2, output_size=(9, 9))")
    error("max_unpool2d shapes", [t.f(1, 2, 1, 3), places.view(1, 2, 3, 1)], "F.max_unpool2d(a, b, 2)")

    labels = torch.tensor([[3, 0, -1, 1], [1, -1, 0, 2], [0, 1, 2, 3]])
    for reduction in ("mean", "sum", "none"):
        case(f"multilabel_margin_loss {reduction}", [t.g(3, 4), labels], f"F.multilabel_margin_loss(a, b, reduction='{reduction}')", variants=["strided", "float64"])
        case(f"multilabel_soft_margin_loss {reduction}", [t.g(3, 4), t.mask(3, 4).float()], f"F.multilabel_soft_margin_loss(a, b, reduction='{reduction}')",
             variants=["strided", "float64"])
    case("multilabel_margin_loss of one", [t.g(4), labels[0]], "F.multilabel_margin_loss(a, b)", variants=[])
    case("multilabel_soft_margin_loss weight", [t.g(3, 4), t.mask(3, 4).float(), t.f(4)], "F.multilabel_soft_margin_loss(a, b, weight=c)", variants=["float64"])
    error("multilabel_margin_loss shapes", [t.f(3, 4), labels[:2]], "F.multilabel_margin_loss(a, b)")

    for padding in ("zeros", "border", "reflection"):
        for align in (True, False):
            case(f"grid_sample bicubic {padding} {align}", [t.g(2, 3, 4, 5), t.u(-1.4, 1.4, 2, 3, 6, 2).requires_grad_()],
                 f"F.grid_sample(a, b, mode='bicubic', padding_mode='{padding}', align_corners={align})", tol=1e-5, grad_tol=2e-4, variants=["strided", "float64"])

    for window in ("hann", "hamming", "blackman", "bartlett"):
        for n in (0, 1, 2, 7, 8):
            for periodic in (True, False):
                case(f"{window}_window {n} {periodic}", [], f"torch.{window}_window({n}, {periodic})", variants=[])
        case(f"{window}_window of doubles", [], f"torch.{window}_window(6, dtype=torch.float64)", variants=[])
    case("hamming_window coefficients", [], "torch.hamming_window(6, True, 0.6, 0.4)", variants=[])
    error("hann_window length", [], "torch.hann_window(-1)")
    error("hann_window of integers", [], "torch.hann_window(4, dtype=torch.int64)")

    for order in (1, 2):
        case(f"gradient at places {order}", [t.g(5, 4), t.u(0.5, 1.5, 5).cumsum(0).detach(), t.u(0.5, 1.5, 4).cumsum(0).detach()],
             f"torch.gradient(a, spacing=(b, c), edge_order={order})", f"unpack(lt.gradient(a, {{spacing = {{b, c}}, edge_order = {order}}}))", tol=1e-5)
        case(f"gradient at places along one {order}", [t.g(5, 4), t.u(0.5, 1.5, 4).cumsum(0).detach()],
             f"torch.gradient(a, spacing=(b,), dim=1, edge_order={order})[0]", f"lt.gradient(a, {{spacing = {{b}}, dim = 1, edge_order = {order}}})[1]", tol=1e-5)
    case("gradient by steps", [t.g(5, 4)], "torch.gradient(a, spacing=(2, 3))", "unpack(lt.gradient(a, {spacing = {2, 3}}))")
    case("gradient by fractions", [t.g(5, 4)], "torch.gradient(a, spacing=(2, 0.5))", "unpack(lt.gradient(a, {spacing = {2, 0.5}}))")
    case("gradient along one by a fraction", [t.g(5, 4)], "torch.gradient(a, spacing=[0.25], dim=1, edge_order=2)",
         "unpack(lt.gradient(a, {spacing = {0.25}, dim = 1, edge_order = 2}))", tol=1e-5, variants=[])
    error("gradient of bytes", [t.i(9, 5, dtype=torch.uint8)], "torch.gradient(a)")
    error("gradient of bools", [t.mask(5)], "torch.gradient(a)")
    error("gradient places", [t.f(5, 4), t.f(5)], "torch.gradient(a, spacing=(b,))", "lt.gradient(a, {spacing = {b}})")

    for shape in ((3, 3), (7, 3), (3, 7), (2, 2, 2)):
        for wrap in (False, True):
            case(f"fill_diagonal_ {shape} {wrap}", [t.f(*shape)], f"a.clone().fill_diagonal_(5, {wrap})", variants=["strided"])
    case("fill_diagonal_ gradient", [t.g(3, 3)], "(a * 2).fill_diagonal_(0)", "a:mul(2):fill_diagonal_(0)", variants=[])
    error("fill_diagonal_ of a vector", [t.f(3)], "a.clone().fill_diagonal_(1)")
    error("fill_diagonal_ of a box", [t.f(2, 3, 2)], "a.clone().fill_diagonal_(1)")
