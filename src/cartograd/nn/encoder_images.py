"""The encoder of images: convolutions, each halving the picture, then one linear layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from cartograd.errors import InputError

SMALLEST_GROUP = 8
"""Channels are normalised in groups of about so many."""


class CNN(nn.Module):
    """Convolutions of 3 by 3 with stride 2, group normalisation and SiLU; then one linear layer.

    Parameters
    ----------
    shape : tuple of int
        The shape of one image: (channels, height, width), or (height, width).
    n_out : int
        Numbers given for each image.
    hidden_sizes : sequence of int, default=(32, 64, 128)
        The channels of the convolutions. From where the picture is one pixel high or wide they no longer halve it.

    Examples
    --------
    >>> import torch
    >>> CNN((1, 8, 8), 2, hidden_sizes=(4, 8))(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 2])
    """

    def __init__(self, shape: tuple[int, ...], n_out: int, hidden_sizes: Sequence[int] = (32, 64, 128)) -> None:
        super().__init__()
        if len(shape) not in (2, 3):
            raise InputError(
                f'encoder="cnn" reads images (n, c, h, w) or (n, h, w), got rows of shape {tuple(shape)}; reshape X, '
                'such as X.reshape(n, 1, 28, 28), or use "mlp"'
            )
        self.shape = (1, *shape) if len(shape) == 2 else tuple(shape)
        channels, side = self.shape[0], min(self.shape[1:])
        layers: list[nn.Module] = []
        for wider in hidden_sizes:
            layers += [nn.Conv2d(channels, wider, 3, stride=2 if side > 1 else 1, padding=1)]
            layers += [nn.GroupNorm(_groups(wider), wider), nn.SiLU()]
            channels, side = wider, (side + 1) // 2
        self.layers = nn.Sequential(*layers)
        height, width = (_halved(size, len(hidden_sizes), min(self.shape[1:])) for size in self.shape[1:])
        self.out = nn.Linear(channels * height * width, n_out)

    def forward(self, x: Any) -> Any:
        """Of (b, *shape)."""
        return self.out(self.layers(x.reshape(x.shape[0], *self.shape)).flatten(1))


def _groups(channels: int) -> int:
    return next(groups for groups in range(max(1, channels // SMALLEST_GROUP), 0, -1) if channels % groups == 0)


def _halved(size: int, times: int, side: int) -> int:
    """What is left of `size` after the convolutions, which halve while the shorter `side` is above one."""
    for _ in range(times):
        size, side = ((size + 1) // 2 if side > 1 else size), (side + 1) // 2
    return size
