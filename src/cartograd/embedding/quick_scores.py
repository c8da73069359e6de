"""Scores along the leading principal components in single precision: enough for where a layout begins."""

from __future__ import annotations

import torch

from cartograd.embedding.covariance import folded, tile_of
from cartograd.embedding.eigen import is_few, iterate
from cartograd.embedding.singular import guess, upright
from cartograd.neighbors.rows import Rows, TensorRows
from cartograd.neighbors.workers import spread

SAFE = 1e12
"""Values up to this in size, and not below its inverse, can be squared and summed in float32."""
OFFSET = 1e3
"""A mean this many times longer than the rows about it leaves float32 too few digits for the difference."""


def quickly(rows: Rows, wanted: int, seed: int, tolerance: float) -> torch.Tensor | None:
    r"""The scores :math:`(X - 1 \mu^T) V_c`, (n, wanted) float64, or None where float32 or iterating does not serve.

    Products with the rows are taken in float32, a tile at a time, and added in float64 in an order that does not depend
    on the number of threads.

    Parameters
    ----------
    rows : Rows
        The rows X, (n, d): float32, in memory.
    wanted : int
        c.
    seed : int
        Seed of the first guess.
    tolerance : float
        The error allowed in a direction.
    """
    if (
        not isinstance(rows, TensorRows)
        or rows.dtype != torch.float32
        or not is_few(wanted, min(rows.count, rows.width))
    ):
        return None
    mean = _safe_mean(rows)
    if mean is None:
        return None
    first = guess(rows.width, wanted, seed, rows.device)
    found = iterate(lambda V: _gram_product(rows, mean, V), first, wanted, tolerance)
    V = upright(found.vectors[:, :wanted].T).T.to(torch.float32)
    tile = tile_of(rows)
    starts = range(0, rows.count, tile)
    return torch.cat(list(spread(lambda start: (_block(rows, mean, start, tile) @ V).to(torch.float64), starts)))


def _safe_mean(rows: TensorRows) -> torch.Tensor | None:
    """The mean row, (d,) float32; None where the rows are too large, too small or too far from the origin for it."""

    def of_tile(start: int, stop: int) -> torch.Tensor:
        block = rows.data[start:stop]
        low, high = torch.aminmax(block)
        mean = block.new_ones(1, len(block)) @ block / rows.count
        return torch.cat([mean[0], torch.maximum(-low, high)[None]]).to(torch.float64)

    def both(total: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        return torch.cat([total[:-1] + part[:-1], torch.maximum(total[-1:], part[-1:])])

    found = folded(rows, of_tile, both, rows.width)
    mean, largest = found[:-1], float(found[-1])
    some = rows.data[:: max(1, rows.count // 256)].to(torch.float64)
    about = float(torch.linalg.vector_norm(some - mean, dim=1).mean())
    near = float(torch.linalg.vector_norm(mean)) <= OFFSET * about
    return mean.to(torch.float32) if near and largest <= SAFE and about >= 1 / SAFE else None


def _block(rows: TensorRows, mean: torch.Tensor, start: int, count: int) -> torch.Tensor:
    return rows.data[start : start + count] - mean


def _gram_product(rows: TensorRows, mean: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    r""":math:`X^T X V` of the centred rows, (d, m) float64."""
    single = V.to(torch.float32)

    def of_tile(start: int, stop: int) -> torch.Tensor:
        block = _block(rows, mean, start, stop - start)
        return (block.T @ (block @ single)).to(torch.float64)

    return folded(rows, of_tile, torch.Tensor.add_, V.numel())
