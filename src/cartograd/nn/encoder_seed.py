"""Modules whose first weights come from a seed, whatever else the process draws."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_DRAWS = set(
    (
        "uniform_ normal_ bernoulli_ exponential_ log_normal_ random_ rand randn randint randperm normal bernoulli "
        "multinomial kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ trunc_normal_ orthogonal_ sparse_"
    ).split()
)
"""Functions of torch and of ``torch.nn.init`` that take a generator."""


class seeded(TorchFunctionMode):
    """Inside the block, draws of this thread come from a generator of their own; the global one is not touched.

    Draws that name a generator keep theirs. Meant for the constructors of modules, on the CPU.

    Parameters
    ----------
    seed : int
        Seed of the generator.

    Examples
    --------
    >>> import torch
    >>> before = torch.get_rng_state()
    >>> with seeded(3):
    ...     first = torch.nn.Linear(2, 2)
    >>> with seeded(3):
    ...     second = torch.nn.Linear(2, 2)
    >>> torch.equal(first.weight, second.weight), torch.equal(before, torch.get_rng_state())
    (True, True)
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed & ((1 << 63) - 1))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Give the draw this generator."""
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") in _DRAWS and kwargs.get("generator") is None:
            kwargs["generator"] = self.generator
        return func(*args, **kwargs)
