"""What an estimator needs to be fitted by several processes, and to be taken up again from a checkpoint."""

from __future__ import annotations

import torch

from cartograd.distributed import Part, Ranks


class SharedFit:
    """The base of estimators whose map is moved step by step.

    During a fit with others ``_ranks`` are the processes; where they share it row by row ``_bounds`` says whose rows
    are whose. Both are None where a process works alone.
    """

    _ranks: Ranks | None = None
    _bounds: list[int] | None = None
    _shown_rows: slice = slice(None)
    _layout: torch.Tensor
    _moved: torch.Tensor

    def _owns_rows(self) -> bool:
        """Whether processes can share this fit row by row; otherwise each makes the whole map."""
        return False

    def _own_rows(self) -> slice:
        """The rows of the layout that this process moves."""
        if self._ranks is None or self._bounds is None:
            return slice(0, len(self._layout))
        return slice(self._bounds[self._ranks.rank], self._bounds[self._ranks.rank + 1])

    def _part(self) -> Part | None:
        """The part of the map that this process owns; None where it owns all."""
        return None if self._ranks is None or self._bounds is None else Part(self._ranks, self._bounds)

    def _share_layout(self) -> None:
        """Give the other processes the rows that this one has moved, and get theirs."""
        if self._ranks is not None and self._bounds is not None:
            self._ranks.share_rows(self._layout, self._bounds)

    def _sharers(self) -> int:
        """How many processes share the map row by row: what each knows of all counts once in their sum."""
        return 1 if self._ranks is None or self._bounds is None else self._ranks.size

    def _over_all(self, value: float, what: str) -> float:
        """The sum of a number over the processes that own rows; the number itself where there are no others."""
        if self._ranks is None or self._bounds is None:
            return value
        return float(self._ranks.total(torch.tensor([value], dtype=torch.float64), what))

    def _carried(self) -> dict[str, torch.Tensor]:
        """What a step hands on to the next beside the layout and the optimiser: kept in checkpoints."""
        return {}

    def _carry_on(self, kept: dict[str, torch.Tensor]) -> None:
        """Take over what `_carried` gave."""
