r"""Rows of distances to rows of similarities with a given perplexity, and the derivative of that.

:math:`\log p_j = -\beta C_j - \log Z` with :math:`\beta` such that :math:`H(p) = \log(\mathrm{perplexity})`. With
:math:`u = \log\beta`, :math:`H = \log Z + \beta E_p[C]` and :math:`dH/du = -\beta^2 \mathrm{Var}_p(C)`.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from cartograd.affinity.rootsearch import bracket, falling_root
from cartograd.engine import primitive
from cartograd.kernels import gpu

KERNEL_COLUMNS = 1024
"""Rows up to this wide are worked on by one program of the kernel for the GPU each."""
CHUNK_ELEMENTS = 1 << 18
"""Distances worked on at a time: what stays in the cache of a CPU."""


def solve_rows(distances: torch.Tensor, perplexity: float) -> torch.Tensor:
    """log p of each row, (n, m) of the type of `distances`, which are (n, m) and finite."""
    if distances.is_cuda and distances.shape[1] <= KERNEL_COLUMNS and gpu.served(distances):
        found: torch.Tensor = gpu.load("widths").entropic(distances, perplexity)
        return found
    most = CHUNK_ELEMENTS if distances.device.type == "cpu" else 1 << 26
    step = max(1, most // distances.shape[1] // 64) * 64  # whole registers, wherever the rows begin
    out = torch.empty_like(distances)
    for start in range(0, len(distances), step):
        part = slice(start, start + step)
        out[part] = _solve_chunk(distances[part].to(torch.float64), math.log(perplexity))
    return out


def _solve_chunk(C: torch.Tensor, entropy: float) -> torch.Tensor:
    D = C - C.amin(1, keepdim=True)  # the same p, and Z >= 1
    largest = D.amax(1, keepdim=True)
    D = D / torch.where(largest > 0, largest, 1.0)

    def residual(u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        beta = torch.exp(u)
        E = torch.mul(D, -beta[:, None]).exp_()
        Z = E.sum(1)
        mean = E.mul_(D).sum(1) / Z
        variance = E.mul_(D).sum(1) / Z - mean * mean
        return torch.log(Z) + beta * mean - entropy, -beta * beta * variance

    return torch.log_softmax(-torch.exp(falling_root(residual, *bracket(D)))[:, None] * D, dim=1)


@primitive()
def entropic_rows(distances: torch.Tensor, perplexity: float) -> torch.Tensor:
    r"""log p of each row, p with the given perplexity.

    With H(p) held fixed, :math:`d\beta = -\beta\,\mathrm{Cov}_p(C, dC) / \mathrm{Var}_p(C)` by the implicit function
    theorem, so
    d/dC_k = -beta (g_k - p_k sum(g)) + beta p_k (C_k - E C) sum_j g_j (C_j - E C) / Var C
    """
    return solve_rows(distances, perplexity)


@entropic_rows.vjp("distances")
def _(g: Any, distances: Any, out: Any) -> Any:
    p = torch.exp(out)
    centred = distances - (p * distances).sum(1, keepdim=True)
    variance = (p * centred * centred).sum(1, keepdim=True)
    none = variance == 0  # all distances equal, or all but the nearest without weight: beta stands still
    safe = torch.where(none, torch.ones_like(variance), variance)
    # beta once more, as the slope of -log p against C; weights of 0 have no logarithm
    logs = torch.where(p > 0, out, torch.zeros_like(out))
    beta = -(p * centred * logs).sum(1, keepdim=True) / safe
    turn = (g * centred).sum(1, keepdim=True) / safe
    return -beta * (g - p * g.sum(1, keepdim=True)) + beta * turn * p * centred


@entropic_rows.example
def _(make: Any) -> Any:
    return make(3, 6, low=0.1, high=2.0), 2.5
