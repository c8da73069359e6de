r"""Sums over all pairs of points in the plane, for the repulsions of t-SNE and SNE: O(n) memory, nothing but registers.

A program owns some queries and walks over all points, a tile at a time. Sums are kept lane by lane and added up at the
end, always in the same order. Only tiles at the end of the points, and those that hold pairs of a row with itself, are
masked. The twins of these kernels are the functions of the same names in `cartograd.embedding.forces.exact`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


def student_sums(
    queries: torch.Tensor, points: torch.Tensor, own: bool = False, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    r""":math:`\sum_j w_{ij}`, (m,), and :math:`\sum_j w_{ij}^2 (x_i - y_j)`, (m, 2), w = 1 / (1 + |x - y|^2).

    Parameters
    ----------
    queries, points : torch.Tensor
        (m, 2) and (n, 2) float32.
    own : bool, default=False
        Whether both are the same rows; pairs of a row with itself are then left out.
    **options : Any
        Sizes to try: rows, columns, warps.
    """
    m = len(queries)
    rows, left, right, sizes = _sizes(queries, points, options)
    sums, pulls = queries.new_empty(m), queries.new_empty(m, 2)
    _student[(triton.cdiv(m, rows),)](left, right, sums, pulls, m, len(points), OWN=own, **sizes)
    return sums, pulls


def gaussian_rows(
    queries: torch.Tensor, points: torch.Tensor, own: bool = False, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    r""":math:`m_i = \min_j s_{ij}` and :math:`l_i = \log \sum_j e^{m_i - s_{ij}}`, (m,) each, s = |x - y|^2."""
    m = len(queries)
    rows, left, right, sizes = _sizes(queries, points, options)
    nearest, logs = queries.new_empty(m), queries.new_empty(m)
    _gaussian[(triton.cdiv(m, rows),)](left, right, nearest, logs, m, len(points), OWN=own, **sizes)
    return nearest, logs


def gaussian_pulls(points: torch.Tensor, nearest: torch.Tensor, logs: torch.Tensor, **options: Any) -> torch.Tensor:
    r""":math:`\sum_{j \ne i} (q_{ij} + q_{ji}) (z_i - z_j)`, (n, 2), :math:`q_{ij} = e^{m_i - s_{ij} - l_i}`.

    Parameters
    ----------
    points : torch.Tensor
        (n, 2) float32.
    nearest, logs : torch.Tensor
        What `gaussian_rows` gives for them.
    **options : Any
        Sizes to try.
    """
    n = len(points)
    rows, _, planes, sizes = _sizes(points, points, options)
    pulls = torch.empty_like(points)
    _gaussian_pulls[(triton.cdiv(n, rows),)](planes, nearest, logs, pulls, n, **sizes)
    return pulls


def _sizes(queries: torch.Tensor, points: torch.Tensor, options: dict[str, Any]) -> tuple[int, Any, Any, Any]:
    rows = options.get("rows", 8)
    sizes = {"ROWS": rows, "COLUMNS": options.get("columns", 128), "num_warps": options.get("warps", 4)}
    return rows, queries.T.contiguous(), points.T.contiguous(), sizes


@triton.jit
def _apart(points, column, n, x, y):
    """Differences of queries and the points of a tile."""
    x1 = tl.load(points + column, mask=column < n, other=0.0)
    y1 = tl.load(points + n + column, mask=column < n, other=0.0)
    return x[:, None] - x1[None, :], y[:, None] - y1[None, :]


@triton.jit
def _blank(values, row, column, n, value, OWN: tl.constexpr):
    """The value where there is no pair."""
    there = (column < n)[None, :]
    if OWN:
        there = there & (column[None, :] != row[:, None])
    return tl.where(there, values, value)


@triton.jit
def _student(
    queries, points, sums, pulls, m, n, OWN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    start = tl.program_id(0) * ROWS
    row, lane = start + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    x = tl.load(queries + row, mask=row < m, other=0.0)
    y = tl.load(queries + m + row, mask=row < m, other=0.0)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    pull_x, pull_y = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, n, COLUMNS):
        dx, dy = _apart(points, first + lane, n, x, y)
        w = 1.0 / (1.0 + dx * dx + dy * dy)
        if (first + COLUMNS > n) | (OWN & (first < start + ROWS) & (first + COLUMNS > start)):
            w = _blank(w, row, first + lane, n, 0.0, OWN)
        total += w
        w *= w
        pull_x += w * dx
        pull_y += w * dy
    tl.store(sums + row, tl.sum(total, 1), mask=row < m)
    tl.store(pulls + 2 * row, tl.sum(pull_x, 1), mask=row < m)
    tl.store(pulls + 2 * row + 1, tl.sum(pull_y, 1), mask=row < m)


@triton.jit
def _gaussian(
    queries, points, nearest, logs, m, n, OWN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    row, lane = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    x = tl.load(queries + row, mask=row < m, other=0.0)
    y = tl.load(queries + m + row, mask=row < m, other=0.0)
    least = tl.full((ROWS, COLUMNS), float("inf"), tl.float32)
    for first in range(0, n, COLUMNS):
        dx, dy = _apart(points, first + lane, n, x, y)
        least = tl.minimum(least, _blank(dx * dx + dy * dy, row, first + lane, n, float("inf"), OWN))
    low = tl.min(least, 1)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, n, COLUMNS):
        dx, dy = _apart(points, first + lane, n, x, y)
        total += tl.exp(low[:, None] - _blank(dx * dx + dy * dy, row, first + lane, n, float("inf"), OWN))
    tl.store(nearest + row, low, mask=row < m)
    tl.store(logs + row, tl.log(tl.sum(total, 1)), mask=row < m)


@triton.jit
def _gaussian_pulls(points, nearest, logs, pulls, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, lane = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    x = tl.load(points + row, mask=row < n, other=0.0)
    y = tl.load(points + n + row, mask=row < n, other=0.0)
    low, log = tl.load(nearest + row, mask=row < n, other=0.0), tl.load(logs + row, mask=row < n, other=0.0)
    pull_x, pull_y = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, n, COLUMNS):
        column = first + lane
        dx, dy = _apart(points, column, n, x, y)
        s = _blank(dx * dx + dy * dy, row, column, n, float("inf"), True)
        their_low = tl.load(nearest + column, mask=column < n, other=0.0)
        their_log = tl.load(logs + column, mask=column < n, other=0.0)
        share = tl.exp((low[:, None] - s) - log[:, None]) + tl.exp((their_low[None, :] - s) - their_log[None, :])
        pull_x += share * dx
        pull_y += share * dy
    tl.store(pulls + 2 * row, tl.sum(pull_x, 1), mask=row < n)
    tl.store(pulls + 2 * row + 1, tl.sum(pull_y, 1), mask=row < n)
