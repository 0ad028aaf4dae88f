"""Images resampled, taken apart and put together."""
import torch

some = ["strided", "float64"]


def off(grid, mode):
    """Between elements, where the gradient has no kink; nearest has none in the grid."""
    return (grid + 0.00037).requires_grad_(mode == "bilinear")


def cases(case, error, t):
    for text in ("size=5", "size=(3, 7)", "scale_factor=2", "scale_factor=0.6"):
        for mode in ("nearest", "nearest-exact", "bilinear"):
            case(f"interpolate {mode} {text}", [t.g(1, 2, 4, 5)], f"F.interpolate(a, {text}, mode='{mode}')", tol=1e-5, grad_tol=1e-5, variants=some)
    case("interpolate aligned", [t.g(1, 2, 4, 5)], "F.interpolate(a, (7, 9), mode='bilinear', align_corners=True)", tol=1e-5, grad_tol=1e-5, variants=some)
    case("interpolate aligned to one", [t.g(1, 2, 4, 5)], "F.interpolate(a, 1, mode='bilinear', align_corners=True)", variants=[])
    case("interpolate linear", [t.g(2, 3, 5)], "F.interpolate(a, 8, mode='linear')", tol=1e-5, grad_tol=1e-5, variants=some)
    case("interpolate recomputed", [t.g(1, 2, 5, 5)], "F.interpolate(a, scale_factor=1.5, mode='bilinear', recompute_scale_factor=True)", tol=1e-5, grad_tol=1e-5, variants=[])
    for text in ("size=5", "size=(3, 7)", "scale_factor=2", "scale_factor=0.6", "size=(7, 9), align_corners=True"):
        case(f"interpolate bicubic {text}", [t.g(1, 2, 4, 5)], f"F.interpolate(a, {text}, mode='bicubic')", tol=1e-5, grad_tol=1e-5, variants=some)
    for mode in ("bilinear", "bicubic"):
        for text in ("size=(3, 2)", "scale_factor=2", "size=(2, 3), align_corners=True"):
            case(f"interpolate antialias {mode} {text}", [t.g(1, 2, 7, 8)], f"F.interpolate(a, {text}, mode='{mode}', antialias=True)",
                 tol=1e-5, grad_tol=1e-5, variants=some)
    for shape in ((2, 3, 7), (1, 2, 7, 8)):
        case(f"interpolate area {len(shape)}", [t.g(*shape)], "F.interpolate(a, 3, mode='area')", tol=1e-5, grad_tol=1e-5, variants=some)
    case("upsample", [t.g(1, 2, 4, 5)], "F.upsample(a, scale_factor=2, mode='bilinear')", tol=1e-5, grad_tol=1e-5, variants=[])
    case("upsample_nearest", [t.g(1, 2, 4, 5)], "F.upsample_nearest(a, 6)", variants=[])
    case("upsample_bilinear", [t.g(1, 2, 4, 5)], "F.upsample_bilinear(a, 6)", tol=1e-5, grad_tol=1e-5, variants=[])
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            for align in ("True", "False"):
                case(f"grid_sample {mode} {padding} {align}", [t.g(2, 3, 4, 5), off(t.f(2, 3, 6, 2), mode)],
                     f"F.grid_sample(a, b, mode='{mode}', padding_mode='{padding}', align_corners={align})", tol=1e-5, grad_tol=1e-4, variants=some)
    for align in ("True", "False"):
        case(f"affine_grid {align}", [t.g(2, 2, 3)], f"F.affine_grid(a, (2, 1, 3, 4), align_corners={align})", tol=1e-5, variants=some)
    error("grid_sample mode", [t.f(1, 2, 4, 4), t.f(1, 2, 2, 2)], "F.grid_sample(a, b, mode='cubist')")
    error("grid_sample batch", [t.f(1, 2, 4, 4), t.f(2, 2, 2, 2)], "F.grid_sample(a, b)")
    error("affine_grid shape", [t.f(2, 3, 3)], "F.affine_grid(a, (2, 1, 3, 4))")
    for factors in ("(2, 1.5)", "(0.75, 2)"):
        for mode in ("nearest", "bilinear", "bicubic", "area"):
            case(f"interpolate {mode} by {factors}", [t.g(1, 2, 4, 5)], f"F.interpolate(a, scale_factor={factors}, mode='{mode}')",
                 tol=1e-5, grad_tol=1e-5, variants=some)
    case("interpolate recomputed by two", [t.g(1, 2, 5, 5)],
         "F.interpolate(a, scale_factor=(1.5, 2), mode='bilinear', recompute_scale_factor=True)", tol=1e-5, grad_tol=1e-5, variants=[])
    error("interpolate by three factors", [t.f(1, 2, 4, 4)], "F.interpolate(a, scale_factor=(2, 2, 1.5))")
    error("interpolate bicubic rank", [t.f(1, 2, 4)], "F.interpolate(a, 3, mode='bicubic')")
    error("interpolate antialias nearest", [t.f(1, 2, 4, 4)], "F.interpolate(a, 3, antialias=True)")
    for text in ("2", "(2, 3)", "3, padding=1", "2, stride=2", "2, dilation=2, padding=1, stride=(1, 2)"):
        case(f"unfold {text}", [t.g(2, 2, 5, 6)], f"F.unfold(a, {text})", variants=some)
    case("unfold unbatched", [t.g(2, 5, 6)], "F.unfold(a, 2)", variants=[])
    case("fold", [t.g(2, 8, 20)], "F.fold(a, (5, 6), 2)", variants=some)
    case("fold strided", [t.g(1, 18, 9)], "F.fold(a, (6, 6), 3, padding=1, stride=2)", variants=some)
    case("fold unbatched", [t.g(4, 9)], "F.fold(a, (6, 6), 2, stride=2)", variants=[])
    error("interpolate both", [t.f(1, 2, 4, 4)], "F.interpolate(a, 3, 2.0)")
    error("interpolate neither", [t.f(1, 2, 4, 4)], "F.interpolate(a)")
    error("interpolate mode", [t.f(1, 2, 4, 4)], "F.interpolate(a, 3, mode='cubist')")
    error("interpolate rank", [t.f(1, 2, 4)], "F.interpolate(a, 3, mode='bilinear')")
    error("unfold large", [t.f(1, 2, 2, 2)], "F.unfold(a, 3)", op="nn.functional.unfold")
    error("fold blocks", [t.f(1, 8, 7)], "F.fold(a, (5, 6), 2)")
