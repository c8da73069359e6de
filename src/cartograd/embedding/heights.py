r"""How far each row is from the middle of the data, in a scale that suits the Poincare ball.

.. math:: h_i = \frac{|x_i - \mu|^2}{\frac{1}{n} \sum_j |x_j - \mu|^2}

with :math:`\mu` the mean row: neither the origin nor the unit of the data matters. Of distances alone,
:math:`|x_i - \mu|^2 = \frac{1}{n} \sum_j d_{ij}^2 - \frac{1}{2 n^2} \sum_{jk} d_{jk}^2`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cartograd.embedding.covariance import Centred, centred
from cartograd.embedding.source import Source
from cartograd.neighbors.rows import Rows
from cartograd.neighbors.tiles import tile_rows

HIGHEST = 100.0
"""Rows further out are taken to be there: a distance of 10 is within 1e-4 of the rim."""


@dataclass(frozen=True)
class Heights:
    r"""The scale of the heights of a data set, by which those of new rows are found.

    Parameters
    ----------
    mean : torch.Tensor or None
        :math:`\mu`, (d,) float64; None where the rows are distances.
    scale : float
        A power of two that rows are multiplied by before they are squared.
    middle : float
        What is taken off the mean square of a row of distances.
    unit : float
        What squares are multiplied by.
    """

    mean: torch.Tensor | None
    scale: float
    middle: float
    unit: float

    @classmethod
    def of(cls, source: Source) -> tuple[Heights, torch.Tensor]:
        """The scale of the rows, and their heights (n,) float64."""
        if source.metric == "precomputed":
            scale = 1.0 / (source.largest or 1.0)
            squares = cls(None, scale, 0.0, 1.0)._squares(source.rows)
            middle = float(squares.mean()) / 2
            plain = cls(None, scale, middle, 1.0)
        else:
            data = centred(source.rows)
            plain = cls(data.mean, data.scale, 0.0, 1.0)
            squares = plain._squares(source.rows)
        mean = float((squares - plain.middle).clamp_(min=0.0).mean())
        found = cls(plain.mean, plain.scale, plain.middle, 1 / mean if mean > 0 else 0.0)
        return found, found.of_rows(source.rows)

    def of_rows(self, rows: Rows) -> torch.Tensor:
        """The heights of rows, (m,) float64; each depends on its row alone."""
        return ((self._squares(rows) - self.middle) * self.unit).clamp_(0.0, HIGHEST)

    def _squares(self, rows: Rows) -> torch.Tensor:
        step = tile_rows(rows.width)
        blocks = [slice(start, min(start + step, rows.count)) for start in range(0, rows.count, step)]
        if self.mean is None:
            return torch.cat([(rows.block(b.start, b.stop).double() * self.scale).square().mean(1) for b in blocks])
        data = Centred(rows, self.mean, self.scale)
        return torch.cat([data.block(b.start, b.stop).square().sum(1) for b in blocks])
