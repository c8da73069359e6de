"""Linear algebra beyond products: trace, cross product, determinants, inverse, solving, Cholesky factor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cartograd.engine.fallback import run_torch
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.tensor import Tensor as Recorded


@primitive("trace", extra="constant")
def trace(input: Tensor) -> Any:
    """Sum of the diagonal of a matrix.   d/dinput = g on the diagonal"""
    return torch.trace(input), tuple(input.shape)


@trace.vjp("input")
def _(g: Tensor, extra: Any) -> Tensor:
    return g * torch.eye(*extra, dtype=g.dtype, device=g.device)


@trace.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive(torch.linalg.cross, broadcasts=True)
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """input x other along `dim`.   d/dinput = other x g,  d/dother = g x input"""
    return torch.linalg.cross(input, other, dim=dim)


@cross.vjp("input")
def _(g: Tensor, other: Tensor, dim: int) -> Tensor:
    return torch.linalg.cross(other, g, dim=dim)


@cross.vjp("other")
def _(g: Tensor, input: Tensor, dim: int) -> Tensor:
    return torch.linalg.cross(g, input, dim=dim)


@cross.example
def _(make: Any) -> Any:
    return make(2, 3), make(1, 3), -1


@composite(torch.cross, torch.Tensor.cross)
def old_cross(input: Any, other: Any, dim: int | None = None) -> Any:
    """As `cross`, along the first axis of size 3 if none is given."""
    if dim is None:
        dim = next((axis for axis, size in enumerate(input.shape) if size == 3), -1)
    return cross(input, other, dim=dim)


@primitive("det")
def det(A: Tensor) -> Tensor:
    """The determinant of square matrices.   d/dA = g * out * A^-T

    Where A has no inverse, its limit: g times the matrix of cofactors, U C V^T with C the products of all other
    singular values, with the sign of U V^T.
    """
    return torch.linalg.det(A)


@det.vjp("A")
def _(g: Tensor, A: Tensor, out: Tensor) -> Tensor:
    if (out == 0).any():
        return g[..., None, None] * _cofactors(A)
    return (g * out)[..., None, None] * torch.linalg.inv(A).mT


def _cofactors(matrix: Tensor) -> Tensor:
    """det(A) * A^-T for any A: the derivative of the determinant."""
    u, s, vh = torch.linalg.svd(matrix)
    size = s.shape[-1]
    own = torch.eye(size, dtype=torch.bool, device=s.device)
    others = s.unsqueeze(-2).expand(*s.shape, size).masked_fill(own, 1).prod(-1)
    sign = torch.linalg.det(torch.matmul(u, vh))
    return torch.matmul(u * (sign.unsqueeze(-1) * others).unsqueeze(-2), vh)


@det.example
def _(make: Any) -> Any:
    return (make(2, 2, 2),)


@primitive("slogdet", multiple=True)
def slogdet(A: Tensor) -> Any:
    """Sign and log of the absolute value of the determinant.   d/dA = g[1] * A^-T; the sign has slope 0"""
    return torch.linalg.slogdet(A)


@slogdet.vjp("A")
def _(g: Any, A: Tensor) -> Tensor:
    return g[1][..., None, None] * torch.linalg.inv(A).mT


@slogdet.example
def _(make: Any) -> Any:
    return (make(2, 2, 2) + 2 * torch.eye(2, dtype=torch.float64),)


@composite("logdet")
def logdet(A: Any) -> Any:
    """Log of the determinant; NaN where that is negative. That of complex matrices is complex, and torch's."""
    if A.is_complex():
        return run_torch(torch.logdet, (A,), {})
    sign, log = torch.linalg.slogdet(A)
    return torch.where(sign == -1, float("nan"), log)


@primitive("inverse", "inv")
def inverse(A: Tensor) -> Tensor:
    """A^-1.   d/dA = -A^-T g A^-T"""
    return torch.linalg.inv(A)


@inverse.vjp("A")
def _(g: Tensor, out: Tensor) -> Tensor:
    return -torch.matmul(out.mT, torch.matmul(g, out.mT))


@inverse.example
def _(make: Any) -> Any:
    return (make(2, 2, 2) + 2 * torch.eye(2, dtype=torch.float64),)


@primitive(torch.linalg.solve, broadcasts=True, extra="constant")
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Any:
    """X with A X = B, or X A = B if not `left`.   d/dB = h with A^T h = g (h A^T = g),  d/dA = -h X^T (-X^T h)

    The LU factors are kept and used again for the gradient. `B` may be a vector, or a batch of them.
    """
    lu, pivots, info = torch.linalg.lu_factor_ex(A)
    if info.any():
        return torch.linalg.solve(A, B, left=left), None  # raises, and says which matrix is singular
    vector = left and (B.dim() == 1 or B.shape == A.shape[:-1])
    out = torch.linalg.lu_solve(lu, pivots, B.unsqueeze(-1) if vector else B, left=left)
    return (out.squeeze(-1) if vector else out), (lu, pivots, vector)


@solve.vjp("B")
def _(g: Tensor, A: Tensor, left: bool, extra: Any) -> Tensor:
    found = _solve_transposed(g, A, left, extra)
    return found.squeeze(-1) if extra[2] else found


@solve.vjp("A")
def _(g: Tensor, A: Tensor, left: bool, out: Tensor, extra: Any) -> Tensor:
    found = _solve_transposed(g, A, left, extra)
    out = out.unsqueeze(-1) if extra[2] else out
    return -torch.matmul(found, out.mT) if left else -torch.matmul(out.mT, found)


def _solve_transposed(g: Tensor, A: Tensor, left: bool, extra: Any) -> Tensor:
    """h with A^T h = g, or h A^T = g; matrices also where `g` is a vector."""
    lu, pivots, vector = extra
    g = g.unsqueeze(-1) if vector else g
    if isinstance(g, Recorded):  # the factors are no function of A that could be differentiated again
        return torch.linalg.solve(A.mT, g, left=left)
    return torch.linalg.lu_solve(lu, pivots, g, left=left, adjoint=True)


@solve.example
def _(make: Any) -> Any:
    return make(1, 2, 2) + 2 * torch.eye(2, dtype=torch.float64), make(2, 2, 3)


@solve.example
def _(make: Any) -> Any:
    return make(2, 2, 2) + 2 * torch.eye(2, dtype=torch.float64), make(2)


@solve.example
def _(make: Any) -> Any:
    return make(2, 2) + 2 * torch.eye(2, dtype=torch.float64), make(3, 2), False


@primitive("cholesky")
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """L with L L^T = input, or L^T L if `upper`; `input` is taken to be symmetric.

    d/dinput = L^-T P L^-1 / 2, where P is the lower triangle of L^T g, mirrored to the upper one.
    """
    return torch.linalg.cholesky(input, upper=upper)


@cholesky.vjp("input")
def _(g: Tensor, upper: bool, out: Tensor) -> Tensor:
    factor, g = (out.mT, g.mT) if upper else (out, g)
    inner = torch.matmul(factor.mT, g)
    inner = inner.tril() + inner.tril(-1).mT
    half = torch.linalg.solve_triangular(factor.mT, inner, upper=True)
    return torch.linalg.solve_triangular(factor, half, upper=False, left=False) * 0.5


@cholesky.example
def _(make: Any) -> Any:
    return (make(2, 1, 1, low=1.0, high=2.0),)  # larger ones in the tests: a single entry must not move alone
