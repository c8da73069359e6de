"""From columns to a matrix: numbers of one kind, categories one-hot, nothing missing."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any

import numpy

from cartograd.errors import DataFileError, InputError, OptionError
from cartograd.io.choosing import Choice, check_name, is_id, listed, selected
from cartograd.io.learned import category_key
from cartograd.io.missing import filled, is_missing
from cartograd.io.raw import Raw
from cartograd.io.table import Table

log = logging.getLogger("cartograd.io")

MOST_CATEGORIES = 1000
SMALL = frozenset(["bool", "int8", "uint8", "int16", "uint16", "float16", "float32"])
"""Kinds of which every value is a float32; a matrix of any others is float64."""


@dataclass(frozen=True)
class Block:
    """One or more features: their names, their values (n,) or (n, k), and the categories that they stand for."""

    names: list[str]
    values: Any
    categories: list[Any] = field(default_factory=list)


def build(raw: Raw, choice: Choice, source: str) -> Table:
    """Choose, convert, fill, and keep the rest."""
    _check(raw, choice)
    names = selected(raw, choice, source)
    blocks = [_numbers(raw, name) for name in names]
    hot = {name: _one_hot(raw, name, choice) for name in choice.one_hot}
    blocks += hot.values()
    if not blocks or not sum(len(block.names) for block in blocks):
        raise InputError(
            f"there are no features in it: none of its columns ({listed(list(raw.columns))}) holds quantities; name "
            "some with columns=, or categories with one_hot="
        )
    features = [name for block in blocks for name in block.names]
    X, kept, gaps = filled(_assembled(blocks), features, choice.missing, raw, choice.learned)
    table = _table(raw, choice, names, blocks, X, kept, source)
    categories = {name: block.categories for name, block in hot.items()}
    table = replace(table, gaps=gaps, categories=categories, dropped=raw.count - len(X))
    log.info("%s: %d rows; features: %s", source, len(X), listed(list(table.feature_names)))
    return table


def _check(raw: Raw, choice: Choice) -> None:
    if raw.count == 0:
        raise DataFileError("there are no rows in it")
    lengths = {name: len(column) for name, column in raw.columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataFileError(f"its columns differ in length: {lengths}")
    for role in ("label", "color", "text"):
        if (name := getattr(choice, role)) is not None:
            check_name(raw, name, role)
    for name in choice.one_hot:
        check_name(raw, name, "one_hot")


def _found(raw: Raw, name: str) -> Block:
    """A column, a matrix with the names of its parts, or one part of a matrix."""
    if name in raw.columns:
        values = raw.columns[name]
        names = (
            raw.parts.get(name) or [f"{name}_{place}" for place in range(values.shape[1])]
            if values.ndim == 2
            else [name]
        )
        return Block(names, values)
    home, place = raw.part_places[name]
    return Block([name], raw.columns[home][:, place])


def _numbers(raw: Raw, name: str) -> Block:
    block = _found(raw, name)
    kind = block.values.dtype.kind
    if kind in "Mm":
        raise InputError(f"column {name!r} holds times, which are no quantities; turn them into numbers first")
    return block if kind in "biuf" else Block(block.names, _from_text(raw, name, block.values))


def _from_text(raw: Raw, name: str, column: Any) -> Any:
    """A column of text that was asked for as a feature: every cell must be a number, or missing."""
    values = numpy.full(len(column), numpy.nan)
    for place, cell in enumerate(column):
        if not is_missing(cell):
            try:
                values[place] = float(cell)
            except ValueError:
                raise InputError(
                    f"{raw.row(place)}, column {name!r}: {cell!r} is no number; leave the column out, or make a "
                    f"feature of each of its values with one_hot=['{name}']"
                ) from None
    return values


def _one_hot(raw: Raw, name: str, choice: Choice) -> Block:
    column = _found(raw, name).values
    if column.ndim != 1:
        raise OptionError(f"one_hot: column {name!r} is a matrix, not a category")
    gone = numpy.array([is_missing(cell) for cell in column.tolist()])
    values = column[~gone].astype(object).tolist()
    categories = _categories(name, values, choice)
    place = {category_key(category): number for number, category in enumerate(categories)}
    unknown = [at for at, value in enumerate(values) if category_key(value) not in place]
    if unknown:
        row = raw.row(int(numpy.flatnonzero(~gone)[unknown[0]]))
        raise InputError(
            f"{f'{name}={values[unknown[0]]}'!r} is a category that the map was made without ({row}); leave such rows "
            "out, or make the map anew with all rows"
        )
    hot = numpy.zeros((len(column), len(categories)), dtype=numpy.float32)
    hot[numpy.nonzero(~gone)[0], [place[category_key(value)] for value in values]] = 1
    if choice.missing in ("error", "drop"):
        hot[gone] = numpy.nan
    return Block([f"{name}={category}" for category in categories], hot, categories)


def _categories(name: str, values: list[Any], choice: Choice) -> list[Any]:
    """The categories of a column in their order: those that are known, or those that occur."""
    if choice.learned is not None and name in choice.learned.categories:
        return choice.learned.categories[name]
    found = {category_key(value): value for value in reversed(values)}
    if len(found) > MOST_CATEGORIES:
        raise OptionError(f"one_hot: column {name!r} has {len(found):,} different values, at most {MOST_CATEGORIES:,}")
    return sorted(found.values(), key=lambda one: (isinstance(one, str), one))


def _assembled(blocks: list[Block]) -> Any:
    small = all(block.values.dtype.name in SMALL for block in blocks)
    count, width = len(blocks[0].values), sum(len(block.names) for block in blocks)
    X = numpy.empty((count, width), dtype=numpy.float32 if small else numpy.float64)
    reached = 0
    with numpy.errstate(invalid="ignore"):  # signalling NaNs, in damaged files
        for block in blocks:
            X[:, reached : reached + len(block.names)] = block.values.reshape(count, -1)
            reached += len(block.names)
    return X


def _table(raw: Raw, choice: Choice, names: list[str], blocks: list[Block], X: Any, kept: Any, source: str) -> Table:
    """Everything that is no feature, for the rows that were kept."""
    features = tuple(name for block in blocks for name in block.names)
    used = set(names)
    others = {name: column for name, column in raw.columns.items() if name not in used and column.ndim == 1}
    thumbnails = raw.thumbnails
    rows = numpy.arange(raw.count) if kept is None else numpy.nonzero(kept)[0]
    if kept is not None:
        others = {name: column[kept] for name, column in others.items()}
        thumbnails = None if thumbnails is None else thumbnails[kept]
    return Table(
        X=X,
        feature_names=features,
        columns=others,
        ids=_ids(raw, source, rows),
        rows=rows,
        label_name=choice.label or raw.label,
        color_name=choice.color,
        text_name=choice.text,
        thumbnails=thumbnails,
        source=source,
    )


def _ids(raw: Raw, source: str, rows: Any) -> Any:
    if raw.ids is not None:
        return raw.ids[rows]
    for name, column in raw.columns.items():
        if is_id(name, column):
            log.info("%s: column %r names the rows", source, name)
            return column[rows]
    return rows
