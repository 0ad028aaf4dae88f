"""Losses and distances: reductions, weights, gradients, stability at large magnitude, errors."""
import torch


def cases(case, error, t):
    for reduction in ("sum", "mean", "none"):
        case(f"margin_ranking_loss integers {reduction}", [t.i(9, 5), t.i(9, 5), t.t([1, -1, 1, 1, -1])],
             f"F.margin_ranking_loss(a, b, c, margin=1, reduction='{reduction}')", variants=[])
    case("pairwise_distance integers", [t.i(9, 3, 4), t.i(9, 3, 4)], "F.pairwise_distance(a, b, eps=1)", variants=[])
    error("binary_cross_entropy dtypes", [t.u(0, 1, 3, grad=False), t.u(0, 1, 3, grad=False, dtype=torch.float64)], "F.binary_cross_entropy(a, b)")
    error("triplet_margin_loss margin", [t.f(2, 3), t.f(2, 3), t.f(2, 3)], "F.triplet_margin_loss(a, b, c, margin=-1.0)")
    two = {"mse_loss": "", "l1_loss": "", "smooth_l1_loss": "beta=0.5", "huber_loss": "delta=0.7", "soft_margin_loss": ""}
    for op, extra in two.items():
        for reduction in ("mean", "sum", "none"):
            case(f"{op} {reduction}", [t.g(3, 4), t.g(3, 4) if op != "soft_margin_loss" else t.f(3, 4).sign()],
                 f"F.{op}(a, b, reduction='{reduction}')")
        if extra:
            case(f"{op} {extra}", [t.g(3, 4), t.f(3, 4)], f"F.{op}(a, b, {extra})")
        error(f"{op} reduction", [t.f(3), t.f(3)], f"F.{op}(a, b, reduction='max')")
    case("smooth_l1_loss beta 0", [t.g(3, 4), t.f(3, 4)], "F.smooth_l1_loss(a, b, beta=0)")
    error("smooth_l1_loss beta", [t.f(3), t.f(3)], "F.smooth_l1_loss(a, b, beta=-1.0)")
    error("huber_loss delta", [t.f(3), t.f(3)], "F.huber_loss(a, b, delta=0.0)")
    error("mse_loss shapes", [t.f(3), t.f(4)], "F.mse_loss(a, b)")

    p = lambda *shape: t.u(0.05, 0.95, *shape)
    for reduction in ("mean", "sum", "none"):
        case(f"binary_cross_entropy {reduction}", [p(3, 4), t.u(0, 1, 3, 4, grad=False)], f"F.binary_cross_entropy(a, b, reduction='{reduction}')")
        case(f"binary_cross_entropy_with_logits {reduction}", [t.g(3, 4, scale=3), t.u(0, 1, 3, 4)],
             f"F.binary_cross_entropy_with_logits(a, b, reduction='{reduction}')")
        case(f"kl_div {reduction}", [t.g(3, 4), t.u(0.1, 1, 3, 4, grad=False)], f"F.kl_div(a, b, reduction='{reduction}')")
    case("binary_cross_entropy weight", [p(3, 4), t.u(0, 1, 3, 4, grad=False), t.f(4, positive=True)], "F.binary_cross_entropy(a, b, weight=c)")
    case("binary_cross_entropy edges", [t.t([0.0, 1.0, 0.0, 1.0]), t.t([0.0, 0.0, 1.0, 1.0])], "F.binary_cross_entropy(a, b, reduction='none')")
    # float16 has no 1e-12: PyTorch divides by 0 there.
    case("binary_cross_entropy gradient at edges",
         [t.t([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1e-20, 0.25], grad=True), t.t([0.0, 0.0, 1.0, 1.0, 0.5, 0.5, 1.0, 0.75])],
         "F.binary_cross_entropy(a, b, reduction='none')", variants=["float64", "strided"])
    case("binary_cross_entropy gradient of target", [t.t([0.125, 0.75, 0.25], grad=True), t.t([0.0, 1.0, 0.5], grad=True)],
         "F.binary_cross_entropy(a, b)", variants=["float64"])
    case("binary_cross_entropy_with_logits weights", [t.g(3, 4), t.u(0, 1, 3, 4, grad=False), t.f(4, positive=True), t.f(4, positive=True)],
         "F.binary_cross_entropy_with_logits(a, b, weight=c, pos_weight=d)")
    case("binary_cross_entropy_with_logits large", [t.t([1000.0, -1000.0, 100.0, -100.0, 0.0], grad=True), t.t([0.0, 1.0, 1.0, 0.0, 0.5])],
         "F.binary_cross_entropy_with_logits(a, b, reduction='none')")
    error("binary_cross_entropy shapes", [t.u(0, 1, 3, grad=False), t.u(0, 1, 4, grad=False)], "F.binary_cross_entropy(a, b)")
    error("binary_cross_entropy_with_logits shapes", [t.f(3), t.f(3, 1)], "F.binary_cross_entropy_with_logits(a, b)")
    case("kl_div batchmean", [t.g(3, 4), t.u(0.1, 1, 3, 4, grad=False)], "F.kl_div(a, b, reduction='batchmean')", variants=["strided", "float64"])
    case("kl_div log_target", [t.g(3, 4), t.g(3, 4)], "F.kl_div(a, b, log_target=True)")
    case("kl_div zero target", [t.g(4), t.t([0.0, 0.5, 0.0, 1.0])], "F.kl_div(a, b, reduction='none')")

    case("gaussian_nll_loss", [t.g(3, 4), t.f(3, 4), t.g(3, 4, positive=True)], "F.gaussian_nll_loss(a, b, c)")
    case("gaussian_nll_loss full", [t.g(3, 4), t.f(3, 4), t.g(3, 1, positive=True)], "F.gaussian_nll_loss(a, b, c, full=True, reduction='sum')")
    case("gaussian_nll_loss one less", [t.g(3, 4), t.f(3, 4), t.g(3, positive=True)], "F.gaussian_nll_loss(a, b, c)", variants=["strided", "float64"])
    case("poisson_nll_loss", [t.g(3, 4), t.f(3, 4, positive=True)], "F.poisson_nll_loss(a, b)")
    case("poisson_nll_loss full", [t.g(3, 4, positive=True), t.f(3, 4, positive=True, scale=3)], "F.poisson_nll_loss(a, b, log_input=False, full=True)")
    error("gaussian_nll_loss var", [t.f(3, 4), t.f(3, 4), t.f(2, positive=True)], "F.gaussian_nll_loss(a, b, c)")

    sign = t.t([1.0, -1.0, 1.0])
    case("margin_ranking_loss", [t.g(3), t.g(3), sign], "F.margin_ranking_loss(a, b, c, margin=0.3)")
    case("hinge_embedding_loss", [t.g(3), sign], "F.hinge_embedding_loss(a, b)")
    case("hinge_embedding_loss margin", [t.g(3), sign], "F.hinge_embedding_loss(a, b, margin=0.2, reduction='sum')")
    case("cosine_embedding_loss", [t.g(3, 4), t.g(3, 4), sign], "F.cosine_embedding_loss(a, b, c, margin=0.1)", variants=["strided", "float64"])
    case("triplet_margin_loss", [t.g(3, 4), t.g(3, 4), t.g(3, 4)], "F.triplet_margin_loss(a, b, c)")
    case("triplet_margin_loss swap", [t.g(3, 4), t.g(3, 4), t.g(3, 4)], "F.triplet_margin_loss(a, b, c, margin=2, p=1, swap=True, reduction='none')")
    # In bfloat16 the loss of the first row is 0 when the margin is added first.
    case("triplet_margin_loss order", [t.t(x, grad=True) for x in (
        [[0.499, -1.664, 0.267, -0.138]], [[0.174, -0.504, 0.876, -0.584]], [[-0.354, 0.059, -0.597, 1.399]])],
         "F.triplet_margin_loss(a, b, c, margin=2, p=1, swap=True, reduction='none')")
    case("multi_margin_loss", [t.g(3, 4), t.t([0, 3, 1])], "F.multi_margin_loss(a, b)", variants=["strided", "float64"])
    case("multi_margin_loss weight", [t.g(3, 4), t.t([0, 3, 1]), t.f(4, positive=True)], "F.multi_margin_loss(a, b, p=2, margin=0.5, weight=c, reduction='none')",
         variants=["strided", "float64"])
    error("margin_ranking_loss dims", [t.f(3), t.f(3, 1), t.f(3)], "F.margin_ranking_loss(a, b, c)")
    error("cosine_embedding_loss dims", [t.f(3, 4), t.f(3, 4), t.f(3, 1)], "F.cosine_embedding_loss(a, b, c)")
    error("triplet_margin_loss dims", [t.f(3, 4), t.f(3, 4), t.f(4)], "F.triplet_margin_loss(a, b, c)")

    case("cosine_similarity", [t.g(3, 4), t.g(3, 4)], "F.cosine_similarity(a, b)")
    case("cosine_similarity dim", [t.g(3, 4), t.g(1, 4)], "F.cosine_similarity(a, b, dim=0)", exact=True, variants=["strided", "float64"])
    case("cosine_similarity short", [t.t([[0.1, -0.3], [1.0, 2.0]], grad=True), t.t([[0.25, 0.125], [-0.2, 0.1]], grad=True)],
         "F.cosine_similarity(a, b, eps=0.5)")
    case("cosine_similarity zero", [t.t([[0.0, 0.0], [1.0, 2.0]], grad=True), t.g(2, 2)], "F.cosine_similarity(a, b, eps=0.5)", exact=True)
    case("pairwise_distance", [t.g(3, 4), t.g(3, 4)], "F.pairwise_distance(a, b)")
    case("pairwise_distance p", [t.g(3, 4), t.g(4)], "F.pairwise_distance(a, b, p=1, keepdim=True)")
    case("pairwise_distance p 3", [t.g(3, 4), t.g(3, 4)], "F.pairwise_distance(a, b, p=3)", tol=1e-5)
    case("normalize", [t.g(3, 4)], "F.normalize(a)")
    case("normalize p", [t.g(3, 4)], "F.normalize(a, p=1, dim=0)")
    case("normalize inf", [t.f(3, 4)], "F.normalize(a, p=inf)", "lt.nn.functional.normalize(a, {p = inf})")
    case("normalize zero", [t.t([[0.0, 0.0], [3.0, 4.0]], grad=True)], "F.normalize(a, eps=0.5)")

    # Classes.
    target, image = t.i(5, 6), t.i(4, 2, 3, 3)
    ignored = t.t([0, -100, 3, 4, -100, 1])
    for op, x in (("nll_loss", lambda *s: t.g(*s)), ("cross_entropy", lambda *s: t.g(*s, scale=2))):
        for reduction in ("mean", "sum", "none"):
            case(f"{op} {reduction}", [x(6, 5), target], f"F.{op}(a, b, reduction='{reduction}')", variants=["strided", "float64", "float16", "bfloat16"])
            case(f"{op} weight {reduction}", [x(6, 5), ignored, t.f(5, positive=True)], f"F.{op}(a, b, c, reduction='{reduction}')",
                 variants=["strided", "float64"])
        case(f"{op} 2d", [x(2, 4, 3, 3), image], f"F.{op}(a, b)", variants=["strided", "float64"])
        case(f"{op} 2d none", [x(2, 4, 3, 3), image], f"F.{op}(a, b, reduction='none')", variants=["strided", "float64"])
        case(f"{op} single", [x(5), t.t(3)], f"F.{op}(a, b)", variants=["float64"])
        case(f"{op} ignore_index", [x(6, 5), target], f"F.{op}(a, b, ignore_index={int(target[0])})", variants=["strided", "float64"])
        error(f"{op} target shape", [t.f(6, 5), t.i(5, 4)], f"F.{op}(a, b)")
        error(f"{op} out of range", [t.f(3, 5), t.t([0, 5, 1])], f"F.{op}(a, b)")
        error(f"{op} negative class", [t.f(3, 5), t.t([0, -1, 1])], f"F.{op}(a, b)")
        error(f"{op} out of range with gradient", [t.g(3, 5), t.t([0, 7, 1])], f"F.{op}(a, b)")
        error(f"{op} weight size", [t.f(3, 5), t.t([0, 4, 1]), t.f(4)], f"F.{op}(a, b, c)")
    for reduction in ("mean", "sum", "none"):
        case(f"cross_entropy smoothing {reduction}", [t.g(6, 5), ignored], f"F.cross_entropy(a, b, label_smoothing=0.1, reduction='{reduction}')",
             variants=["strided", "float64"])
        case(f"cross_entropy smoothing weight {reduction}", [t.g(6, 5), ignored, t.f(5, positive=True)],
             f"F.cross_entropy(a, b, c, label_smoothing=0.1, reduction='{reduction}')", variants=["strided", "float64"])
        case(f"cross_entropy probabilities {reduction}", [t.g(6, 5), t.u(0, 0.4, 6, 5)], f"F.cross_entropy(a, b, reduction='{reduction}')")
    case("cross_entropy probabilities smoothing weight", [t.g(6, 5), t.u(0, 0.4, 6, 5), t.f(5, positive=True)],
         "F.cross_entropy(a, b, c, label_smoothing=0.2)")
    case("cross_entropy large", [t.t([[1000.0, 0.0], [-1000.0, 1000.0]], grad=True), t.t([1, 0])], "F.cross_entropy(a, b, reduction='none')",
         variants=["strided", "float64"])
    error("cross_entropy label_smoothing", [t.f(3, 5), t.t([0, 4, 1])], "F.cross_entropy(a, b, label_smoothing=1.5)")
    error("cross_entropy keyword", [t.f(3, 5), t.t([0, 4, 1])], "F.cross_entropy(a, b, smoothing=0.5)")
    error("cross_entropy nil", [t.f(3, 5)], "F.cross_entropy(a, None)")

    # Sequences: a target of each length and more steps than it needs; repeated targets need a blank between them.
    rows, joined = t.t([[1, 2, 2], [3, 3, 0], [4, 1, 3]]), t.t([1, 2, 2, 3, 3, 4])
    both = ["strided", "float64"]
    for reduction in ("mean", "sum", "none"):
        case(f"ctc_loss {reduction}", [t.g(7, 3, 5), rows], f"F.ctc_loss(a.log_softmax(2), b, (7, 5, 6), (3, 2, 1), reduction='{reduction}')", variants=both)
        case(f"ctc_loss joined {reduction}", [t.g(7, 3, 5), joined], f"F.ctc_loss(a.log_softmax(2), b, (7, 5, 6), (3, 2, 1), reduction='{reduction}')",
             variants=both)
        case(f"ctc_loss too short {reduction}", [t.g(4, 3, 5), rows],
             f"F.ctc_loss(a.log_softmax(2), b, (3, 4, 0), (3, 1, 1), reduction='{reduction}', zero_infinity=True)", variants=both)
        case(f"ctc_loss single {reduction}", [t.g(6, 5), t.t([1, 1, 4])], f"F.ctc_loss(a.log_softmax(1), b, (6,), (3,), reduction='{reduction}')", variants=both)
    case("ctc_loss infinite", [t.f(4, 2, 5), t.t([[1, 1, 2], [3, 4, 1]])], "F.ctc_loss(a.log_softmax(2), b, (4, 4), (3, 3), reduction='none')", variants=both)
    case("ctc_loss blank", [t.g(7, 3, 5), t.t([[1, 2, 2], [3, 3, 0], [0, 1, 3]])], "F.ctc_loss(a.log_softmax(2), b, (7, 5, 6), (3, 2, 1), blank=4)", variants=both)
    case("ctc_loss empty targets", [t.g(7, 3, 5), rows], "F.ctc_loss(a.log_softmax(2), b, (7, 5, 0), (0, 2, 0), reduction='none')", variants=both)
    case("ctc_loss not normalised", [t.g(7, 3, 5), rows], "F.ctc_loss(a, b, (7, 5, 6), (3, 2, 1))", variants=both)
    case("ctc_loss lengths", [t.g(7, 3, 5), rows.int(), t.t([7, 5, 6]).int(), t.t([3, 2, 1])], "F.ctc_loss(a.log_softmax(2), b, c, d)", variants=both)
    case("ctc_loss unlikely", [t.g(7, 3, 5, scale=200), rows], "F.ctc_loss(a.log_softmax(2), b, (7, 5, 6), (3, 2, 1))", variants=["float64"])
    # Each step rounds a logarithm near -200.
    case("ctc_loss long", [t.g(150, 2, 6), t.i(5, 2, 60) + 1], "F.ctc_loss(a.log_softmax(2), b, (150, 140), (60, 41))", variants=["float64"], grad_tol=2e-5)
    for what, code in {"steps": "b, (8, 5, 6), (3, 2, 1)", "negative length": "b, (7, 5, -1), (3, 2, 1)", "target length": "b, (7, 5, 6), (4, 2, 1)",
                       "negative target length": "b, (7, 5, 6), (-1, 2, 1)", "number of lengths": "b, (7, 5), (3, 2, 1)", "target lengths": "b, (7, 5, 6), (3, 2)",
                       "blank": "b, (7, 5, 6), (3, 2, 1), blank=5", "negative blank": "b, (7, 5, 6), (3, 2, 1), blank=-1",
                       "joined": "b[0], (7, 5, 6), (3, 2, 1)", "batch": "b[:2], (7, 5, 6), (3, 2, 1)", "dimensions": "b.unsqueeze(0), (7, 5, 6), (3, 2, 1)",
                       "reduction": "b, (7, 5, 6), (3, 2, 1), reduction='most'"}.items():
        error(f"ctc_loss wrong {what}", [t.f(7, 3, 5), rows], f"F.ctc_loss(a, {code})")
    error("ctc_loss half", [t.f(7, 3, 5).half(), rows], "F.ctc_loss(a, b, (7, 5, 6), (3, 2, 1))")
    error("ctc_loss float lengths", [t.f(7, 3, 5), rows, t.f(3), t.t([3, 2, 1])], "F.ctc_loss(a, b, c, d)")
    case("ctc_loss float targets", [t.f(7, 3, 5), t.t([[1.5, 2, 2], [3, 3, 0], [4, 1, 3]])], "F.ctc_loss(a, b, (7, 5, 6), (3, 2, 1))", variants=both)
    triple = lambda: [t.g(3, 4), t.g(3, 4), t.g(3, 4)]
    for reduction in ("mean", "sum", "none"):
        case(f"triplet_margin_with_distance_loss {reduction}", triple(), f"F.triplet_margin_with_distance_loss(a, b, c, reduction='{reduction}')")
    case("triplet_margin_with_distance_loss distance", triple(),
         "F.triplet_margin_with_distance_loss(a, b, c, distance_function=lambda x, y: (x - y).abs().sum(1), margin=2.5, swap=True)",
         "lt.nn.functional.triplet_margin_with_distance_loss(a, b, c, "
         "{distance_function = function(x, y) return (x - y):abs():sum(1) end, margin = 2.5, swap = true})", variants=["float64"])
    error("triplet_margin_with_distance_loss margin", [t.f(3, 4), t.f(3, 4), t.f(3, 4)], "F.triplet_margin_with_distance_loss(a, b, c, margin=0.)")
    error("triplet_margin_with_distance_loss dims", [t.f(3, 4), t.f(3, 4), t.f(4)], "F.triplet_margin_with_distance_loss(a, b, c)")
