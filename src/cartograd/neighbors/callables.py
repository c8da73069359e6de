"""A distance of the caller's own: any Python function of two Tensors.

It may be written for whole tiles, ``f(a, b)`` with a of shape (r, 1, d) and b of shape (1, m, d), giving (r, m); most
functions that reduce over ``dim=-1`` are. Or for one pair, ``f(a, b)`` with both of shape (d,), giving one number; then
``torch.vmap`` makes the tile where it can, and a Python loop where it cannot. Which one it is, a call on a few rows
tells, and the two ways must agree where both work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy
import torch

from cartograd.engine import Tensor, no_grad
from cartograd.errors import InputError, UnsupportedError
from cartograd.neighbors.distances import Metric

log = logging.getLogger("cartograd.neighbors")

Tile = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Distance = Callable[[Any, Any], Any]

PIECE_ELEMENTS = 1 << 22
"""The most elements of the (r, m, d) temporary that a caller's function is likely to make."""


def metric_of(function: Distance, sample: torch.Tensor) -> Metric:
    """A `Metric` around `function`, tried out on the first rows of `sample`."""
    name = getattr(function, "__name__", type(function).__name__)
    tile = _in_pieces(_recognise(function, sample, name), name)

    def pairs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = torch.broadcast_tensors(a, b)
        both = zip(a.reshape(-1, 1, a.shape[-1]), b.reshape(-1, 1, b.shape[-1]), strict=True)
        return torch.stack([tile(x, y)[0, 0] for x, y in both]).reshape(a.shape[:-1])

    return Metric(name, tile, lambda raw: raw, pairs, symmetric=False, parallel=False)


def _recognise(function: Distance, sample: torch.Tensor, name: str) -> Tile:
    a, b = sample[:2], sample[:3].flip(0)
    batched, why_not = _try(lambda: _batched(function, a, b))
    paired, why_not_paired = _try(lambda: _looped(function, a, b))
    if batched is not None and (paired is None or torch.allclose(batched, paired, rtol=1e-3, atol=1e-5)):
        return lambda x, y: _batched(function, x, y)
    if paired is None:
        raise UnsupportedError(
            f"metric {name!r} gives no distances: on tensors of shape (2, 1, d) and (1, 3, d) it should give (2, 3), or"
            f" on two of shape (d,) one number. It said: {why_not}; and: {why_not_paired}"
        )
    mapped, _ = _try(lambda: _mapped(function, a, b))
    if mapped is not None and torch.allclose(mapped, paired, rtol=1e-3, atol=1e-5):
        return lambda x, y: _mapped(function, x, y)
    log.info("metric %r is called pair by pair in Python, which is slow; write it for whole tiles", name)
    return lambda x, y: _looped(function, x, y)


def _batched(function: Distance, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    with no_grad():
        result = _plain(function(Tensor(a[:, None, :]), Tensor(b[None, :, :])), a)
    if result.shape != (len(a), len(b)):
        raise ValueError(f"a tile of shape {tuple(result.shape)} instead of {(len(a), len(b))}")
    return result


def _mapped(function: Distance, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    over_b = torch.vmap(function, in_dims=(None, 0))
    return _plain(torch.vmap(over_b, in_dims=(0, None))(a, b), a)


def _looped(function: Distance, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    rows_a, rows_b = [Tensor(row) for row in a], [Tensor(row) for row in b]
    with no_grad():
        values = [[float(function(x, y)) for y in rows_b] for x in rows_a]
    return torch.tensor(values, dtype=torch.float64, device=a.device).reshape(len(a), len(b))


def _plain(result: Any, like: torch.Tensor) -> torch.Tensor:
    if isinstance(result, Tensor):
        result = result.data
    if not isinstance(result, torch.Tensor):
        result = torch.as_tensor(numpy.asarray(result))
    return result.detach().to(device=like.device, dtype=torch.float64)


def _try(attempt: Callable[[], torch.Tensor]) -> tuple[torch.Tensor | None, str]:
    try:
        return attempt(), ""
    except Exception as error:  # the caller's function may raise anything at all
        return None, f"{type(error).__name__}: {error}"


def _in_pieces(tile: Tile, name: str) -> Tile:
    """Call `tile` on few enough rows at a time, and refuse NaN and infinity."""

    def pieces(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        step = max(1, PIECE_ELEMENTS // max(1, b.numel()))
        result = torch.cat([tile(part, b) for part in a.split(step)])
        if not bool(torch.isfinite(result).all()):
            row, column = torch.nonzero(~torch.isfinite(result))[0].tolist()
            raise InputError(
                f"metric {name!r} gave {float(result[row, column])} for two of the rows; distances must be finite"
            )
        return result

    return pieces
