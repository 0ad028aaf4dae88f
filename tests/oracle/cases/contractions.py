"""Products that are made of mm and bmm."""
import torch


def cases(case, error, t):
    case("addmm", [t.g(5), t.g(3, 4), t.g(4, 5)], "torch.addmm(a, b, c)")
    case("addmm scaled", [t.g(3, 5), t.g(3, 4), t.g(4, 5)], "torch.addmm(a, b, c, beta=0.5, alpha=2)")
    case("addmm without input", [t.t([[float("nan")]]), t.g(3, 4), t.g(4, 5)], "torch.addmm(a, b, c, beta=0)")
    case("addmm_", [t.g(3, 5), t.g(3, 4), t.g(4, 5)], "a.clone().addmm_(b, c)")
    error("addmm shapes", [t.f(5), t.f(3, 4), t.f(3, 5)], "torch.addmm(a, b, c)")
    error("addmm input", [t.f(4), t.f(3, 4), t.f(4, 5)], "torch.addmm(a, b, c)")
    case("baddbmm", [t.g(3, 5), t.g(2, 3, 4), t.g(2, 4, 5)], "torch.baddbmm(a, b, c, beta=0.5, alpha=2)")
    case("addbmm", [t.g(3, 5), t.g(2, 3, 4), t.g(2, 4, 5)], "torch.addbmm(a, b, c)")
    case("addmv", [t.g(3), t.g(3, 4), t.g(4)], "torch.addmv(a, b, c, alpha=0.5)")
    for name, shapes in (("addmm", ((3, 5), (3, 4), (4, 5))), ("baddbmm", ((3, 5), (2, 3, 4), (2, 4, 5))), ("addbmm", ((3, 5), (2, 3, 4), (2, 4, 5))),
                         ("addmv", ((3,), (3, 4), (4,)))):
        case(f"{name} of integers", [t.i(9, *s) for s in shapes], f"torch.{name}(a, b, c, beta=2.7, alpha=-1.6)")
        error(f"{name} of integers by NaN", [t.i(9, *s) for s in shapes], f"torch.{name}(a, b, c, alpha=nan)")
    case("addr", [t.g(3, 4), t.g(3), t.g(4)], "torch.addr(a, b, c, beta=2)")
    case("mv", [t.g(3, 4), t.g(4)], "a.mv(b)")
    error("mv of a vector", [t.f(4), t.f(4)], "a.mv(b)")
    case("dot", [t.g(4), t.g(4)], "a.dot(b)")
    error("dot lengths", [t.f(4), t.f(3)], "a.dot(b)")
    case("dot integers", [t.i(9, 4), t.i(9, 4)], "a.dot(b)")
    case("vdot", [t.g(4), t.g(4)], "a.vdot(b)")
    case("inner", [t.g(3, 4), t.g(2, 4)], "a.inner(b)")
    case("outer", [t.g(3), t.g(4)], "a.outer(b)")
    case("ger", [t.g(3), t.g(4)], "a.ger(b)")
    error("outer of a matrix", [t.f(3, 2), t.f(4)], "a.outer(b)")
    case("matmul vector matrix", [t.g(4), t.g(4, 5)], "a.matmul(b)")
    case("matmul vector batch", [t.g(4), t.g(2, 4, 5)], "a.matmul(b)")
    case("matmul batch vector", [t.g(2, 3, 4), t.g(4)], "a.matmul(b)")
    error("matmul number", [t.f(), t.f(3)], "a.matmul(b)")
    case("tensordot", [t.g(2, 3, 4), t.g(3, 4, 5)], "torch.tensordot(a, b)")
    case("tensordot 1", [t.g(2, 3), t.g(3, 4)], "torch.tensordot(a, b, dims=1)")
    case("tensordot 0", [t.g(2), t.g(3)], "torch.tensordot(a, b, 0)")
    case("tensordot lists", [t.g(2, 3, 4), t.g(4, 5, 2)], "torch.tensordot(a, b, ([0, 2], [2, 0]))", "lt.tensordot(a, b, {{0, 2}, {2, 0}})")
    error("tensordot shapes", [t.f(2, 3), t.f(4, 2)], "torch.tensordot(a, b, 1)")
    case("kron", [t.g(2, 3), t.g(3, 2)], "torch.kron(a, b)")
    case("kron ranks", [t.g(2), t.g(3, 2)], "torch.kron(a, b)")
    case("bilinear", [t.g(5, 3), t.g(5, 4), t.g(2, 3, 4), t.g(2)], "F.bilinear(a, b, c, d)")
    case("bilinear no bias", [t.g(2, 5, 3), t.g(2, 5, 4), t.g(2, 3, 4)], "F.bilinear(a, b, c)")
    case("vecdot", [t.g(3, 4), t.g(4)], "torch.linalg.vecdot(a, b)")
    error("linalg_vecdot of integers", [t.i(9, 3), t.i(9, 3)], "torch.linalg.vecdot(a, b)")
    case("multi_dot", [t.g(2, 5), t.g(5, 3), t.g(3, 4)], "torch.linalg.multi_dot([a, b, c])")
    case("multi_dot vectors", [t.g(5), t.g(5, 3), t.g(3)], "torch.linalg.multi_dot([a, b, c])")
    error("linalg_multi_dot shapes", [t.f(2, 5), t.f(4, 3)], "torch.linalg.multi_dot([a, b])")
    for n in (0, 1, 2, 3, 5):
        case(f"matrix_power {n}", [t.g(3, 3) if n else t.f(3, 3)], f"a.matrix_power({n})", grad_tol=1e-5)
    for name, inputs, equation in (
            ("mm", [t.g(3, 4), t.g(4, 5)], "ij,jk->ik"), ("mm implicit", [t.g(3, 4), t.g(4, 5)], "ij,jk"),
            ("bmm", [t.g(2, 3, 4), t.g(2, 4, 5)], "bij,bjk->bik"), ("trace", [t.g(3, 3)], "ii"), ("diagonal", [t.g(3, 3)], "ii->i"),
            ("sum", [t.g(3, 4)], "ij->"), ("columns", [t.g(3, 4)], "ij->j"), ("transpose", [t.g(3, 4)], "ij->ji"), ("transpose implicit", [t.g(3, 4)], "ba"),
            ("outer", [t.g(3), t.g(4)], "i,j->ij"), ("dot", [t.g(3), t.g(3)], "i,i->"), ("hadamard", [t.g(3, 4), t.g(3, 4)], "ij,ij->ij"),
            ("attention", [t.g(2, 3, 4, 2), t.g(2, 5, 4, 2)], "bqhd,bkhd->bhqk"), ("ellipsis", [t.g(2, 3, 4), t.g(4, 5)], "...ij,jk->...ik"),
            ("two ellipses", [t.g(2, 1, 3), t.g(5, 3)], "...i,...i->..."), ("three", [t.g(2, 3), t.g(3, 4), t.g(4, 5)], "ij,jk,kl->il"),
            ("bilinear", [t.g(5, 3), t.g(2, 3, 4), t.g(5, 4)], "bi,oij,bj->bo"), ("summed alone", [t.g(3, 4), t.g(3, 5)], "ij,ik->i"),
            ("broadcast", [t.g(3, 1), t.g(1, 4)], "ij,ij->ij"), ("batch of diagonals", [t.g(2, 3, 3)], "bii->b"), ("spaces", [t.g(3, 4), t.g(4)], "i j , j -> i")):
        python = f"torch.einsum('{equation}', {', '.join('abc'[:len(inputs)])})"
        case("einsum " + name, inputs, python, grad_tol=4e-6)
    error("einsum operands", [t.f(3)], "torch.einsum('i,i->', a)")
    error("einsum rank", [t.f(3)], "torch.einsum('ij->i', a)")
    error("einsum sizes", [t.f(3), t.f(4)], "torch.einsum('i,i->', a, b)")
    error("einsum result", [t.f(3)], "torch.einsum('i->j', a)")
    error("einsum letter", [t.f(3)], "torch.einsum('1->1', a)")
