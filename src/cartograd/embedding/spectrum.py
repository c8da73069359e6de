"""What is told of principal components: variances, shares, what is left; the same for every way to find them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cartograd.embedding.estimator import detached
from cartograd.neighbors.intake import Given

if TYPE_CHECKING:
    from cartograd.embedding.projection import Projection


@dataclass(frozen=True)
class Spectrum:
    r"""Components of rows that were scaled by s.

    Parameters
    ----------
    mean : torch.Tensor
        (d,), of the rows as they were.
    directions : torch.Tensor
        (c, d).
    values : torch.Tensor
        (c,), the singular values :math:`\sigma` of the scaled centred rows.
    total : float
        The sum of all their squares.
    count : int
        How many rows there were.
    left : int
        How many directions with a variance were left out.
    scale : float
        s.
    """

    mean: torch.Tensor
    directions: torch.Tensor
    values: torch.Tensor
    total: float
    count: int
    left: int
    scale: float

    def store(self, model: Projection, given: Given) -> None:
        r"""Set the fitted attributes of a model, of the kind of the data.

        Variances are :math:`\sigma^2 / (n - 1)`, the noise is the mean of those left out.
        """
        free, s = max(self.count - 1, 1), self.scale
        squares = self.values.square()
        rest = max(self.total - float(squares.sum()), 0.0) / free / max(self.left, 1)
        model.n_components_ = len(self.values)
        model.mean_ = detached(self.mean, given)
        model.components_ = detached(self.directions, given)
        model.singular_values_ = detached(self.values / s, given)
        model.explained_variance_ = detached(squares / free / s / s, given)
        model.explained_variance_ratio_ = detached(squares / self.total if self.total else squares, given)
        model.noise_variance_ = rest / s / s if self.left > 0 else 0.0
        model.is_fitted_ = True
