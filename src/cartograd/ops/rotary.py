r"""Keys and queries of Mamba-3: rows of groups spread to heads, biased and turned, as one op.

For the pair (u, w) of channels of a group's row plus the head's bias, and the head's angle theta of that step,

    u~ = cos(theta) u - sin(theta) w,        w~ = sin(theta) u + cos(theta) w.

Of the rows of all heads, which are many times those of the groups, only the result exists. On a GPU it is one kernel.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from cartograd.engine.primitive import primitive
from cartograd.kernels import gpu

KINDS = (torch.float32, torch.bfloat16, torch.float16)


@primitive()
def turned_keys(rows: Tensor, bias: Tensor, theta: Tensor, pairing: str = "adjacent") -> Tensor:
    """Rows (b, t, m, g, r), bias (h, m, r), theta (b, t, h, a) to (b, t, m, h, r), in the dtype of the rows.

    With G the gradient turned back: drows = sum of G over the heads of a group, dbias = sum of G over all steps,
    dtheta = g_w u~ - g_u w~, summed over ranks.
    """
    kernels = _kernels(rows, bias, theta)
    if kernels is not None:
        return kernels.turned(_last_whole(rows), bias.contiguous(), theta.contiguous(), pairing == "adjacent")
    return composed(rows, bias, theta, pairing)


@turned_keys.vjp("rows", "bias", "theta")
def _(g: Tensor, rows: Tensor, bias: Tensor, theta: Tensor, pairing: str) -> Any:
    kernels = _kernels(rows, bias, theta)
    if kernels is not None:
        return kernels.turned_back(
            g.contiguous(), _last_whole(rows), bias.contiguous(), theta.contiguous(), pairing == "adjacent"
        )
    spread = _spread(rows, bias, theta)
    back = _turned(g.to(spread.dtype), -theta, pairing)
    drows = back.unflatten(3, (rows.shape[3], -1)).sum(4)
    u, w = _pairs(_turned(spread, theta, pairing), theta.shape[3], pairing)
    gu, gw = _pairs(g.to(spread.dtype), theta.shape[3], pairing)
    dtheta = (gw * u - gu * w).sum(2)
    return drows.to(rows.dtype), back.sum((0, 1)).transpose(0, 1).to(bias.dtype), dtheta.to(theta.dtype)


@turned_keys.restate
def composed(rows: Any, bias: Any, theta: Any, pairing: str = "adjacent") -> Any:
    """The same, of ops that can be differentiated again."""
    return _turned(_spread(rows, bias, theta), theta, pairing).to(rows.dtype)


@turned_keys.example
def _(make: Any) -> Any:
    """Four heads of two groups, two ranks, two of three pairs turned."""
    return make(1, 3, 2, 2, 6), make(4, 2, 6), make(1, 3, 4, 2)


@turned_keys.example
def _(make: Any) -> Any:
    """The same with the other pairing."""
    return make(1, 3, 2, 2, 6), make(4, 2, 6), make(1, 3, 4, 2), "halves"


def _kernels(rows: Tensor, bias: Tensor, theta: Tensor) -> ModuleType | None:
    """The module of kernels, if it takes these inputs."""
    fitting = (
        rows.dtype in KINDS
        and bias.dtype is theta.dtype is torch.float32
        and rows.shape[4] % 2 == 0
        and rows.numel() > 0
        and theta.shape[3] > 0
        and gpu.served(rows)
    )
    return gpu.load("rotary") if fitting else None


def _last_whole(rows: Tensor) -> Tensor:
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _spread(rows: Any, bias: Any, theta: Any) -> Any:
    """Rows of every head, biased, in the widest of the dtypes."""
    heads, groups = bias.shape[0], rows.shape[3]
    each = rows.unsqueeze(4).expand(-1, -1, -1, -1, heads // groups, -1).flatten(3, 4)
    return each.to(torch.promote_types(torch.promote_types(rows.dtype, bias.dtype), theta.dtype)) + bias.transpose(0, 1)


def _pairs(rows: Any, count: int, pairing: str) -> tuple[Any, Any]:
    """The channels u and w of the pairs that are turned."""
    if pairing == "halves":
        half = rows.shape[-1] // 2
        return rows[..., :count], rows[..., half : half + count]
    pairs = rows[..., : 2 * count].unflatten(-1, (count, 2))
    return pairs[..., 0], pairs[..., 1]


def _turned(rows: Any, theta: Any, pairing: str) -> Any:
    """Pairs of channels turned; those without an angle stay."""
    count, half = theta.shape[-1], rows.shape[-1] // 2
    u, w = _pairs(rows, count, pairing)
    cos, sin = torch.cos(theta).unsqueeze(2), torch.sin(theta).unsqueeze(2)
    x, y = cos * u - sin * w, sin * u + cos * w
    if pairing == "halves":
        return torch.cat([x, rows[..., count:half], y, rows[..., half + count :]], -1)
    return torch.cat([torch.stack([x, y], -1).flatten(-2), rows[..., 2 * count :]], -1)
