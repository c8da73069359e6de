"""Diffusion over a graph: the operator of PHATE, its powers, and how many steps to take."""

from __future__ import annotations

import torch

from cartograd.affinity.data import kth_smallest
from cartograd.affinity.local_scale import ratio

LOG_FLOOR = 1e-7
"""Added to probabilities before their logarithm, as PHATE does: beyond it differences are noise."""


def alpha_decay_kernel(C: torch.Tensor, k: int, alpha: float) -> torch.Tensor:
    r""":math:`K_{ij} = \frac12 (e^{-(d_{ij} / \sigma_i)^\alpha} + e^{-(d_{ij} / \sigma_j)^\alpha})`, (n, n).

    :math:`\sigma_i` is the distance of the k-th neighbour, the row itself not counted.
    """
    one_way = torch.exp(-ratio(C, kth_smallest(C, k)[:, None]).pow(alpha))
    return (one_way + one_way.T) / 2


def by_rows(K: torch.Tensor) -> torch.Tensor:
    """Rows that sum to one."""
    return K / K.sum(1, keepdim=True)


def stepped(operator: torch.Tensor, t: int) -> torch.Tensor:
    """The t-th power, by squaring."""
    return torch.linalg.matrix_power(operator, t)


def potential(probabilities: torch.Tensor) -> torch.Tensor:
    r""":math:`U = -\log(P^t + 10^{-7})`."""
    return -torch.log(probabilities + LOG_FLOOR)


def potential_distances(U: torch.Tensor) -> torch.Tensor:
    """Euclidean distances between rows of potentials, (n, n), 0 on the diagonal."""
    return torch.cdist(U, U, compute_mode="donot_use_mm_for_euclid_dist")


def landmark_operator(K: torch.Tensor, labels: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Diffusion by way of landmarks, groups of rows.

    Parameters
    ----------
    K : torch.Tensor
        (n, n), the symmetric kernel.
    labels : torch.Tensor
        (n,) int64, the group of each row.
    count : int
        How many groups.

    Returns
    -------
    operator : torch.Tensor
        (count, count): from a landmark to any row, and on to a landmark; rows sum to one.
    to_landmarks : torch.Tensor
        (n, count): from a row to the landmarks; rows sum to one.
    """
    grouped = torch.zeros(len(K), count, dtype=K.dtype, device=K.device).index_add_(1, labels, K)
    to_landmarks = by_rows(grouped)
    return by_rows(grouped.T) @ to_landmarks, to_landmarks


def groups(K: torch.Tensor, count: int, t: int, seed: int, dims: int = 100) -> torch.Tensor:
    """Groups of rows that t steps of diffusion lead to like places: k-means on its diffusion map, (n,) int64."""
    from sklearn.cluster import MiniBatchKMeans

    degree = K.sum(1).rsqrt()
    values, vectors = _leading(degree[:, None] * K * degree[None, :], min(dims, len(K) - 1))
    leading = vectors * values.abs().pow(t) * degree[:, None]
    leading = leading / leading.abs().max()
    means = MiniBatchKMeans(count, batch_size=max(1024, 2 * count), n_init=3, random_state=seed)
    labels = means.fit_predict(leading.cpu().numpy())
    return torch.unique(torch.as_tensor(labels, dtype=torch.int64, device=K.device), return_inverse=True)[1]


def _leading(symmetric: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest eigenvalues, (count,), and their vectors, (n, count)."""
    from scipy.sparse.linalg import eigsh

    matrix = symmetric.cpu().numpy()
    found = eigsh(matrix, count, which="LA", v0=matrix.sum(1))  # from a fixed start: the same bits each time
    values, vectors = (torch.from_numpy(part).to(symmetric.device) for part in found)
    return values, vectors


def spectral_entropies(K: torch.Tensor, t_max: int) -> torch.Tensor:
    r"""Von Neumann entropies of the operator's powers t = 1 ... t_max, (t_max,).

    .. math:: H(t) = -\sum_i p_i \log p_i, \qquad p_i = \lambda_i^t / \textstyle\sum_j \lambda_j^t

    with :math:`\lambda` the absolute eigenvalues of :math:`D^{-1/2} K D^{-1/2}`, which are the operator's.
    """
    degree = K.sum(1).rsqrt()
    values = torch.linalg.eigvalsh(degree[:, None] * K * degree[None, :]).abs()
    t = torch.arange(1, t_max + 1, dtype=K.dtype, device=K.device)
    powers = values[None, :].pow(t[:, None])
    return torch.special.entr(powers / powers.sum(1, keepdim=True)).sum(1)


def knee(values: torch.Tensor) -> int:
    """Where a falling curve bends: the place at which two straight lines, before and after, fit it best."""
    count = len(values)
    if count < 3:
        return 0
    x = torch.arange(count, dtype=values.dtype, device=values.device)
    errors = [_line_error(x[: i + 1], values[: i + 1]) + _line_error(x[i:], values[i:]) for i in range(1, count - 1)]
    return int(torch.stack(errors).argmin()) + 1


def _line_error(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The sum of the absolute distances of points from their least-squares line."""
    dx, dy = x - x.mean(), y - y.mean()
    return (dy - dx * (dx @ dy) / (dx @ dx)).abs().sum()
