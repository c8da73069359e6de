"""Where the points of a map begin: principal components, eigenvectors of the graph, chance, or an array."""

from __future__ import annotations

from typing import Any

import torch

from cartograd.affinity import checks
from cartograd.affinity.counter import normal, stream
from cartograd.affinity.data import plain
from cartograd.core.checks import show
from cartograd.embedding.pca import principal_scores
from cartograd.embedding.spectral_start import spectral_coordinates
from cartograd.errors import InputError, OptionError, UnsupportedError
from cartograd.neighbors import Graph
from cartograd.neighbors.rows import Rows

KINDS = ("pca", "spectral", "normal", "random", "hyperbolic")
FLAT = 1e-6
"""A coordinate this much flatter than the first is filled with noise: points on a line never leave it by themselves."""


def check_start(init: Any, n: int | None, n_components: int) -> None:
    """Refuse an unknown name, or an array of another shape than (n, n_components)."""
    if isinstance(init, str):
        if init not in KINDS:
            raise OptionError(f"unknown init {show(init)}: known are {', '.join(KINDS)}, or an array (n, n_components)")
        return
    points = _points(init)
    if points.dim() != 2:
        shape = tuple(points.shape)
        raise InputError(f"init must be one of {', '.join(KINDS)}, or an array (n, n_components), got shape {shape}")
    if n is not None and tuple(points.shape) != (n, n_components):
        raise InputError(f"init must be an array of shape {(n, n_components)}, got {tuple(points.shape)}")
    if points.is_complex() or points.dtype == torch.bool:
        raise InputError(f"init must hold real numbers, got {points.dtype}")
    bad = ~torch.isfinite(points)
    if bool(bad.any()):
        row, column = torch.nonzero(bad)[0].tolist()
        raise InputError(f"init contains {float(points[row, column])} at row {row}, column {column}")


def _points(init: Any) -> torch.Tensor:
    try:
        return plain(init)
    except (TypeError, ValueError, RuntimeError):
        names = ", ".join(KINDS)
        message = f"init must be one of {names}, or an array (n, n_components) of numbers, got {show(init)}"
        raise UnsupportedError(message) from None


def starting_points(
    init: Any, scaling: float | None, rows: Rows | None, graph: Graph | None, n: int, n_components: int, seed: int
) -> torch.Tensor:
    r"""The first layout, (n, n_components) float64.

    .. math:: Z = s \, Y / \mathrm{std}(Y_{\cdot 1})

    with Y the scores, eigenvectors, random numbers or array, s the scaling; "hyperbolic" is
    :math:`\tanh(|u|) u / |u|` of u = s N(0, 1), inside the unit ball. Without a scaling Y itself.

    Parameters
    ----------
    init : str or array-like
        One of `KINDS`, or an array (n, n_components).
    scaling : float or None
        s.
    rows : Rows or None
        The data; None where only distances are known, "pca" then means "spectral".
    graph : Graph or None
        The affinity; None where it is not sparse, "spectral" then means "pca" or "normal".
    n, n_components : int
        The shape.
    seed : int
        Seed of what is random.
    """
    device = rows.device if rows is not None else graph.device if graph is not None else torch.device("cpu")
    noise = normal(stream(seed, "start"), (n, n_components), device)
    if isinstance(init, str) and init == "hyperbolic":
        return _into_ball(noise * (1.0 if scaling is None else scaling))
    Y = _unscaled(init, rows, graph, noise, seed).to(device=device, dtype=torch.float64)
    if scaling is None:
        return Y.clone()
    scaling = checks.number(scaling, "init_scaling", 0.0, strict=True)
    Y = Y / Y.abs().max().clamp(min=torch.finfo(Y.dtype).tiny)  # squares of extreme values would leave the range
    spread = Y.std(0) if n > 1 else torch.ones(n_components, dtype=torch.float64, device=device)
    if not float(spread[0]) > 0:
        return noise * scaling
    Y = Y / spread[0]
    Y[:, spread < FLAT * spread[0]] += 0.01 * noise[:, spread < FLAT * spread[0]]
    return Y * scaling


def _unscaled(init: Any, rows: Rows | None, graph: Graph | None, noise: torch.Tensor, seed: int) -> torch.Tensor:
    if not isinstance(init, str):
        return plain(init)
    if init in ("normal", "random"):
        return noise
    if rows is None or (init == "spectral" and graph is not None):
        return noise if graph is None else spectral_coordinates(graph, noise.shape[1], rows, seed)
    return principal_scores(rows, noise.shape[1], seed)


def _into_ball(u: torch.Tensor) -> torch.Tensor:
    length = torch.linalg.vector_norm(u, dim=1, keepdim=True).clamp(min=1e-15)
    return torch.tanh(length) * u / length
