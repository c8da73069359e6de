r"""CO-SNE's repulsion over all pairs of points of the Poincare disc, in float64: O(n) memory, nothing but registers.

A program owns some queries and walks over all points, a tile at a time, as those of `cartograd.kernels.gpu.repulsion`
do; sums are kept lane by lane and added up at the end, always in the same order. The formulas are those of
`cartograd.embedding.forces.poincare`, whose function of the same name is the twin of this one.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl


def repulsion_sums(
    queries: torch.Tensor, points: torch.Tensor, own: bool, gamma: float, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    r""":math:`\sum_j Q_{ij}`, (m,), and :math:`-\frac12` of its gradient by x_i, (m, 2), Q = gamma / (D + gamma^2).

    Parameters
    ----------
    queries, points : torch.Tensor
        (m, 2) and (n, 2) float64, within the unit disc.
    own : bool
        Whether both are the same rows; pairs of a row with itself are then left out.
    gamma : float
        The width of the Cauchy distribution.
    **options : Any
        Sizes to try: rows, columns, warps.
    """
    m, rows = len(queries), options.get("rows", 4)
    sums, pulls = queries.new_empty(m), queries.new_empty(m, 2)
    _repulsion[(triton.cdiv(m, rows),)](
        _planes(queries), _planes(points), _constants(float(gamma), queries.device), sums, pulls, m, len(points),
        OWN=own, ROWS=rows, COLUMNS=options.get("columns", 64), num_warps=options.get("warps", 4),
    )  # fmt: skip
    return sums, pulls


def _planes(points: torch.Tensor) -> torch.Tensor:
    """The coordinates and 1 / (1 - |z|^2), one after the other, (3, n)."""
    return torch.cat([points.T, (1 - points.square().sum(1)).reciprocal_()[None]])


@functools.lru_cache(maxsize=16)
def _constants(gamma: float, device: torch.device) -> torch.Tensor:
    """Gamma, and the range that u is kept in; numbers given to a kernel as they are would come there in float32."""
    ends = torch.finfo(torch.float64)
    return torch.tensor([gamma, ends.tiny, ends.max], dtype=torch.float64, device=device)


@triton.jit
def _log_of_more(x):
    """log(1 + x) with all digits (Kahan): the rounding of 1 + x = w is the same in log(w) and in w - 1."""
    w = 1.0 + x
    rounded = w - 1.0
    return tl.where(rounded > 0.0, tl.log(w) * (x / tl.where(rounded > 0.0, rounded, 1.0)), x)


@triton.jit
def _repulsion(
    queries, points, constants, sums, pulls, m, n, OWN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    row, lane = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    gamma, least, most = tl.load(constants), tl.load(constants + 1), tl.load(constants + 2)
    x = tl.load(queries + row, mask=row < m, other=0.0)
    y = tl.load(queries + m + row, mask=row < m, other=0.0)
    here = tl.load(queries + 2 * m + row, mask=row < m, other=1.0)
    total, bent = tl.zeros((ROWS, COLUMNS), tl.float64), tl.zeros((ROWS, COLUMNS), tl.float64)
    pull_x, pull_y = tl.zeros((ROWS, COLUMNS), tl.float64), tl.zeros((ROWS, COLUMNS), tl.float64)
    for first in range(0, n, COLUMNS):
        column = first + lane
        inside = column < n
        dx = x[:, None] - tl.load(points + column, mask=inside, other=0.0)[None, :]
        dy = y[:, None] - tl.load(points + n + column, mask=inside, other=0.0)[None, :]
        there = tl.load(points + 2 * n + column, mask=inside, other=1.0)[None, :]
        u = (dx * dx + dy * dy) * here[:, None] * there
        u = tl.where(u < least, least, tl.where(u > most, most, u))  # what is not a number stays that
        root, more = tl.sqrt(u), tl.sqrt(1.0 + u)
        half = _log_of_more(root + u / (1.0 + more))  # arsinh(root)
        Q = gamma / (4.0 * half * half + gamma * gamma)
        paired = inside[None, :]
        if OWN:
            paired = paired & (column[None, :] != row[:, None])
        Q = tl.where(paired, Q, 0.0)
        strength = Q * Q * (4.0 * half / (root * more)) / gamma
        total += Q
        bent += strength * u
        strength *= there
        pull_x += strength * dx
        pull_y += strength * dy
    around = tl.sum(bent, 1)
    tl.store(sums + row, tl.sum(total, 1), mask=row < m)
    tl.store(pulls + 2 * row, (tl.sum(pull_x, 1) + around * x) * here, mask=row < m)
    tl.store(pulls + 2 * row + 1, (tl.sum(pull_y, 1) + around * y) * here, mask=row < m)
