"""Data that come in batches: loaders, generators, lists of tables; read one batch at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from cartograd.errors import InputError
from cartograd.neighbors import validate
from cartograd.neighbors.intake import Given, intake
from cartograd.neighbors.tiles import tile_rows

EMPTY = "X is empty: found 0 sample(s): it gave no batch"


def is_stream(X: Any) -> bool:
    """Whether X gives batches: a ``DataLoader``, an iterator, or a list of tables."""
    if isinstance(X, (torch.utils.data.DataLoader, Iterator)):
        return True
    return isinstance(X, (list, tuple)) and len(X) > 0 and all(len(getattr(part, "shape", ())) == 2 for part in X)


def opened(X: Iterable[Any]) -> tuple[Iterator[Any], str]:
    """An iterator over the batches, and of which kind the first of them is: "numpy", "torch" or "tensor"."""
    incoming = iter(X)
    first = next(incoming, None)
    if first is None:
        raise InputError(EMPTY)
    return itertools.chain([_rows_of(first)], map(_rows_of, incoming)), intake(_rows_of(first), "X", None).kind


def batches(X: Iterable[Any], device: Any) -> Iterator[Given]:
    """The batches of X as rows, each checked for shape, kind of numbers, NaN and infinity when it comes.

    Of a batch that is a tuple, list or dictionary the first part is taken, as loaders give (rows, labels).
    """
    width = None
    for number, batch in enumerate(X):
        name = f"batch {number} of X"
        given = intake(_rows_of(batch), name, device)
        if width is not None and given.rows.width != width:
            raise InputError(f"{name} has {given.rows.width} columns where earlier ones had {width}")
        width = given.rows.width
        if given.sparse is None:
            validate.scan(given.rows, name, tile_rows(width))
        else:
            validate.scan_sparse(given.sparse, name)
        yield given
    if width is None:
        raise InputError(EMPTY)


def regrouped(pieces: Iterable[torch.Tensor], size: int, least: int) -> Iterator[torch.Tensor]:
    """The rows of all pieces in groups of `size`; the last may be larger, and is never smaller than `least`.

    Parameters
    ----------
    pieces : iterable of torch.Tensor
        (r, d) each.
    size : int
        Rows of a group.
    least : int
        A rest of fewer rows is joined to the group before it (but there is no other where all rows are fewer).
    """
    held: list[torch.Tensor] = []
    count = 0
    for piece in pieces:
        held.append(piece)
        count += len(piece)
        if count - size < max(least, 1):
            continue
        rows = torch.cat(held)
        while len(rows) - size >= max(least, 1):
            yield rows[:size]
            rows = rows[size:]
        held, count = [rows], len(rows)
    yield torch.cat(held)


def _rows_of(batch: Any) -> Any:
    if isinstance(batch, dict):
        batch = next(iter(batch.values()))
    is_pair = isinstance(batch, (list, tuple)) and len(batch) > 0 and len(getattr(batch[0], "shape", ())) > 1
    return batch[0] if is_pair else batch
