"""The largest eigenvalues of a symmetric matrix, or of anything that multiplies vectors as one does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cartograd.neighbors.workers import spread

log = logging.getLogger("cartograd.embedding")

DENSE_UP_TO = 256
TILE = 512
EXTRA = 6
"""Vectors in a block beyond those wanted: the next eigenvalues then stand in the way less."""
ROUNDS = 100
FLOOR = 1e-12
"""A residual this small beside the largest eigenvalue is rounding."""
NEW = 1e-10
"""A direction of which this share or less is new is taken to be known already."""

Apply = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenvalues and their vectors, the largest first.

    Parameters
    ----------
    values : torch.Tensor
        (k,), falling.
    vectors : torch.Tensor
        (m, k), of length one and at right angles.
    least : float
        The smallest eigenvalue, or an upper bound of it.
    """

    values: torch.Tensor
    vectors: torch.Tensor
    least: float


def is_few(wanted: int, size: int) -> bool:
    """Whether so few of the eigenvalues are wanted that iterating is faster than finding all."""
    return size > DENSE_UP_TO and 16 * (wanted + EXTRA) < size


def largest_eigenpairs(matrix: torch.Tensor, wanted: int, start: torch.Tensor, tolerance: float) -> Eigenpairs:
    """The `wanted` largest eigenvalues of a symmetric matrix, and their vectors.

    Parameters
    ----------
    matrix : torch.Tensor
        (m, m), symmetric, float64.
    wanted : int
        How many.
    start : torch.Tensor
        (m, b) with b at least `wanted`, a first guess or random numbers; used where only few are wanted.
    tolerance : float
        See `iterate`.
    """
    if is_few(wanted, len(matrix)):
        return iterate(lambda V: _product(matrix, V), start, wanted, tolerance)
    values, vectors = torch.linalg.eigh(matrix)
    return Eigenpairs(values.flip(0)[:wanted], vectors.flip(1)[:, :wanted], float(values[0]))


def iterate(apply: Apply, start: torch.Tensor, wanted: int, tolerance: float) -> Eigenpairs:
    r"""Block Lanczos with all vectors kept at right angles, Rayleigh and Ritz in the space they span.

    With :math:`Q` an orthonormal basis of :math:`[V, A V, A^2 V, \dots]`, the eigenpairs :math:`(\theta, s)` of
    :math:`Q^T A Q` give those of A, :math:`(\theta, Q s)`. The error of a vector is about its residual
    :math:`\lVert A y - \theta y \rVert` over the distance of :math:`\theta` from the other eigenvalues: the rounds end
    where that is below the tolerance for all that are wanted.

    Parameters
    ----------
    apply : callable
        ``apply(V)``, the product A V of the symmetric A with V (m, b), float64.
    start : torch.Tensor
        V, (m, b), with b at least `wanted`.
    wanted : int
        How many eigenpairs.
    tolerance : float
        The largest error of their vectors.
    """
    basis = images = start[:, :0]
    inner = basis.T @ images
    block = orthonormal(start, basis)
    look = 1
    for number in range(1, ROUNDS + 1):
        image = apply(block)
        inner = _bordered(inner, basis.T @ image, block.T @ image)
        basis, images = torch.cat([basis, block], 1), torch.cat([images, image], 1)
        block = orthonormal(image, basis)
        if number < look and block.shape[1] and number < ROUNDS:
            continue
        look = number + 1 + number // 8  # looking costs more than a round once there are many vectors
        values, inside = torch.linalg.eigh(inner)
        values, inside = values.flip(0), inside.flip(1)
        error = _error(basis, images, values, inside, wanted)
        if error <= tolerance or not block.shape[1]:
            break
    else:
        log.info("eigenvectors: error about %.1e after %d rounds, %.1e wanted", error, ROUNDS, tolerance)
    return Eigenpairs(values[:wanted], basis @ inside[:, :wanted], float(values[-1]))


def _bordered(inner: torch.Tensor, side: torch.Tensor, corner: torch.Tensor) -> torch.Tensor:
    """A symmetric matrix with new columns, and the rows that mirror them."""
    return torch.cat([torch.cat([inner, side], 1), torch.cat([side.T, (corner + corner.T) / 2], 1)])


def _error(basis: torch.Tensor, images: torch.Tensor, values: torch.Tensor, inside: torch.Tensor, wanted: int) -> float:
    """The largest estimated error of the wanted vectors."""
    picked = inside[:, :wanted]
    residual = torch.linalg.vector_norm(images @ picked - basis @ picked * values[:wanted], dim=0)
    apart = (values[:wanted, None] - values[None, :]).abs()
    apart.fill_diagonal_(torch.inf)
    apart = apart.amin(1).clamp(max=float(values[0].abs()))
    rounding = FLOOR * float(values.abs().max())
    error = torch.where(residual <= rounding, 0.0, residual / apart)
    return float(error.nan_to_num(nan=0.0).max())


def orthonormal(block: torch.Tensor, basis: torch.Tensor) -> torch.Tensor:
    """What of the block is new beside the basis, as an orthonormal basis of it; no columns where nothing is."""
    length = float(torch.linalg.matrix_norm(block))
    if length == 0:
        return block[:, :0]
    block = block / length
    for _ in range(2):  # once leaves rounding errors of the first projection behind
        block = block - basis @ (basis.T @ block)
    directions, amounts, _ = torch.linalg.svd(block, full_matrices=False)
    new = directions[:, amounts > NEW]
    new = new - basis @ (basis.T @ new)
    return torch.linalg.qr(new).Q if new.shape[1] else new


def _product(matrix: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    """The product by tiles of rows, on all cores."""
    return torch.cat(list(spread(lambda start: matrix[start : start + TILE] @ V, range(0, len(matrix), TILE))))
