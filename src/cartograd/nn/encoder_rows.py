"""The encoder of plain rows, and of places in a map: layers one after the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from torch import nn


class MLP(nn.Module):
    """Linear layers with SiLU between them; rows of any shape are flattened.

    Parameters
    ----------
    shape : tuple of int
        The shape of one row.
    n_out : int
        Numbers given for each row.
    hidden_sizes : sequence of int, default=(256, 256)
        The widths of the layers between.

    Examples
    --------
    >>> import torch
    >>> MLP((3, 4), 2, hidden_sizes=(8,))(torch.zeros(5, 3, 4)).shape
    torch.Size([5, 2])
    """

    def __init__(self, shape: tuple[int, ...], n_out: int, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        sizes = [math.prod(shape), *hidden_sizes]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), nn.SiLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], n_out))

    def forward(self, x: Any) -> Any:
        """Of (b, *shape)."""
        return self.layers(x.reshape(x.shape[0], -1))
