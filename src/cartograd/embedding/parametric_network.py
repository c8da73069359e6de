"""A module with the scales of what goes in and comes out: an encoder or a decoder for rows as users have them."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from cartograd.core.checks import show
from cartograd.errors import InputError, OptionError, UnsupportedError
from cartograd.neighbors.rows import Rows
from cartograd.neighbors.workers import spread
from cartograd.nn.encoders import NAMES, make_encoder, seeded

PIECE_NUMBERS = 1 << 20
MOST_ROWS = 1024
GROUP = 64
"""Rows go through a module in multiples of so many, filled up with copies: then a row's place is its own."""
FARTHEST = 1e6
"""Numbers are cut off at this many times the usual one: single precision reaches no farther through a few layers."""


@dataclass(eq=False, repr=False)
class Network:
    """An encoder or a decoder with its scales.

    Parameters
    ----------
    kind : str or torch.nn.Module
        The name of an encoder, or a module, which is used as it is.
    shape_in, shape_out : tuple of int
        The shapes of one row before and after.
    hidden_sizes : tuple of int or None
        Of an encoder by name.
    centre_in, scale_in : torch.Tensor
        What is subtracted from flat rows, and what they are divided by then, float64.
    centre_out, scale_out : torch.Tensor or None
        What the module's numbers are multiplied by, and what is added then; None for neither.
    weights : dict, default=None
        The module's, by name; None for those it has.
    seed : int, default=0
        Seed of the first weights of an encoder by name.
    """

    kind: Any
    shape_in: tuple[int, ...]
    shape_out: tuple[int, ...]
    hidden_sizes: tuple[int, ...] | None
    centre_in: torch.Tensor
    scale_in: torch.Tensor
    centre_out: torch.Tensor | None = None
    scale_out: torch.Tensor | None = None
    weights: dict[str, torch.Tensor] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        made = self.kind
        if isinstance(made, str):
            made = make_encoder(made, self.shape_in, math.prod(self.shape_out), self.hidden_sizes, self.seed)
        elif any(isinstance(one, nn.UninitializedParameter) for one in made.parameters()):
            give_sizes(made, self.shape_in, self.seed)
        self.module: nn.Module = made.to(self.centre_in.device)
        first = next((one for one in made.parameters() if one.is_floating_point()), None)
        self.dtype = torch.float32 if first is None else first.dtype
        if self.weights is not None:
            self.module.load_state_dict(self.weights)
        self.weights = dict(self.module.state_dict())  # the same memory: a training changes both

    def copied_weights(self) -> dict[str, torch.Tensor]:
        """The weights as they are now."""
        return {name: one.detach().clone() for name, one in self.module.state_dict().items()}

    def prepared(self, rows: torch.Tensor) -> torch.Tensor:
        """Flat rows (b, d) as the module reads them: in its scale, precision and shape."""
        scaled = (rows - self.centre_in.to(rows.dtype)) / self.scale_in.to(rows.dtype)
        return scaled.clamp_(-FARTHEST, FARTHEST).to(self.dtype).reshape(len(rows), *self.shape_in)

    def of(self, rows: Rows) -> torch.Tensor:
        """What the module makes of the rows, flat and in the scale of users, (n, numbers); each on its own."""
        self.module.eval()
        wide = max(math.prod(self.shape_in), math.prod(self.shape_out))
        step = min(MOST_ROWS, max(1, PIECE_NUMBERS // wide // GROUP) * GROUP)
        pieces = [(start, min(start + step, rows.count)) for start in range(0, rows.count, step)]

        def one(piece: tuple[int, int]) -> torch.Tensor:
            return self._piece(rows.block(*piece))

        # a module of one's own may keep things between calls: it is called from one thread
        with steady(self.centre_in.device):
            return torch.cat(list(spread(one, pieces) if isinstance(self.kind, str) else map(one, pieces)))

    def _piece(self, block: torch.Tensor) -> torch.Tensor:
        count = len(block)
        filled = torch.cat([block, block[-1:].expand(-count % GROUP, -1)]) if count % GROUP else block
        with torch.no_grad():
            out = self.module(self.prepared(filled))
        out = out.detach().reshape(len(filled), -1)[:count]
        if self.centre_out is None or self.scale_out is None:
            return out
        return out.to(torch.float64) * self.scale_out + self.centre_out


@contextlib.contextmanager
def steady(device: torch.device) -> Iterator[None]:
    """Convolutions on a GPU that give the same bits every time, in whole float32: cuDNN's quickest do neither."""
    if device.type != "cuda":
        yield
        return
    enabled = torch.backends.cudnn.enabled
    with torch.backends.cudnn.flags(enabled=enabled, deterministic=True, allow_tf32=False):
        yield


def give_sizes(module: nn.Module, shape: tuple[int, ...], seed: int) -> None:
    """Let lazy layers, which take their sizes from the first row they read, have them; weights come from the seed."""
    made = module.cpu().eval()
    first = next((one for one in made.parameters() if one.is_floating_point()), None)
    row = torch.zeros(1, *shape, dtype=torch.float32 if first is None else first.dtype)
    with seeded(seed), torch.no_grad():
        read_one(made, row, "a module with lazy layers")


def check_kind(kind: Any, name: str, known: tuple[str, ...] = NAMES) -> None:
    """Refuse what is neither a module nor the name of one."""
    if isinstance(kind, str):
        if kind not in known:
            raise OptionError(f"unknown {name} {show(kind)}: known are {', '.join(known)}, or give a torch.nn.Module")
    elif not isinstance(kind, nn.Module):
        advice = "; give an instance, not the class" if isinstance(kind, type) else ""
        raise UnsupportedError(
            f"{name} must be a torch.nn.Module or one of {', '.join(known)}, got {show(kind)} of type "
            f"{type(kind).__name__}{advice}"
        )
    elif not any(one.requires_grad for one in kind.parameters()):
        raise OptionError(f"{name} has no parameters to train: {type(kind).__name__}")


def own_copy(kind: Any) -> Any:
    """The name of an encoder, or a copy of a module: a fit changes no parameter of the estimator."""
    return kind if isinstance(kind, str) else copy.deepcopy(kind)


def check_output(network: Network, row: torch.Tensor, name: str) -> None:
    """Put one flat row (1, d) through the module; refuse it where it cannot, or what comes out is of another shape."""
    expected = (1, *network.shape_out)
    network.module.eval()
    with torch.no_grad():
        out = read_one(network.module, network.prepared(row), name)
    if not isinstance(out, torch.Tensor):
        raise InputError(f"{name} output must be one tensor of shape {expected}, got {type(out).__name__}")
    flat = name == "decoder" and tuple(out.shape) == (1, math.prod(network.shape_out))
    if tuple(out.shape) != expected and not flat:
        raise InputError(
            f"{name} output has shape {tuple(out.shape)} for one row, expected {expected}; give it a last layer of "
            f"{math.prod(network.shape_out)} outputs" + (", or another n_components" if name == "encoder" else "")
        )


def read_one(module: nn.Module, row: torch.Tensor, name: str) -> Any:
    """What the module makes of one row; says so where it cannot read it."""
    try:
        return module(row)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        shape = tuple(row.shape)
        raise InputError(f"{name} could not read a batch of one row, of shape {shape}: {error}") from error
