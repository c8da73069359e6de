"""Sums of a tensor and a product, in one kernel: beta * input + alpha * (a @ b) in its several shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cartograd.engine.primitive import primitive


def scaled(g: Tensor, factor: float) -> Tensor:
    """g * factor"""
    return g if factor == 1 else g * factor


@primitive("addmm", broadcasts=True)
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * mat1 @ mat2.

    d/dinput = beta g,  d/dmat1 = alpha g @ mat2^T,  d/dmat2 = alpha mat1^T @ g
    """
    return torch.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


@addmm.vjp("input")
def _(g: Tensor, beta: float) -> Tensor:
    return scaled(g, beta)


@addmm.vjp("mat1")
def _(g: Tensor, mat2: Tensor, alpha: float) -> Tensor:
    return scaled(torch.mm(g, mat2.t()), alpha)


@addmm.vjp("mat2")
def _(g: Tensor, mat1: Tensor, alpha: float) -> Tensor:
    return scaled(torch.mm(mat1.t(), g), alpha)


@addmm.example
def _(make: Any) -> Any:
    return make(3), make(2, 2), make(2, 3), 0.5, 2.0


@primitive("addmv", broadcasts=True)
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * mat @ vec.   d/dinput = beta g,  d/dmat = alpha g vec^T,  d/dvec = alpha mat^T @ g"""
    return torch.addmv(input, mat, vec, beta=beta, alpha=alpha)


@addmv.vjp("input")
def _(g: Tensor, beta: float) -> Tensor:
    return scaled(g, beta)


@addmv.vjp("mat")
def _(g: Tensor, vec: Tensor, alpha: float) -> Tensor:
    return scaled(torch.outer(g, vec), alpha)


@addmv.vjp("vec")
def _(g: Tensor, mat: Tensor, alpha: float) -> Tensor:
    return scaled(torch.mv(mat.t(), g), alpha)


@addmv.example
def _(make: Any) -> Any:
    return make(2), make(2, 3), make(3), 0.5, 2.0


@primitive("addr", broadcasts=True)
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * vec1 vec2^T.

    d/dinput = beta g,  d/dvec1 = alpha g @ vec2,  d/dvec2 = alpha g^T @ vec1
    """
    return torch.addr(input, vec1, vec2, beta=beta, alpha=alpha)


@addr.vjp("input")
def _(g: Tensor, beta: float) -> Tensor:
    return scaled(g, beta)


@addr.vjp("vec1")
def _(g: Tensor, vec2: Tensor, alpha: float) -> Tensor:
    return scaled(torch.mv(g, vec2), alpha)


@addr.vjp("vec2")
def _(g: Tensor, vec1: Tensor, alpha: float) -> Tensor:
    return scaled(torch.mv(g.t(), vec1), alpha)


@addr.example
def _(make: Any) -> Any:
    return make(2, 3), make(2), make(3), 0.5, 2.0


@primitive("baddbmm", broadcasts=True)
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * batch1[b] @ batch2[b] for each b.

    d/dinput = beta g,  d/dbatch1 = alpha g @ batch2^T,  d/dbatch2 = alpha batch1^T @ g
    """
    return torch.baddbmm(input, batch1, batch2, beta=beta, alpha=alpha)


@baddbmm.vjp("input")
def _(g: Tensor, beta: float) -> Tensor:
    return scaled(g, beta)


@baddbmm.vjp("batch1")
def _(g: Tensor, batch2: Tensor, alpha: float) -> Tensor:
    return scaled(torch.bmm(g, batch2.mT), alpha)


@baddbmm.vjp("batch2")
def _(g: Tensor, batch1: Tensor, alpha: float) -> Tensor:
    return scaled(torch.bmm(batch1.mT, g), alpha)


@baddbmm.example
def _(make: Any) -> Any:
    return make(2, 1), make(2, 2, 2), make(2, 2, 2), 0.5, 2.0


@primitive("addbmm", broadcasts=True)
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * the sum over b of batch1[b] @ batch2[b].

    d/dinput = beta g,  d/dbatch1[b] = alpha g @ batch2[b]^T,  d/dbatch2[b] = alpha batch1[b]^T @ g
    """
    return torch.addbmm(input, batch1, batch2, beta=beta, alpha=alpha)


@addbmm.vjp("input")
def _(g: Tensor, beta: float) -> Tensor:
    return scaled(g, beta)


@addbmm.vjp("batch1")
def _(g: Tensor, batch2: Tensor, alpha: float) -> Tensor:
    return scaled(torch.matmul(g, batch2.mT), alpha)


@addbmm.vjp("batch2")
def _(g: Tensor, batch1: Tensor, alpha: float) -> Tensor:
    return scaled(torch.matmul(batch1.mT, g), alpha)


@addbmm.example
def _(make: Any) -> Any:
    return make(2, 2), make(2, 2, 2), make(2, 2, 2), 0.5, 2.0
