"""layer_norm, rms_norm."""
import functools

import torch


def cases(case, error, t):
    for size in (1, 2, 3):
        case(f"local_response_norm {size}", [t.g(2, 5, 3)], f"F.local_response_norm(a, {size}, alpha=0.1, k=2.0)", tol=1e-5, grad_tol=1e-5, variants=["strided", "float64"])
    case("local_response_norm integers", [t.i(9, 2, 5, 3)], "F.local_response_norm(a, 2)", tol=1e-5, variants=[])
    error("local_response_norm rank", [t.f(2, 3)], "F.local_response_norm(a, 2)")
    case = functools.partial(case, exact=True)  # gradients are differences: PyTorch's own rounding shows
    case("layer_norm", [t.g(3, 5), t.g(5), t.g(5)], "F.layer_norm(a, (5,), b, c)")
    case("layer_norm plain", [t.g(3, 5)], "F.layer_norm(a, (5,))")
    case("layer_norm weight", [t.g(2, 3, 4), t.g(4)], "F.layer_norm(a, (4,), b)")
    case("layer_norm two dims", [t.g(2, 3, 4), t.g(3, 4), t.g(3, 4)], "F.layer_norm(a, (3, 4), b, c)")
    case("layer_norm eps", [t.g(3, 4, scale=1e-3), t.g(4)], "F.layer_norm(a, (4,), b, eps=0.01)")
    case("layer_norm long rows", [t.g(2, 150), t.g(150), t.g(150)], "F.layer_norm(a, (150,), b, c)")
    case("layer_norm far from zero", [torch.tensor([[1000.0, 1001.0, 1002.5, 999.0]])], "F.layer_norm(a, (4,))", tol=1e-4)  # differences of large numbers
    case("layer_norm special", [t.special], "F.layer_norm(a, (16,))", variants=[])
    case("rms_norm", [t.g(3, 5), t.g(5)], "F.rms_norm(a, (5,), b)")
    case("rms_norm plain", [t.g(3, 5)], "F.rms_norm(a, (5,))")
    case("rms_norm two dims", [t.g(2, 3, 4), t.g(3, 4)], "F.rms_norm(a, (3, 4), b)")
    case("rms_norm eps", [t.g(3, 4), t.g(4)], "F.rms_norm(a, (4,), b, eps=0.01)")
    error("layer_norm shape", [t.f(3, 5)], "F.layer_norm(a, (4,))")
    error("layer_norm no shape", [t.f(3, 5)], "F.layer_norm(a, ())")
    error("layer_norm weight shape", [t.f(3, 5), t.f(3)], "F.layer_norm(a, (5,), b)")
    error("layer_norm integers", [t.i(9, 3, 5)], "F.layer_norm(a, (5,))")
    error("rms_norm shape", [t.f(3, 5)], "F.rms_norm(a, (3,))")
