"""Convolutions, pools, and normalisations by channel."""
import torch

# Sums over a receptive field, in another order than PyTorch's.
SUM = 1e-5
# Half types and empty tensors are tried on a few.
some = ["strided", "float64"]


def convolutions(case, error, t):
    image, weight, bias = [2, 2, 6, 5], [3, 2, 3, 3], [3]
    for text in ("", "padding=1", "stride=2", "stride=(2, 1), padding=(0, 1)", "dilation=2, padding=2", "padding='same'", "padding='valid'"):
        more = ", " + text if text else ""
        case(f"conv2d {text}", [t.g(*image), t.g(*weight), t.g(*bias)], f"F.conv2d(a, b, c{more})", tol=SUM, grad_tol=SUM,
             variants=["strided", "float64"] if text else ["strided", "float64", "float16", "empty"])
    case("conv2d no bias", [t.g(*image), t.g(*weight)], "F.conv2d(a, b)", tol=SUM, grad_tol=SUM)
    case("conv2d positional", [t.g(*image), t.g(*weight), t.g(*bias)], "F.conv2d(a, b, c, 2, 1, 1, 1)", tol=SUM, grad_tol=SUM, variants=some)
    case("conv2d groups", [t.g(2, 4, 5, 5), t.g(6, 2, 3, 3), t.g(6)], "F.conv2d(a, b, c, groups=2, padding=1)", tol=SUM, grad_tol=SUM, variants=some)
    case("conv2d depthwise", [t.g(1, 3, 5, 5), t.g(3, 1, 3, 3)], "F.conv2d(a, b, groups=3, stride=2)", tol=SUM, grad_tol=SUM, variants=some)
    case("conv2d unbatched", [t.g(3, 5, 5), t.g(2, 3, 3, 3), t.g(2)], "F.conv2d(a, b, c)", tol=SUM, grad_tol=SUM, variants=some)
    case("conv2d one by one", [t.g(2, 3, 4, 4), t.g(18, 3, 1, 1), t.g(18)], "F.conv2d(a, b, c)", tol=SUM, grad_tol=SUM, variants=some)
    case("conv2d even kernel same", [t.g(1, 2, 5, 5), t.g(2, 2, 2, 4)], "F.conv2d(a, b, padding='same')", tol=SUM, grad_tol=SUM, variants=some)
    case("conv2d channels last", [t.g(2, 6, 5, 3), t.g(4, 3, 3, 3), t.g(4)], "F.conv2d(a.permute(0, 3, 1, 2), b, c, padding=1)", tol=SUM, grad_tol=SUM, variants=some)
    case("conv2d batch of none", [t.g(0, 3, 5, 5), t.g(2, 3, 3, 3), t.g(2)], "F.conv2d(a, b, c)", variants=[])
    case("conv2d NaN", [t.t([[[[1.0, float("nan"), 3.0, 4.0], [5.0, 6.0, 7.0, float("inf")]]]]), t.g(1, 1, 2, 2)], "F.conv2d(a, b)", variants=[])
    case("conv1d", [t.g(2, 3, 7), t.g(4, 3, 3), t.g(4)], "F.conv1d(a, b, c, stride=2, padding=1)", tol=SUM, grad_tol=SUM, variants=some)
    case("conv1d same", [t.g(2, 3, 7), t.g(4, 3, 4), t.g(4)], "F.conv1d(a, b, c, padding='same', dilation=1)", tol=SUM, grad_tol=SUM, variants=some)
    case("conv1d unbatched groups", [t.g(4, 7), t.g(4, 2, 3)], "F.conv1d(a, b, groups=2, dilation=2)", tol=SUM, grad_tol=SUM, variants=some)
    for text in ("", "stride=2", "stride=2, padding=1, output_padding=1", "stride=(2, 3), padding=(1, 0), dilation=2", "groups=2"):
        channels = 4
        out = 2
        more = ", " + text if text else ""
        case(f"conv_transpose2d {text}", [t.g(2, channels, 4, 3), t.g(channels, out, 3, 3), t.g(out * (2 if "groups" in text else 1))],
             f"F.conv_transpose2d(a, b, c{more})", tol=SUM, grad_tol=SUM, variants=some)
    case("conv_transpose1d", [t.g(2, 3, 5), t.g(3, 2, 4), t.g(2)], "F.conv_transpose1d(a, b, c, stride=2, padding=1)", tol=SUM, grad_tol=SUM, variants=some)
    whole = lambda *shape: t.i(9, *shape, low=-8)
    for text in ("", "stride=2, padding=1", "dilation=(2, 1), padding='same'"):
        more = ", " + text if text else ""
        case(f"conv2d integers {text}", [whole(2, 3, 6, 5), whole(4, 3, 3, 2), whole(4)], f"F.conv2d(a, b, c{more})", variants=["strided"])
    case("conv2d bytes", [t.i(9, 1, 2, 4, 4, dtype=torch.uint8), t.i(9, 2, 2, 2, 2, dtype=torch.uint8)], "F.conv2d(a, b)", variants=[])
    case("conv2d integers groups", [whole(1, 4, 5, 5), whole(6, 2, 3, 3)], "F.conv2d(a, b, groups=2)", variants=[])
    case("conv1d integers", [whole(3, 7), whole(4, 3, 3), whole(4)], "F.conv1d(a, b, c, stride=2, padding=1)", variants=["strided"])
    case("conv_transpose1d integers", [whole(2, 3, 5), whole(3, 2, 4), whole(2)], "F.conv_transpose1d(a, b, c, stride=2, padding=1)", variants=[])
    for text in ("stride=2, padding=1, output_padding=1", "stride=(2, 3), padding=(1, 0), dilation=2", "stride=2, output_padding=1, groups=2"):
        case(f"conv_transpose2d integers {text}", [whole(2, 4, 4, 3), whole(4, 2, 3, 3)], f"F.conv_transpose2d(a, b, {text})", variants=[])
    error("conv2d channels", [t.f(1, 2, 5, 5), t.f(2, 3, 3, 3)], "F.conv2d(a, b)")
    error("conv2d ranks", [t.f(5, 5), t.f(2, 3, 3, 3)], "F.conv2d(a, b)")
    error("conv2d weight ranks", [t.f(1, 3, 5, 5), t.f(2, 3, 3)], "F.conv2d(a, b)")
    error("conv2d large kernel", [t.f(1, 3, 2, 2), t.f(2, 3, 3, 3)], "F.conv2d(a, b)")
    error("conv2d bias", [t.f(1, 3, 5, 5), t.f(2, 3, 3, 3), t.f(3)], "F.conv2d(a, b, c)")
    error("conv2d dtypes", [t.f(1, 3, 5, 5), t.f(2, 3, 3, 3, dtype=torch.float64)], "F.conv2d(a, b)")
    error("conv2d stride", [t.f(1, 3, 5, 5), t.f(2, 3, 3, 3)], "F.conv2d(a, b, stride=0)")
    error("conv2d padding", [t.f(1, 3, 5, 5), t.f(2, 3, 3, 3)], "F.conv2d(a, b, padding=-1)")
    error("conv2d strided same", [t.f(1, 3, 5, 5), t.f(2, 3, 3, 3)], "F.conv2d(a, b, padding='same', stride=2)")
    error("conv2d groups wrong", [t.f(1, 4, 5, 5), t.f(3, 2, 3, 3)], "F.conv2d(a, b, groups=2)")
    error("conv_transpose2d output_padding", [t.f(1, 2, 3, 3), t.f(2, 2, 3, 3)], "F.conv_transpose2d(a, b, output_padding=2)")


