r"""Search of float64 rows by the kernels for float32: the same neighbors, at little more than float32's time.

Rows are centered, scaled by a power of two and rounded to float32, which moves row i by :math:`e_i`. The candidates
that a search of the rounded rows finds are measured in float64. A row that is no candidate of row i is, after rounding,
at least as far as the last candidate, at :math:`l_i`, and so at least :math:`l_i - e_i - \max_j e_j` before. Rows whose
k-th neighbor lies beyond that are searched again, in float64.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import torch

from cartograd.neighbors.best import SPARE
from cartograd.neighbors.distances import METRICS, PRODUCT_METRICS
from cartograd.neighbors.exact import Found
from cartograd.neighbors.measure import measured
from cartograd.neighbors.problem import Problem, solve_exactly
from cartograd.neighbors.rows import TensorRows
from cartograd.neighbors.tiles import middle, tile_rows

log = logging.getLogger("cartograd.neighbors")

LEAST_ROWS = 2000
MOST = 1 << 29
"""Rows from which on, and numbers up to which rounded rows are held."""
FEW = 0.1
"""Where more than this share of rows must be searched again, all are searched in float64."""


def narrow(problem: Problem) -> tuple[Problem, torch.Tensor] | None:
    """Return the problem with rows rounded to float32, and by how much each row moved; None where it is of no use.

    The distances of the rounded problem are those of the original one times a power of two.
    """
    data, k = problem.data, problem.k
    fits = data.dtype == torch.float64 and problem.sparse is None and problem.queries is None
    large = data.count >= LEAST_ROWS and data.count * data.width <= MOST and k + SPARE <= data.count // 20
    if not (fits and large and problem.metric.name in PRODUCT_METRICS):
        return None
    center, step = middle(data), tile_rows(data.width)
    rounded = torch.empty(data.count, data.width, dtype=torch.float32, device=data.device)
    moved = torch.empty(data.count, dtype=torch.float64, device=data.device)
    scale = _scale(problem, center)
    for start in range(0, data.count, step):
        exact = (data.block(start, start + step) - center) * scale
        rounded[start : start + step] = exact
        moved[start : start + step] = torch.linalg.vector_norm(exact - rounded[start : start + step], dim=1) / scale
    return replace(problem, data=TensorRows(rounded), metric=METRICS["sqeuclidean"], k=k + SPARE), moved


def _scale(problem: Problem, center: torch.Tensor) -> float:
    """Return the power of two that brings the largest coordinate near 1."""
    data, step = problem.data, tile_rows(problem.data.width)
    blocks = (data.block(start, start + step) for start in range(0, data.count, step))
    largest = max(float((block - center).abs().max()) for block in blocks)
    return 2.0 ** -math.ceil(math.log2(largest)) if largest > 0 else 1.0


def widen(problem: Problem, moved: torch.Tensor, candidates: torch.Tensor, exact: bool) -> Found | None:
    """Return the k nearest of the candidates by float64 distances; None where too many rows are in doubt.

    Parameters
    ----------
    problem : Problem
        The original one, of float64 rows.
    moved : torch.Tensor
        (n,) by how much rounding moved each row.
    candidates : torch.Tensor
        (n, k + `SPARE`) int64, of the rounded rows, nearest first.
    exact : bool
        Whether rows whose neighbors rounding may have changed are searched again.
    """
    rounding = moved + moved.max()
    ids, raw = measured(problem.metric, problem.data, problem.asked, candidates)
    kth = raw[:, problem.k - 1].sqrt()
    last = raw[:, -1].sqrt() - rounding  # the last candidate after rounding is no nearer than this
    doubtful = torch.nonzero((kth >= last - rounding) if exact else (kth <= rounding))[:, 0]
    if len(doubtful) > FEW * len(ids):
        log.info("float64: %d rows differ by less than float32 can tell; searching in float64", len(doubtful))
        return None
    ids, raw = ids[:, : problem.k].contiguous(), raw[:, : problem.k].contiguous()
    if len(doubtful):
        ids[doubtful], raw[doubtful] = solve_exactly(problem, doubtful)
    return ids, raw
