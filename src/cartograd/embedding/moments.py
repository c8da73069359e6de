r"""Count, mean and covariance of rows, which of two sets of rows give those of both (Chan, Golub and LeVeque, 1983).

.. math:: n = n_a + n_b, \quad \mu = \mu_a + \frac{n_b}{n} \delta, \quad
    M = M_a + M_b + \frac{n_a n_b}{n} \delta \delta^T, \qquad \delta = \mu_b - \mu_a

M being the sum of :math:`(x - \mu)(x - \mu)^T`. Nothing is lost in it: batches give what all rows together would.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from cartograd.affinity import checks
from cartograd.distributed import Ranks, find_ranks
from cartograd.embedding.covariance import Centred, centred, covariance
from cartograd.embedding.eigen import largest_eigenpairs
from cartograd.embedding.singular import TOLERANCE, guess, upright
from cartograd.embedding.spectrum import Spectrum
from cartograd.neighbors.intake import Given
from cartograd.neighbors.rows import Rows


@dataclass(frozen=True)
class Moments:
    """The first two moments of rows.

    Parameters
    ----------
    count : int
        n.
    mean : torch.Tensor
        (d,) float64.
    scatter : torch.Tensor
        M, (d, d) float64, of rows times `scale`.
    scale : float
        A power of two that keeps M in range.
    """

    count: int
    mean: torch.Tensor
    scatter: torch.Tensor
    scale: float

    def about(self, centre: torch.Tensor) -> torch.Tensor:
        r""":math:`\sum (x - c)(x - c)^T = M + n (\mu - c)(\mu - c)^T`, scaled."""
        apart = (self.mean - centre) * self.scale
        return self.scatter + self.count * torch.outer(apart, apart)


def moments(rows: Rows, scale: float | None = None) -> Moments:
    """The moments of rows, scaled as asked or as they need."""
    data = centred(rows)
    data = data if scale is None else Centred(rows, data.mean, scale)
    return Moments(rows.count, data.mean, covariance(data), data.scale)


def merged(a: Moments, b: Moments) -> Moments:
    """The moments of the rows of both, which must be scaled alike."""
    count = a.count + b.count
    apart = b.mean - a.mean
    scaled = apart * a.scale
    scatter = a.scatter + b.scatter + (a.count * b.count / count) * torch.outer(scaled, scaled)
    return Moments(count, a.mean + apart * (b.count / count), scatter, a.scale)


def spectrum_of(found: Moments, wanted: int, seed: int, given: Given, centre: torch.Tensor | None = None) -> Spectrum:
    """The leading components of the covariance, about the mean or another centre.

    Parameters
    ----------
    found : Moments
        Of all rows.
    wanted : int
        How many.
    seed : int
        Seed of the first guess where they are iterated.
    given : Given
        Some of the rows, for their precision.
    centre : torch.Tensor, default=None
        (d,), another centre than the mean.
    """
    d = len(found.mean)
    scatter = found.scatter if centre is None else found.about(centre)
    tolerance = TOLERANCE[given.rows.dtype]
    pairs = largest_eigenpairs(scatter, wanted, guess(d, wanted, seed, scatter.device), tolerance)
    total, left = float(scatter.diagonal().sum()), max(min(found.count, d) - wanted, 0)
    mean = found.mean if centre is None else centre
    values = pairs.values.clamp(min=0).sqrt()
    return Spectrum(mean, upright(pairs.vectors.T), values, total, found.count, left, found.scale)


def sharers(distributed: bool | str) -> Ranks | None:
    """The processes that may hold other rows; None where there are none."""
    checks.choice(distributed, "distributed", ("auto", True, False))
    return find_ranks(distributed)


@contextlib.contextmanager
def agreed(model: object) -> Iterator[None]:
    """A fit, with the other processes where a model knows of any: an error in one ends it in all."""
    ranks = sharers(getattr(model, "distributed", False))
    with contextlib.nullcontext() if ranks is None else ranks.one_for_all(type(model).__name__):
        yield


def over_processes(own: Moments, ranks: Ranks) -> Moments:
    """The moments of the rows of all processes, merged in the order of their ranks: the same bits in each.

    Where all have the same moments they were given the same rows, which then count once.
    """
    counts = [count for (count,) in ranks.agree("numbers of rows", own.count)]
    scale = float(ranks.gathered(torch.tensor([own.scale], dtype=torch.float64), "scales").min())
    factor = scale / own.scale
    means = ranks.gathered(own.mean[None], "means of rows")
    scatters = ranks.gathered((own.scatter * factor * factor)[None], "products of rows")
    parts = [Moments(*part, scale) for part in zip(counts, means, scatters, strict=True)]
    if len(set(counts)) == 1 and bool((means == means[0]).all()) and bool((scatters == scatters[0]).all()):
        return own
    total = parts[0]
    for part in parts[1:]:
        total = merged(total, part)
    return total
