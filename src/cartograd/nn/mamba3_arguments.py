"""What can be wrong with the arguments of `Mamba3`, each with its message."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from cartograd.errors import InputError, OptionError, UnsupportedError


def positive(name: str, value: Any) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UnsupportedError(f"{name} must be a whole number, got {value!r} of type {type(value).__name__}")
    if value < 1:
        raise OptionError(f"{name} must be at least 1, got {value}")
    return operator.index(value)


def one_of(name: str, value: str, known: Sequence[str]) -> str:
    """One of the known names."""
    if value not in known:
        raise OptionError(f"unknown {name} {value!r}: known are {', '.join(known)}")
    return value


def fraction(rope_fraction: float) -> float:
    """A share of the channels."""
    if not 0 <= rope_fraction <= 1:
        raise OptionError(f"rope_fraction must lie between 0 and 1, got {rope_fraction}")
    return rope_fraction


def sizes(d_model: int, d_state: int, headdim: int, expand: float, ngroups: int, mimo_rank: int) -> tuple[int, int]:
    """(channels of all heads, heads); refused where heads do not fit."""
    given = {"d_model": d_model, "d_state": d_state, "headdim": headdim, "ngroups": ngroups, "mimo_rank": mimo_rank}
    for name, value in given.items():
        positive(name, value)
    inner = int(expand * d_model)
    if inner < headdim or inner % headdim:
        raise OptionError(
            f"headdim={headdim} does not divide expand * d_model = {inner}: choose a headdim that does, "
            f"or another expand"
        )
    heads = inner // headdim
    if heads % ngroups:
        raise OptionError(f"ngroups={ngroups} does not divide the {heads} heads (expand * d_model / headdim)")
    return inner, heads


def fitting_cache(cache: Any, empty: Any) -> None:
    """Refuse a cache of another block or of another batch."""
    if not isinstance(cache, type(empty)):
        raise UnsupportedError(f"cache must be a {type(empty).__name__}, got a {type(cache).__name__}")
    for name, one, expected in zip(empty._fields, cache, empty, strict=True):
        if tuple(one.shape) != tuple(expected.shape):
            raise InputError(
                f"the cache's {name} has shape {tuple(one.shape)}, this block and batch need {tuple(expected.shape)}"
            )
