"""Many steps on a GPU without a pause: numbers sent ahead, launches recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from cartograd.kernels import gpu

RECORDED = 4
"""Fewer steps than this are launched one by one."""


def send(room: torch.Tensor, numbers: Sequence[float] | Sequence[Sequence[float]]) -> None:
    """Fill a tensor with numbers of the host, without waiting for the device."""
    found = torch.tensor(numbers, dtype=room.dtype)
    room.copy_(found.pin_memory() if room.is_cuda else found, non_blocking=True)


class Replayed:
    """Steps launched one by one the first time, which compiles what they need, recorded the second, then replayed.

    Parameters
    ----------
    device : torch.device
        Where they run; only a GPU records.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._of: object = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def knows(self, of: object) -> bool:
        """Whether the steps before were of this kind too."""
        return self._of is not None and self._of == of

    def run(self, work: Callable[[], None], of: object, steps: int) -> None:
        """Take so many steps, which `work` launches.

        `of` is all that the launches depend on, besides what memory holds: shapes, numbers given to kernels, and
        addresses.
        """
        known = self.knows(of)
        if not known:
            self._of, self._graph = of, None
        if known and self._graph is None and steps >= RECORDED and self.device.type == "cuda":
            self._graph = gpu.load("replay").recorded(work, self.device)
        if self._graph is None:
            work()
        else:
            self._graph.replay()
