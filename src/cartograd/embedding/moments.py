r"""Count, mean and covariance of rows, which of two sets of rows give those of both (Chan, Golub and LeVeque, 1983).

.. math:: n = n_a + n_b, \quad \mu = \mu_a + \frac{n_b}{n} \delta, \quad
    M = M_a + M_b + \frac{n_a n_b}{n} \delta \delta^T, \qquad \delta = \mu_b - \mu_a

M being the sum of :math:`(x - \mu)(x - \mu)^T`. Nothing is lost in it: batches give what all rows together would.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cartograd.affinity import checks
from cartograd.embedding.covariance import Centred, centred, covariance
from cartograd.embedding.eigen import largest_eigenpairs
from cartograd.embedding.singular import TOLERANCE, guess, upright
from cartograd.embedding.spectrum import Spectrum
from cartograd.errors import OptionError
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


def is_shared(distributed: bool | str) -> bool:
    """Whether there are other processes that hold other rows."""
    checks.choice(distributed, "distributed", ("auto", True, False))
    here = torch.distributed.is_available() and torch.distributed.is_initialized()
    if distributed is True and not here:
        raise OptionError(
            "distributed=True needs a process group: start with torchrun and call "
            "torch.distributed.init_process_group() first"
        )
    return bool(distributed) and here and torch.distributed.get_world_size() > 1


def over_processes(own: Moments) -> Moments:
    """The moments of the rows of all processes, merged in the order of their ranks: the same bits in each."""
    nccl = torch.distributed.get_backend() == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")
    scale = torch.tensor([own.scale], dtype=torch.float64, device=device)
    torch.distributed.all_reduce(scale, torch.distributed.ReduceOp.MIN)
    factor = float(scale) / own.scale
    rescaled = Moments(own.count, own.mean, own.scatter * factor * factor, float(scale))
    total: Moments | None = None
    for rank in range(torch.distributed.get_world_size()):
        part = _from(rank, rescaled, device)
        total = part if total is None else merged(total, part)
    assert total is not None
    return Moments(total.count, total.mean.to(own.mean), total.scatter.to(own.scatter), total.scale)


def _from(rank: int, own: Moments, device: torch.device) -> Moments:
    """The moments of one process, sent to all."""
    count = torch.tensor([own.count], dtype=torch.int64, device=device)
    mean, scatter = own.mean.to(device).clone(), own.scatter.to(device).clone()
    for part in (count, mean, scatter):
        torch.distributed.broadcast(part, rank)
    return Moments(int(count), mean, scatter, own.scale)
