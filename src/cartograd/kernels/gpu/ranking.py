r"""Candidates measured again: :math:`\sum_c (a_c - b_c)^2` of each query and its candidates, in float64."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def measured(queries: torch.Tensor, data: torch.Tensor, ids: torch.Tensor, own: torch.Tensor | None) -> torch.Tensor:
    """Squared distances of each query to its candidates, (m, c) float64; infinite where there is none.

    Parameters
    ----------
    queries, data : torch.Tensor
        (m, d) and (n, d) float32, contiguous.
    ids : torch.Tensor
        (m, c) int32, the candidates, rows of `data`; -1 for none; c a power of two.
    own : torch.Tensor or None
        (m,) int64, for each query the row of `data` that counts as none.
    """
    m, c = ids.shape
    out = torch.empty(m, c, dtype=torch.float64, device=ids.device)
    width = max(16, min(128, triton.next_power_of_2(data.shape[1]), 4096 // c))
    skipped = ids if own is None else own
    _measured[(m,)](
        queries, data, ids.contiguous(), skipped, out, data.shape[1],
        COUNT=c, WIDTH=width, OWN=own is not None, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _measured(
    queries, data, ids, own, out, d, COUNT: tl.constexpr, WIDTH: tl.constexpr, OWN: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    place, column = tl.arange(0, COUNT), tl.arange(0, WIDTH)
    name = tl.load(ids + row * COUNT + place)
    there = name >= 0
    if OWN:
        there = there & (name != tl.load(own + row))
    start = name.to(tl.int64) * d
    total = tl.zeros((COUNT, WIDTH), tl.float64)
    for first in range(0, d, WIDTH):
        at = first + column
        a = tl.load(queries + row * d + at, mask=at < d, other=0.0).to(tl.float64)
        b = tl.load(data + start[:, None] + at[None, :], mask=there[:, None] & (at < d)[None, :], other=0.0)
        apart = a[None, :] - b.to(tl.float64)
        total += apart * apart
    tl.store(out + row * COUNT + place, tl.where(there, tl.sum(total, 1), float("inf")))


def measured_in_torch(
    queries: torch.Tensor, data: torch.Tensor, ids: torch.Tensor, own: torch.Tensor | None
) -> torch.Tensor:
    """The twin of `measured`."""
    names = ids.to(torch.int64)
    there = names >= 0
    if own is not None:
        there &= names != own[:, None]
    apart = queries.to(torch.float64)[:, None, :] - data.to(torch.float64)[names.clamp(min=0)]
    return torch.where(there, apart.square().sum(2), torch.inf)
