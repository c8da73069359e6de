"""Learned tokens in a sequence, whose outputs stand for all of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cartograd.nn.mamba3_arguments import one_of, positive
from cartograd.nn.placement import on_engine_of

POSITIONS = ("first", "middle", "last")


class ClassTokens(nn.Module):
    """Puts learned tokens into a sequence, and finds their outputs again.

    A causal block has read everything only at the end: there "last" is what a summary needs; "first" and "middle" are
    for blocks that read both ways, or as registers.

    Parameters
    ----------
    d_model : int
        Channels of a token.
    count : int, default=1
        How many.
    position : str, default="last"
        "first", "middle" (before token t // 2) or "last".

    Examples
    --------
    >>> import torch, cartograd
    >>> tokens = cartograd.nn.ClassTokens(4, count=2)
    >>> longer = tokens(torch.zeros(3, 5, 4))
    >>> longer.shape, tokens.pick(longer).shape
    (torch.Size([3, 7, 4]), torch.Size([3, 2, 4]))
    """

    def __init__(self, d_model: int, count: int = 1, position: str = "last") -> None:
        super().__init__()
        self.position = one_of("position", position, POSITIONS)
        self.weight = nn.Parameter(torch.randn(positive("count", count), d_model) * 0.02)

    def forward(self, u: Any) -> Any:
        """(b, t, d) with the tokens inserted: (b, t + count, d)."""
        tokens = on_engine_of(u, self.weight).unsqueeze(0).expand(u.shape[0], -1, -1)
        start = self._start(u.shape[1])
        return torch.cat([u[:, :start], tokens.to(u.dtype), u[:, start:]], 1)

    def pick(self, y: Any) -> Any:
        """The outputs of the tokens, (b, count, d), out of what was made of the longer sequence."""
        count = self.weight.shape[0]
        start = self._start(y.shape[1] - count)
        return y[:, start : start + count]

    def _start(self, length: int) -> int:
        return {"first": 0, "middle": length // 2, "last": length}[self.position]
