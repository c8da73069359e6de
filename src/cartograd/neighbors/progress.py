"""One progress bar for one stage of a search, or none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def steps(items: Iterable[Item], total: int, stage: str, verbose: bool) -> Iterable[Item]:
    """`items`, with a bar that says which stage this is where `verbose`."""
    if not verbose:
        return items
    from tqdm.auto import tqdm

    bar: Iterable[Item] = tqdm(items, total=total, desc=stage, leave=False)
    return bar
