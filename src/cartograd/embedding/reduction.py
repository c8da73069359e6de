"""Wide rows in their leading principal components, where distances are quicker to take and less noisy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from cartograd.embedding.covariance import Centred
from cartograd.embedding.pca import START_TOLERANCE
from cartograd.embedding.projection import product
from cartograd.embedding.singular import leading
from cartograd.embedding.source import Source
from cartograd.embedding.spread_source import SpreadSource, spread_spectrum
from cartograd.neighbors.rows import Rows, TensorRows

DIMENSIONS = 100
"""Rows of more dimensions are brought down to these, as in the PaCMAP package."""


@dataclass(frozen=True)
class Reduction:
    r"""A projection :math:`x \mapsto V^T (x - \mu)` of rows.

    Parameters
    ----------
    mean : torch.Tensor
        :math:`\mu`, (d,) float64.
    directions : torch.Tensor
        :math:`V^T`, (c, d) float64.
    scale : float
        A power of two that keeps squares in range; it is not left in the result.
    """

    mean: torch.Tensor
    directions: torch.Tensor
    scale: float

    def of(self, rows: Rows) -> TensorRows:
        """The rows projected, in their own precision; each independently of the others."""
        scores = product(Centred(rows, self.mean, self.scale), self.directions.T) / self.scale
        return TensorRows(scores.to(rows.dtype))


def reduced(source: Source, seed: int) -> tuple[Source, Reduction | None]:
    """The source in its leading components and the projection; as it is, and None, where that would change nothing.

    That is so for rows of few dimensions, for few rows, and for other distances than the Euclidean one.
    """
    wide = source.rows.width > DIMENSIONS and source.n > DIMENSIONS
    if not wide or source.metric not in ("euclidean", "sqeuclidean"):
        return source, None
    if isinstance(source, SpreadSource):
        spectrum = spread_spectrum(source, DIMENSIONS, seed)
        projection = Reduction(spectrum.mean, spectrum.directions, spectrum.scale)
    else:
        found = leading(source.rows, DIMENSIONS, seed, START_TOLERANCE)
        projection = Reduction(found.data.mean, found.directions, found.data.scale)
    return replace(source, rows=projection.of(source.rows)), projection
