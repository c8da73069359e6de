r"""The widths of neighbourhoods, one program a row, to full precision in registers.

The searches of `cartograd.affinity.rootsearch`, whose functions are the twins: halving in :math:`u = \log \beta` until
the bracket is narrow, then Newton's steps that stay inside it. Sought is

.. math:: \log Z + \beta E_p[D] = \log(\mathrm{perplexity}), \quad p_j = e^{-\beta D_j} / Z, \qquad \text{or} \qquad
    \sum_j e^{-\beta D_j} = \text{target}.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

WIDEST = 1024
"""The most distances of a row."""
_FLAT, _STEEP = tl.constexpr(math.log(1e-9)), tl.constexpr(math.log(800.0))
_NARROW, _NEWTON = tl.constexpr(0.25), tl.constexpr(9)


def entropic(distances: torch.Tensor, perplexity: float) -> torch.Tensor:
    """log p of each row, (n, m) of the type of `distances`, which are (n, m) and finite; at most `WIDEST` wide."""
    distances = distances.contiguous()
    out = torch.empty_like(distances)
    if len(distances):
        target = torch.full((1,), math.log(perplexity), dtype=torch.float64, device=distances.device)
        _entropic[(len(distances),)](distances, out, target, distances.shape[1], **_sizes(distances))
    return out


def smooth(distances: torch.Tensor, reach: torch.Tensor, target: float) -> torch.Tensor:
    r""":math:`1 / \beta` with D = max(d - reach, 0), (n,) float64; 0 for a row whose distances are all within reach.

    Parameters
    ----------
    distances : torch.Tensor
        (n, m), at most `WIDEST` wide.
    reach : torch.Tensor
        (n,) float64.
    target : float
        What the sum shall be.
    """
    distances = distances.contiguous()
    out = torch.empty(len(distances), dtype=torch.float64, device=distances.device)
    if len(distances):
        goal = torch.full((1,), target, dtype=torch.float64, device=distances.device)
        _smooth[(len(distances),)](distances, reach, out, goal, distances.shape[1], **_sizes(distances))
    return out


def _sizes(distances: torch.Tensor) -> dict[str, int]:
    lanes = max(32, triton.next_power_of_2(distances.shape[1]))
    return {"LANES": lanes, "num_warps": max(1, lanes // 256)}


@triton.jit
def _residual(u, D, here, target, ENTROPY: tl.constexpr):
    """The function whose root is sought, which falls, and its slope."""
    beta = tl.exp(u)
    E = tl.where(here, tl.exp(-beta * D), 0.0)
    if ENTROPY:
        Z = tl.sum(E, 0)
        mean = tl.sum(E * D, 0) / Z
        value = tl.log(Z) + beta * mean - target
        slope = -beta * beta * (tl.sum(E * D * D, 0) / Z - mean * mean)
    else:
        value = tl.sum(E, 0) - target
        slope = -tl.sum(tl.where(E > 0, beta * D * E, 0.0), 0)
    return value, slope


@triton.jit
def _root(D, here, target, ENTROPY: tl.constexpr):
    """log beta; 0 where no D is above 0."""
    largest = tl.max(tl.where(here, D, 0.0), 0)
    smallest = tl.min(tl.where(here & (D > 0), D, float("inf")), 0)
    some = largest > 0
    low = tl.where(some, _FLAT - tl.log(tl.where(some, largest, 1.0)), 0.0)
    high = tl.where(some, _STEEP - tl.log(tl.where(some, smallest, 1.0)), 0.0)
    halvings = tl.ceil(tl.log2(tl.maximum(high - low, _NARROW) / _NARROW)).to(tl.int32)
    u = (low + high) / 2
    for _ in range(0, halvings):
        value, slope = _residual(u, D, here, target, ENTROPY)
        low, high = tl.where(value > 0, u, low), tl.where(value > 0, high, u)
        u = (low + high) / 2
    best = u
    error = u * 0 + float("inf")
    for _ in range(0, _NEWTON):
        value, slope = _residual(u, D, here, target, ENTROPY)
        closer = tl.abs(value) <= error
        best, error = tl.where(closer, u, best), tl.where(closer, tl.abs(value), error)
        low, high = tl.where(value > 0, u, low), tl.where(value > 0, high, u)
        step = u - value / tl.minimum(slope, -1e-300)
        u = tl.where((step > low) & (step < high), step, (low + high) / 2)
    return best


@triton.jit
def _entropic(distances, out, target, m, LANES: tl.constexpr):
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, LANES)
    here = lane < m
    C = tl.load(distances + row * m + lane, mask=here, other=float("inf")).to(tl.float64)
    D = tl.where(here, C - tl.min(C, 0), 0.0)
    largest = tl.max(D, 0)
    D = D / tl.where(largest > 0, largest, 1.0)
    scaled = -tl.exp(_root(D, here, tl.load(target), True)) * D
    logs = scaled - tl.log(tl.sum(tl.where(here, tl.exp(scaled), 0.0), 0))
    tl.store(out + row * m + lane, logs, mask=here)


@triton.jit
def _smooth(distances, reach, out, target, m, LANES: tl.constexpr):
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, LANES)
    here = lane < m
    d = tl.load(distances + row * m + lane, mask=here, other=0.0).to(tl.float64)
    D = tl.where(here, tl.maximum(d - tl.load(reach + row), 0.0), 0.0)
    width = tl.exp(-_root(D, here, tl.load(target), False))
    tl.store(out + row, tl.where(tl.max(D, 0) > 0, width, 0.0))
