"""Reading a sequence in both directions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cartograd.nn.mamba3_arguments import one_of

MERGES = ("mean", "sum", "concat")


class Bidirectional(nn.Module):
    """Two causal blocks, one of which reads the sequence from its end, merged at every token.

    Every output then depends on all tokens, so there is no cache and no `step`.

    Parameters
    ----------
    ahead : Module
        Reads (b, t, d) from the first token on.
    back : Module, default=None
        Reads it from the last token on; None for `ahead` itself, with the same weights.
    merge : str, default="mean"
        "mean", "sum", or "concat", which doubles the channels.

    Examples
    --------
    >>> import torch, cartograd
    >>> block = cartograd.nn.Mamba3(4, d_state=2, headdim=4)
    >>> both = cartograd.nn.Bidirectional(block)
    >>> u = torch.randn(1, 3, 4)
    >>> bool(torch.allclose(both(u.flip(1)), both(u).flip(1), atol=1e-6))
    True
    """

    def __init__(self, ahead: nn.Module, back: nn.Module | None = None, merge: str = "mean") -> None:
        super().__init__()
        self.ahead = ahead
        self.back = back
        self.merge = one_of("merge", merge, MERGES)

    def forward(self, u: Any) -> Any:
        """Read (b, t, d)."""
        ahead = self.ahead(u)
        back = (self.ahead if self.back is None else self.back)(u.flip(1)).flip(1)
        if self.merge == "concat":
            return torch.cat([ahead, back], -1)
        return ahead + back if self.merge == "sum" else (ahead + back) / 2