def pools(case, error, t):
    for name, size, kernel, count in (("", (2, 3, 7, 9), "3", "4"), (" sizes", (1, 2, 8, 6), "(2, 3)", "(5, 2)"), (" of one", (1, 1, 5, 5), "2", "(1, 4)")):
        batch, channels = size[0], size[1]
        case("fractional_max_pool2d" + name, [t.g(*size), t.u(0, 1, batch, channels, 2, grad=False)],
             f"F.fractional_max_pool2d(a, {kernel}, {count}, return_indices=True, _random_samples=b)", variants=["float64", "strided"])
    case("fractional_max_pool2d ratio", [t.g(3, 7, 9), t.u(0, 1, 1, 3, 2, grad=False)],
         "F.fractional_max_pool2d(a, 2, output_ratio=(0.5, 0.7), _random_samples=b)", variants=["float64"])
    error("fractional_max_pool2d too large", [t.f(1, 1, 5, 5)], "F.fractional_max_pool2d(a, 3, 4)")
    error("fractional_max_pool2d without a size", [t.f(1, 1, 5, 5)], "F.fractional_max_pool2d(a, 3)")
    error("fractional_max_pool2d dims", [t.f(5, 5)], "F.fractional_max_pool2d(a, 3, 3)")
    for text in ("2", "(3, 2)", "3, 1", "3, 2, 1", "2, padding=1", "2, stride=2, ceil_mode=True", "2, stride=1, dilation=2", "3, 2, 1, 1, True"):
        case(f"max_pool2d {text}", [t.g(1, 2, 7, 5)], f"F.max_pool2d(a, {text})")
        if "dilation" in text or "1, 1" in text:
            continue
        case(f"avg_pool2d {text}", [t.g(1, 2, 7, 5)], f"F.avg_pool2d(a, {text})", variants=some)
    for name in ("indices", "ceil"):
        more = ", ceil_mode=True" if name == "ceil" else ""
        case(f"max_pool2d {name}", [t.g(2, 2, 5, 6)], f"F.max_pool2d(a, 3, 2, 1{more}, return_indices=True)", variants=some)
    case("max_pool2d unbatched", [t.g(3, 6, 6)], "F.max_pool2d(a, 2)", variants=some)
    case("max_pool2d large", [t.g(1, 2, 9, 9)], "F.max_pool2d(a, 7, 1, 3)", variants=some)
    case("max_pool2d channels last", [t.g(2, 6, 6, 3)], "F.max_pool2d(a.permute(0, 3, 1, 2), 2)", variants=some)
    case("max_pool2d NaN", [t.t([[[1.0, float("nan"), 3.0, 4.0], [5.0, 6.0, float("-inf"), float("-inf")]]])], "F.max_pool2d(a, 2)", variants=some)
    case("max_pool2d ties", [torch.zeros(1, 4, 4).requires_grad_(True)], "F.max_pool2d(a, 3, 1, 1)", variants=some)
    case("max_pool2d integers", [t.i(9, 1, 2, 4, 4)], "F.max_pool2d(a, 2)", variants=[])
    case("max_pool1d", [t.g(2, 3, 9)], "F.max_pool1d(a, 3, stride=2, padding=1)", variants=some)
    case("max_pool1d indices", [t.g(2, 3, 9)], "F.max_pool1d(a, 3, return_indices=True)", variants=some)
    case("avg_pool2d no padding counted", [t.g(1, 2, 7, 5)], "F.avg_pool2d(a, 3, 2, 1, count_include_pad=False)", variants=some)
    case("avg_pool2d ceil", [t.g(1, 2, 7, 6)], "F.avg_pool2d(a, 3, 2, 1, ceil_mode=True)", variants=some)
    case("avg_pool2d ceil no padding counted", [t.g(1, 2, 7, 6)], "F.avg_pool2d(a, 3, 2, 1, True, False)", variants=some)
    case("avg_pool2d divisor", [t.g(1, 2, 7, 5)], "F.avg_pool2d(a, 2, divisor_override=3)", variants=some)
    case("avg_pool2d large", [t.g(1, 2, 8, 8)], "F.avg_pool2d(a, 6, 1)", variants=some)
    case("avg_pool1d", [t.g(2, 3, 9)], "F.avg_pool1d(a, 3, stride=2, padding=1)")
    for size in ("1", "(2, 3)", "(3, 4)", "7"):
        case(f"adaptive_avg_pool2d {size}", [t.g(2, 2, 4, 6)], f"F.adaptive_avg_pool2d(a, {size})", variants=some)
        case(f"adaptive_max_pool2d {size}", [t.g(2, 2, 4, 6)], f"F.adaptive_max_pool2d(a, {size})", variants=some)
    for size in ["3", "7"]:
        case(f"adaptive_max_pool2d ties {size}", [t.t([[[[1., 2, 2, 1, 0, 2], [2, 2, 1, 0, 2, 2], [0, 1, 1, 1, 1, 0], [0, 0, 2, 0, 0, 0]]]], grad=True)],
             f"F.adaptive_max_pool2d(a, {size})")
    case("adaptive_avg_pool1d", [t.g(2, 3, 7)], "F.adaptive_avg_pool1d(a, 3)")
    for size in ("1", "(2, 3)", "(3, 4)", "7"):
        case(f"adaptive_max_pool2d indices {size}", [t.g(2, 2, 4, 6)], f"F.adaptive_max_pool2d(a, {size}, return_indices=True)", variants=some)
    case("adaptive_max_pool1d indices", [t.g(2, 3, 7)], "F.adaptive_max_pool1d(a, 3, return_indices=True)", variants=some)
    case("adaptive_avg_pool2d of nothing", [t.f(2, 2, 4, 6)], "F.adaptive_avg_pool2d(a, 0)", variants=[])
    case("avg_pool2d integers", [t.i(9, 1, 2, 6, 6)], "F.avg_pool2d(a, 3, 2, 1, True)", variants=["strided"])
    case("avg_pool1d integers", [t.i(9, 2, 3, 9)], "F.avg_pool1d(a, 3, stride=2, padding=1)", variants=["strided"])
    case("avg_pool2d expanded", [t.f(1, 1, 6, 6)], "F.avg_pool2d(a.expand(1, 3, 6, 6), 2)", variants=[])
    error("max_pool2d padding", [t.f(1, 2, 5, 5)], "F.max_pool2d(a, 2, padding=2)")
    error("max_pool2d kernel", [t.f(1, 2, 5, 5)], "F.max_pool2d(a, 0)")
    error("max_pool2d rank", [t.f(5, 5)], "F.max_pool2d(a, 2)")
    error("max_pool2d small", [t.f(1, 2, 2, 2)], "F.max_pool2d(a, 3)")
    error("max_pool2d list", [t.f(1, 2, 5, 5)], "F.max_pool2d(a, (2, 2, 2))")
    error("avg_pool2d divisor zero", [t.f(1, 2, 5, 5)], "F.avg_pool2d(a, 2, divisor_override=0)")


