"""Recurrent networks: what ``nn.RNN``, ``nn.GRU``, ``nn.LSTM`` and their cells call, in terms of the ops of `scan`.

Layers, directions, dropout between layers and the two forms of input (a dense batch, packed sequences) are all here;
one layer in one direction is one op. On CUDA, cuDNN does it all at once, with its own gradient, unless it is off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from cartograd.engine.accumulate import raw
from cartograd.engine.fallback import run_torch
from cartograd.engine.primitive import composite
from cartograd.engine.transparent import lifted
from cartograd.ops.scan import gru_scan, lstm_scan, rnn_scan

Scan = Callable[[Any, tuple[Any, ...], Sequence[Any], tuple[int, ...], bool], tuple[Any, ...]]
"""(rows, first states, weights and biases, sizes, reverse) -> (rows, last states)"""


def _rnn(nonlinearity: str) -> Scan:
    def scan(rows: Any, first: Any, weights: Any, sizes: Any, reverse: bool) -> Any:
        return rnn_scan(rows, *first, *_four(weights), nonlinearity, sizes, reverse)

    return scan


def _gru(rows: Any, first: Any, weights: Any, sizes: Any, reverse: bool) -> Any:
    return gru_scan(rows, *first, *_four(weights), sizes, reverse)


def _lstm(rows: Any, first: Any, weights: Any, sizes: Any, reverse: bool) -> Any:
    projection = weights[-1] if len(weights) in (3, 5) else None
    return lstm_scan(rows, *first, *_four(weights), projection, sizes, reverse)


def _four(weights: Sequence[Any]) -> tuple[Any, ...]:
    """w_ih, w_hh, b_ih, b_hh; without biases, `None` in their places."""
    return tuple(weights[:4]) if len(weights) >= 4 else (*weights[:2], None, None)


def _network(name: str, scan: Scan) -> Callable[..., Any]:
    """The torch function of that name, of a dense batch or of packed sequences."""
    original = getattr(torch, name)

    def network(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != 9 or (args[0].is_cuda and torch.backends.cudnn.enabled):
            return run_torch(original, args, kwargs)
        if isinstance(args[3], (list, tuple)):
            data, batch_sizes, *rest = args
            return _layers(scan, data, tuple(raw(batch_sizes).tolist()), *rest)
        *rest, batch_first = args
        return _dense(scan, *rest, batch_first=batch_first)

    network.__name__ = name
    return network


def _dense(scan: Scan, input: Any, *rest: Any, batch_first: bool) -> Any:
    steps = input.transpose(0, 1) if batch_first else input
    length, batch = steps.shape[:2]
    if length == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    rows, *last = _layers(scan, steps.flatten(0, 1), (batch,) * length, *rest)
    out = rows.unflatten(0, (length, batch))
    return out.transpose(0, 1) if batch_first else out, *last


def _layers(
    scan: Scan,
    rows: Any,
    sizes: tuple[int, ...],
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Any, ...]:
    """Every layer on the rows of the one before; then the last states of all layers and directions, stacked."""
    directions = 2 if bidirectional else 1
    count = len(params) // (num_layers * directions)
    every = hx if isinstance(hx, (list, tuple)) else (hx,)
    first = list(zip(*(lifted(one).unbind(0) for one in every), strict=True))
    last: list[Any] = []
    for layer in range(num_layers):
        outs = []
        for direction in range(directions):
            place = layer * directions + direction
            weights = params[place * count : (place + 1) * count]
            out, *states = scan(rows, first[place], weights, sizes, direction == 1)
            outs.append(out)
            last.append(states)
        rows = torch.cat(outs, -1) if bidirectional else outs[0]
        if dropout > 0 and train and layer < num_layers - 1:
            rows = F.dropout(rows, dropout, True)
    return rows, *(torch.stack(states) for states in zip(*last, strict=True))


def _cell(name: str, scan: Scan) -> Callable[..., Any]:
    """The torch function of that name: one step on its own."""

    def cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        first = tuple(hx) if isinstance(hx, (list, tuple)) else (hx,)
        _, *states = scan(input, first, (w_ih, w_hh, b_ih, b_hh), (input.shape[0],), False)
        return states[0] if len(states) == 1 else tuple(states)

    cell.__name__ = name
    return cell


for _name, _scan in (("rnn_tanh", _rnn("tanh")), ("rnn_relu", _rnn("relu")), ("gru", _gru), ("lstm", _lstm)):
    composite(getattr(torch, _name))(_network(_name, _scan))
    composite(getattr(torch, f"{_name}_cell"))(_cell(f"{_name}_cell", _scan))
