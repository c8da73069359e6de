"""Encoders by name: what makes a few numbers of a row, an image or a sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import nn

from cartograd.core.checks import count, show
from cartograd.errors import OptionError, UnsupportedError
from cartograd.nn.encoder_images import CNN as CNN
from cartograd.nn.encoder_rows import MLP as MLP
from cartograd.nn.encoder_seed import seeded as seeded
from cartograd.nn.encoder_sequences import Attention as Attention
from cartograd.nn.encoder_sequences import Mamba3Encoder as Mamba3Encoder
from cartograd.nn.encoder_sequences import Recurrent as Recurrent

BY_NAME: dict[str, Callable[..., nn.Module]] = {
    "mlp": MLP,
    "cnn": CNN,
    "gru": partial(Recurrent, kind="gru"),
    "lstm": partial(Recurrent, kind="lstm"),
    "attention": Attention,
    "mamba3": Mamba3Encoder,
}
NAMES = tuple(BY_NAME)
MOST_LAYERS, WIDEST = 64, 1 << 16
"""Bounds on `hidden_sizes`: a larger number is a mistake, and would ask for gigabytes."""


def make_encoder(
    name: str, shape: tuple[int, ...], n_out: int, hidden_sizes: Sequence[int] | None = None, seed: int = 0
) -> nn.Module:
    """An encoder with weights from a seed; the global random state is not touched.

    Parameters
    ----------
    name : str
        "mlp" for rows of any shape, "cnn" for images, "gru", "lstm", "attention" or "mamba3" for sequences.
    shape : tuple of int
        The shape of one row: (d,), (c, h, w) or (T, d).
    n_out : int
        Numbers given for each row.
    hidden_sizes : sequence of int, default=None
        The widths of its layers; None for its own default.
    seed : int, default=0
        Seed of the weights.

    Examples
    --------
    >>> import torch
    >>> make_encoder("gru", (8, 4), 2)(torch.zeros(3, 8, 4)).shape
    torch.Size([3, 2])
    """
    if name not in BY_NAME:
        raise OptionError(f"unknown encoder {show(name)}: known are {', '.join(NAMES)}, or give a torch.nn.Module")
    options = {} if hidden_sizes is None else {"hidden_sizes": check_sizes(hidden_sizes)}
    with seeded(seed):
        return BY_NAME[name](tuple(shape), n_out, **options)


def check_sizes(hidden_sizes: Any) -> tuple[int, ...]:
    """Return the widths as a tuple; refuse what would ask for a network too large to build."""
    if not isinstance(hidden_sizes, (list, tuple, range)):
        raise UnsupportedError(
            f"hidden_sizes must be whole numbers in a tuple, such as (256, 256), got {show(hidden_sizes)}"
        )
    if not 1 <= len(hidden_sizes) <= MOST_LAYERS:
        raise OptionError(f"hidden_sizes must be 1 to {MOST_LAYERS} numbers, got {len(hidden_sizes)}")
    return tuple(count(size, "each of hidden_sizes", 1, WIDEST) for size in hidden_sizes)