def norms(case, error, t):
    case("batch_norm", [t.g(3, 2, 4, 3), t.g(2), t.g(2)], "F.batch_norm(a, None, None, b, c, True)", grad_tol=SUM, variants=some)
    case("batch_norm half", [t.g(3, 2, 4, 3), t.g(2), t.g(2)], "F.batch_norm(a, None, None, training=True, eps=0.1)", variants=some)
    case("batch_norm eval", [t.g(3, 2, 4, 3), t.g(2), t.g(2), t.f(2), t.f(2, positive=True)], "F.batch_norm(a, d, e, b, c)", variants=some)
    case("batch_norm rows", [t.g(5, 3)], "F.batch_norm(a, None, None, training=True)", grad_tol=SUM, variants=some)
    case("group_norm", [t.g(2, 6, 3, 2), t.g(6), t.g(6)], "F.group_norm(a, 3, b, c)", grad_tol=SUM, variants=some)
    case("group_norm plain", [t.g(2, 4, 5)], "F.group_norm(a, 2)", grad_tol=SUM, variants=some)
    case("instance_norm", [t.g(2, 3, 4, 3), t.f(3), t.f(3, positive=True), t.g(3), t.g(3)],
         "F.instance_norm(a, None, None, d, e)", grad_tol=SUM, variants=some)
    error("batch_norm one value", [t.f(1, 3)], "F.batch_norm(a, None, None, training=True)")
    error("batch_norm weight", [t.f(2, 3, 2, 2), t.f(4)], "F.batch_norm(a, None, None, b, training=True)")
    error("group_norm groups", [t.f(2, 6, 3)], "F.group_norm(a, 4)")


def cases(case, error, t):
    convolutions(case, error, t)
    pools(case, error, t)
    norms(case, error, t)
