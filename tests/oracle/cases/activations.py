"""Activations: values, gradients, special values, options, in-place forms, errors."""

FORMS = {
    "gelu": ["", "approximate='tanh'"], "silu": [""], "mish": [""], "elu": ["", "alpha=0.7"], "selu": [""], "celu": ["", "alpha=0.7"],
    "leaky_relu": ["", "negative_slope=0.3"], "hardtanh": ["", "min_val=-0.5, max_val=0.8"], "relu6": [""], "hardswish": [""],
    "hardsigmoid": [""], "hardshrink": ["", "lambd=0.2"], "softshrink": ["", "lambd=0.2"], "tanhshrink": [""], "softsign": [""],
    "softplus": ["", "beta=2, threshold=1"], "logsigmoid": [""], "threshold": ["threshold=0.1, value=-2"], "relu": [""], "sigmoid": [""],
    "tanh": [""],
}
INPLACE = ["elu", "selu", "celu", "leaky_relu", "hardtanh", "relu", "threshold"]


def cases(case, error, t):
    case("rrelu", [t.g(3, 5)], "F.rrelu(a)")
    case("rrelu bounds", [t.g(3, 5)], "F.rrelu(a, 0.2, 0.6)")
    case("rrelu of one slope", [t.g(3, 5)], "F.rrelu(a, 0.25, 0.25, True)")
    case("rrelu_", [t.f(6)], "F.rrelu_(a.clone(), 0.1, 0.2)")
    case("rrelu inplace", [t.f(6)], "F.rrelu(a.clone(), 0.1, 0.2, False, True)")
    error("rrelu bounds upside down", [t.f(3)], "F.rrelu(a, 0.5, 0.2)")
    error("rrelu of integers", [t.i(3, 3)], "F.rrelu(a)")
    for op, forms in FORMS.items():
        for form in forms:
            args = f"(a, {form})" if form else "(a)"
            name = f"{op} {form}".strip()
            # PyTorch has 1/6 and 1/alpha in float32 there.
            case(name, [t.g(4, 5, scale=2.5)], f"F.{op}{args}", exact=True, grad_tol=1e-7 if op in ("hardsigmoid", "celu") else None)
            # PyTorch's own vector code and ours differ at the last denormals only.
            # PyTorch's gelu overflows early, and gives NaN at infinities where its vectors run.
            special = t.special if op != "gelu" else t.special[~(t.special.abs() > 1e30)]
            case(name + " special", [special], f"F.{op}{args}", signs=op not in ("selu", "celu", "elu", "mish", "hardswish", "gelu", "tanhshrink"),
                 variants=["strided", "float64"])
        args = f"(a, {forms[0]})" if forms[0] else "(a)"
        case(op + " large", [t.g(7, scale=40)], f"F.{op}{args}", exact=True, grad_tol=1e-7 if op in ("hardsigmoid", "celu") else None)
        if op not in ("hardtanh", "relu6", "relu", "threshold", "sigmoid", "tanh", "tanhshrink", "softsign"):
            error(op + " integers", [t.i(4, 3)], f"F.{op}{args}")
    for op in INPLACE:
        args = FORMS[op][0]
        comma = ", " if args else ""
        case(op + "_", [t.f(6)], f"F.{op}_(a.clone(){comma}{args})", f"lt.{op}_(a:clone(){comma and ', {' + args + '}'})")
        case(op + " inplace", [t.f(6)], f"F.{op}(a.clone(){comma}{args}, inplace=True)",
             f"lt.nn.functional.{op}(a:clone(), {{{args}{comma}inplace = true}})")
    # Elements equal to the bound as their half type rounds it.
    edges = [0.2, 0.3, 0.7, 0.1, -0.2, -0.3, -0.7, -0.1]
    for op, args in (("hardshrink", "0.2"), ("hardshrink", "0.7"), ("softshrink", "0.2"), ("softshrink", "0.7"), ("threshold", "0.2, 9"),
                     ("threshold", "-0.7, 9"), ("hardtanh", "-0.2, 0.3"), ("hardtanh", "-0.7, 0.1")):
        case(f"{op} {args} at the bound", [t.t(edges, grad=True)], f"F.{op}(a, {args})")
    case("silu inplace", [t.f(6)], "F.silu(a.clone(), inplace=True)")
    case("relu integers", [t.i(5, 6, low=-5)], "F.relu(a)")
    case("threshold integers", [t.i(5, 6, low=-5)], "F.threshold(a, 1, 7)")
    case("prelu", [t.g(3, 4), t.g(1)], "F.prelu(a, b)")
    case("prelu channels", [t.g(2, 3, 4), t.g(3)], "F.prelu(a, b)")
    case("glu", [t.g(3, 6)], "F.glu(a)", variants=["strided", "float64", "float16", "bfloat16"])
    case("glu dim", [t.g(4, 3)], "F.glu(a, 0)", variants=["strided", "float64"])
    case("softmin", [t.g(3, 5)], "F.softmin(a, dim=1)")
    case("deep", [t.g(3, 5)], "F.gelu(F.silu(F.softplus(a)) - F.mish(a), approximate='tanh')", exact=True)

    error("gelu approximate", [t.f(3)], "F.gelu(a, approximate='erf')")
    error("softshrink lambd", [t.f(3)], "F.softshrink(a, -1)")
    error("threshold missing", [t.f(3)], "F.threshold(a, 1)")
    error("glu odd", [t.f(3, 5)], "F.glu(a)")
    error("glu dim out of range", [t.f(4)], "F.glu(a, 2)")
    error("prelu channels wrong", [t.f(2, 3), t.f(4)], "F.prelu(a, b)")
    error("leaky_relu text", [t.f(3)], "F.leaky_relu(a, 'x')")
    error("elu_ keyword", [t.f(3)], "F.elu_(a, slope=2)", "lt.elu_(a, {slope = 2})")
