"""When the layout of a map is computed by kernels for the CPU, how they read points, and how threads share the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch

from cartograd.neighbors.workers import spread

Result = TypeVar("Result")

LEAST_ROWS = 4000
"""Fewer rows are laid out by torch before kernels are loaded."""
MOST_ROWS = 1 << 24
"""Random rows are found by 31 random bits: with more rows than this, not all would be equally likely to 1 %."""
MOST_DIMENSIONS = 3
RANGES, LEAST_RANGE, MULTIPLE = 16, 2560, 256
HOOKS = ("on_training_step_start", "on_training_step_end", "_before_step")


def served(n: int, components: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether kernels can lay out a map of n rows: large, of few dimensions, float32, on the CPU."""
    return (
        components <= MOST_DIMENSIONS
        and dtype == torch.float32
        and device.type == "cpu"
        and LEAST_ROWS <= n <= MOST_ROWS
    )


def in_words(Z: torch.Tensor) -> torch.Tensor:
    """Return the points (n, c) as kernels read them, two coordinates a word: 2 or 4 columns, the last perhaps 0."""
    columns = 2 if Z.shape[1] <= 2 else 4
    return torch.nn.functional.pad(Z, (0, columns - Z.shape[1])).contiguous() if Z.shape[1] < columns else Z


def inherited(kind: type, base: type, names: Iterable[str]) -> bool:
    """Whether a class has these methods from `base`: none was written anew in between."""
    return all(getattr(kind, name) is getattr(base, name) for name in names)


def plain_descent(optimiser: torch.optim.Optimizer) -> bool:
    """Whether a step of the optimiser is the learning rate times the gradient, and nothing else."""
    if type(optimiser) is not torch.optim.SGD or len(optimiser.param_groups) != 1:
        return False
    group = optimiser.param_groups[0]
    return not (group["momentum"] or group["weight_decay"] or group["maximize"])


def row_ranges(n: int) -> list[tuple[int, int]]:
    """The rows in ranges that go to threads one by one; they depend on n alone."""
    size = max(LEAST_RANGE, -(-n // (RANGES * MULTIPLE)) * MULTIPLE)
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def each_range(function: Callable[[int, int], Result], n: int, own: slice | None = None) -> list[Result]:
    """What the function gives for each range of n rows, on all cores; only for those that a process owns, if any."""
    ranges = row_ranges(n)
    if own is not None:
        ranges = [(max(a, own.start), min(b, own.stop)) for a, b in ranges if a < own.stop and b > own.start]
    return list(spread(lambda rows: function(*rows), ranges))
