r"""The repulsions of t-SNE and SNE over all pairs, in tiles: memory is O(n + tile).

With :math:`s_{ij} = |z_i - z_j|^2`, and a row never paired with itself. Points as far as 1e4 from each other, and
points in one place, are no special cases: differences are taken before squares, and exponentials of differences from
the smallest :math:`s_{ij}` of their row.
"""

from __future__ import annotations

import torch

from cartograd.distributed import Part
from cartograd.embedding.forces import compiled_pairs
from cartograd.embedding.forces.tiles import Pairs, Tile
from cartograd.embedding.kernel_rows import served
from cartograd.kernels import cpu, gpu


def _by_kernel(queries: torch.Tensor, points: torch.Tensor) -> bool:
    """Whether sums are computed by kernels for the GPU: in the plane, in float32."""
    plane = queries.shape[1] == 2 and queries.dtype == points.dtype == torch.float32
    return plane and queries.is_cuda and gpu.served(queries)


def student_sums(
    queries: torch.Tensor, points: torch.Tensor, own: bool = False, first: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""What t-SNE's repulsion is made of, :math:`\sum_j w_{ij}` and :math:`\sum_j w_{ij}^2 (x_i - y_j)`.

    :math:`w_{ij} = 1 / (1 + |x_i - y_j|^2)`. Each row's sums are its own: they have the same bits whatever other
    queries are given beside it.

    Parameters
    ----------
    queries : torch.Tensor
        (m, c), the rows x.
    points : torch.Tensor
        (n, c), the rows y.
    own : bool, default=False
        Whether the queries are points, one after the other; pairs of a row with itself are then left out.
    first : int, default=0
        Which of the points the first query is.

    Returns
    -------
    sums : torch.Tensor
        (m,).
    pulls : torch.Tensor
        (m, c).
    """
    if _by_kernel(queries, points) and not (own and len(queries) < len(points)):
        found: tuple[torch.Tensor, torch.Tensor] = gpu.load("repulsion").student_sums(queries, points, own)
        return found
    if served(len(points), points.shape[1], points.dtype, points.device) and queries.dtype == points.dtype:
        if cpu.usable():
            return compiled_pairs.student_sums(queries, points, own)
    sums, pulls = queries.new_empty(len(queries)), torch.empty_like(queries)

    def piece(tile: Tile) -> None:
        w = tile.squared.reciprocal_()
        sums[tile.rows] = w.sum(1)
        pulls[tile.rows] = tile.pulls(w.square())

    Pairs(queries, points, own, offset=1.0, first=first).each(piece)
    return sums, pulls


def scaled(pulls: torch.Tensor, factor: float, total: torch.Tensor) -> torch.Tensor:
    """``factor / total * pulls``, and 0 where there is nothing in the total."""
    ratio = torch.where(total > 0, factor / total.to(torch.float64), 0.0).to(pulls.dtype)
    return pulls * ratio if total.dim() == 0 else pulls * ratio[:, None]


def tsne_repulsion(Z: torch.Tensor, part: Part | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    r"""The gradient of :math:`\log \sum_{i \ne j} w_{ij}`, and that sum.

    .. math:: \nabla z_i = -\frac{4}{\sum_{k \ne l} w_{kl}} \sum_j w_{ij}^2 (z_i - z_j)

    Parameters
    ----------
    Z : torch.Tensor
        (n, c) the map.
    part : Part, default=None
        The rows of one process, where only their gradient is wanted.

    Returns
    -------
    gradient : torch.Tensor
        (n, c).
    total : torch.Tensor
        The sum over all pairs, a float64 scalar.
    """
    own = slice(0, len(Z)) if part is None else part.own
    sums, pulls = student_sums(Z[own], Z, own=True, first=own.start)
    return normalised(sums, pulls, len(Z), part)


def normalised(sums: torch.Tensor, pulls: torch.Tensor, n: int, part: Part | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient (n, c) of `tsne_repulsion` and its total, from the sums and pulls of all rows or of own ones."""
    total = sums.to(torch.float64).sum()
    if part is None:
        return scaled(pulls, -4.0, total), total
    total = part.total(total, "similarities")
    return part.placed(scaled(pulls, -4.0, total), n), total


def tsne_repulsion_at(queries: torch.Tensor, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    r"""For each query the gradient of :math:`\log \sum_j w_{ij}`, and that sum; the points stay where they are.

    .. math:: \nabla x_i = -\frac{2}{\sum_j w_{ij}} \sum_j w_{ij}^2 (x_i - y_j)

    Parameters
    ----------
    queries : torch.Tensor
        (m, c), new rows.
    points : torch.Tensor
        (n, c), the map.

    Returns
    -------
    gradient : torch.Tensor
        (m, c).
    sums : torch.Tensor
        (m,).
    """
    sums, pulls = student_sums(queries, points)
    return scaled(pulls, -2.0, sums), sums


def gaussian_rows(
    queries: torch.Tensor, points: torch.Tensor, own: bool = False, first: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""The log-sum-exp of each row in two parts, :math:`\log \sum_j e^{-s_{ij}} = l_i - m_i`.

    They stay apart because :math:`m_i = \min_j s_{ij}` may be so large that the sum would swallow :math:`l_i`.

    Parameters
    ----------
    queries, points : torch.Tensor
        (m, c) and (n, c).
    own : bool, default=False
        Whether the queries are points, one after the other, and no row is paired with itself.
    first : int, default=0
        Which of the points the first query is.

    Returns
    -------
    nearest, logs : torch.Tensor
        m and l, (m,) each.
    """
    if _by_kernel(queries, points) and not (own and len(queries) < len(points)):
        found: tuple[torch.Tensor, torch.Tensor] = gpu.load("repulsion").gaussian_rows(queries, points, own)
        return found
    nearest, logs = queries.new_empty(len(queries)), queries.new_empty(len(queries))

    def piece(tile: Tile) -> None:
        nearest[tile.rows] = tile.squared.amin(1)
        logs[tile.rows] = (nearest[tile.rows, None] - tile.squared).exp_().sum(1).log_()

    Pairs(queries, points, own, first=first).each(piece)
    return nearest, logs


def sne_repulsion(Z: torch.Tensor, part: Part | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    r"""The gradient of :math:`\frac{1}{n} \sum_i \log \sum_{j \ne i} e^{-s_{ij}}`, and its value.

    .. math:: \nabla z_i = -\frac{2}{n} \sum_j (q_{ij} + q_{ji}) (z_i - z_j), \qquad q_{ij} =
        \frac{e^{-s_{ij}}}{\sum_{k \ne i} e^{-s_{ik}}}

    Parameters
    ----------
    Z : torch.Tensor
        (n, c) the map.
    part : Part, default=None
        The rows of one process, where only their gradient and their part of the loss are wanted.

    Returns
    -------
    gradient : torch.Tensor
        (n, c).
    loss : torch.Tensor
        A float64 scalar; 0 for a single row.
    """
    n = len(Z)
    if n < 2:
        return torch.zeros_like(Z), torch.zeros((), dtype=torch.float64, device=Z.device)
    own = slice(0, n) if part is None else part.own
    nearest, logs = gaussian_rows(Z[own], Z, own=True, first=own.start)
    loss = (logs.to(torch.float64) - nearest.to(torch.float64)).sum() / n
    if part is None and _by_kernel(Z, Z):
        return gpu.load("repulsion").gaussian_pulls(Z, nearest, logs) * (-2.0 / n), loss
    pairs = Pairs(Z[own], Z, own=True, first=own.start)
    columns = torch.zeros(2, pairs.points.shape[1], dtype=Z.dtype, device=Z.device)
    both = torch.stack([nearest, logs], 1)
    columns[:, :n] = (both if part is None else part.whole(both, "sums of rows")).T
    pulls = torch.empty_like(Z[own])

    def piece(tile: Tile) -> None:
        theirs = (columns[0] - tile.squared).sub_(columns[1]).exp_()
        ours = torch.sub(nearest[tile.rows, None], tile.squared, out=tile.squared)
        pulls[tile.rows] = tile.pulls(ours.sub_(logs[tile.rows, None]).exp_().add_(theirs))

    pairs.each(piece)
    return pulls * (-2.0 / n) if part is None else part.placed(pulls * (-2.0 / n), n), loss


def sne_repulsion_at(queries: torch.Tensor, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    r"""For each query the gradient of :math:`\log \sum_j e^{-s_{ij}}`, and its value; the points stay.

    .. math:: \nabla x_i = -2 \sum_j q_{ij} (x_i - y_j)

    Parameters
    ----------
    queries : torch.Tensor
        (m, c), new rows.
    points : torch.Tensor
        (n, c), the map.

    Returns
    -------
    gradient : torch.Tensor
        (m, c).
    values : torch.Tensor
        (m,).
    """
    gradient, values = torch.empty_like(queries), queries.new_empty(len(queries))

    def piece(tile: Tile) -> None:
        nearest = tile.squared.amin(1)
        share = torch.sub(nearest[:, None], tile.squared, out=tile.squared).exp_()
        sums = share.sum(1)
        gradient[tile.rows] = tile.pulls(share) * (-2.0 / sums)[:, None]
        values[tile.rows] = sums.log() - nearest

    Pairs(queries, points, own=False).each(piece)
    return gradient, values
