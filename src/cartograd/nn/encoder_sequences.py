"""The encoders of sequences: recurrent, attention, Mamba-3."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from cartograd.errors import InputError, OptionError
from cartograd.nn.placement import on_engine_of
from cartograd.nn.stack import Mamba3Options, Mamba3Stack, SwiGLU

HEAD = 16
"""Channels of a head of attention, where they divide the width."""
STATE = 16
"""Channels of the state of a Mamba-3 head: sequences that become one point need little memory."""
CHUNK = 32
"""Steps of a chunk; with heads this small and one scan, half the CPU time of two scans in chunks of 64."""


class Recurrent(nn.Module):
    """Recurrent layers; the last and the mean of their outputs go through one linear layer.

    Parameters
    ----------
    shape : tuple of int
        The shape of one sequence, (T, d).
    n_out : int
        Numbers given for each sequence.
    hidden_sizes : sequence of int, default=(64,)
        The widths of the layers.
    kind : str, default="gru"
        "gru" or "lstm".

    Examples
    --------
    >>> import torch
    >>> Recurrent((6, 3), 2, hidden_sizes=(8,))(torch.zeros(5, 6, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self, shape: tuple[int, ...], n_out: int, hidden_sizes: Sequence[int] = (64,), kind: str = "gru"
    ) -> None:
        super().__init__()
        sizes = [_channels(shape, kind), *hidden_sizes]
        layer = {"gru": nn.GRU, "lstm": nn.LSTM}[kind]
        pairs = itertools.pairwise(sizes)
        self.layers = nn.ModuleList(layer(before, after, batch_first=True) for before, after in pairs)
        self.out = nn.Linear(2 * sizes[-1], n_out)

    def forward(self, x: Any) -> Any:
        """Of (b, T, d)."""
        for layer in self.layers:
            x, _ = layer(x)
        return self.out(torch.cat([x[:, -1], x.mean(1)], 1))


class AttentionLayer(nn.Module):
    """x + attention(norm(x)), then x + swiglu(norm(x)).

    Parameters
    ----------
    width : int
        Channels of a token.
    heads : int
        Heads, which divide it.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = SwiGLU(width, 2 * width)

    def forward(self, x: Any) -> Any:
        """Of (b, T, width)."""
        b, t, width = x.shape
        parts = self.qkv(self.norm(x)).reshape(b, t, 3, self.heads, width // self.heads)
        q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, width)
        x = x + self.mix(mixed)
        return x + self.mlp(self.norm2(x))


class Attention(nn.Module):
    """Tokens with learned positions through layers of attention; their mean through one linear layer.

    Parameters
    ----------
    shape : tuple of int
        The shape of one sequence, (T, d).
    n_out : int
        Numbers given for each sequence.
    hidden_sizes : sequence of int, default=(64, 64)
        The width of each layer; all the same.

    Examples
    --------
    >>> import torch
    >>> Attention((6, 3), 2, hidden_sizes=(8,))(torch.zeros(5, 6, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(self, shape: tuple[int, ...], n_out: int, hidden_sizes: Sequence[int] = (64, 64)) -> None:
        super().__init__()
        width = _one_width(hidden_sizes, "attention")
        self.embed = nn.Linear(_channels(shape, "attention"), width)
        self.position = nn.Parameter(torch.randn(shape[0], width) * 0.1)
        heads = width // HEAD if width % HEAD == 0 else 1
        self.layers = nn.Sequential(*(AttentionLayer(width, heads) for _ in hidden_sizes))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, n_out)

    def forward(self, x: Any) -> Any:
        """Of (b, T, d)."""
        x = self.layers(self.embed(x) + on_engine_of(x, self.position))
        return self.out(self.norm(x.mean(1)))


class Mamba3Encoder(nn.Module):
    """Tokens through a stack of Mamba-3 layers; a learned token at the end, which has read all, is the summary.

    Parameters
    ----------
    shape : tuple of int
        The shape of one sequence, (T, d).
    n_out : int
        Numbers given for each sequence.
    hidden_sizes : sequence of int, default=(32, 32)
        The width of each layer; all the same.

    Examples
    --------
    >>> import torch
    >>> Mamba3Encoder((6, 3), 2, hidden_sizes=(8,))(torch.zeros(5, 6, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(self, shape: tuple[int, ...], n_out: int, hidden_sizes: Sequence[int] = (32, 32)) -> None:
        super().__init__()
        width = _one_width(hidden_sizes, "mamba3")
        self.embed = nn.Linear(_channels(shape, "mamba3"), width)
        head = HEAD if 2 * width % HEAD == 0 else 2 * width
        block = Mamba3Options(d_state=STATE, headdim=head, chunk_size=CHUNK, formulation="single")
        self.stack = Mamba3Stack(width, len(hidden_sizes), class_tokens=1, **block)
        self.out = nn.Linear(width, n_out)

    def forward(self, x: Any) -> Any:
        """Of (b, T, d)."""
        tokens = self.stack.class_tokens
        assert tokens is not None
        return self.out(tokens.pick(self.stack(self.embed(x)))[:, 0])


def _channels(shape: tuple[int, ...], name: str) -> int:
    if len(shape) != 2:
        raise InputError(
            f'encoder="{name}" reads sequences (n, T, d), got rows of shape {tuple(shape)}; reshape X, such as '
            "X.reshape(n, T, d), or X[:, :, None] for one number a step"
        )
    return shape[1]


def _one_width(hidden_sizes: Sequence[int], name: str) -> int:
    if len(set(hidden_sizes)) != 1:
        raise OptionError(f'hidden_sizes of encoder="{name}" are layers of one width, got {tuple(hidden_sizes)}')
    return hidden_sizes[0]
