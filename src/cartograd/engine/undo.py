"""What a computation changes that was there before: memory, such as a module's count of batches, and random generators.

A recomputation must find it as the first computation did, and must not change it a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cartograd.engine.inplace import changes_argument
from cartograd.engine.primitive import Primitive
from cartograd.engine.tensor import Tensor


class Changes(TorchFunctionMode):
    """While it is on, memory that was there before is copied before a function changes it; `restore` puts it back.

    Memory that is made while it is on is *young*, and may be changed freely.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self.generators: dict[
            torch.Generator, torch.Tensor
        ] = {}  # a user's own, and their states before they were used
        self.young: set[int] = set()
        self.paused = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at what goes in and what comes out, and let the function run."""
        kwargs = kwargs or {}
        if self.paused or getattr(func, "__name__", "") == "__get__":
            return func(*args, **kwargs)
        if changes_argument(func, args, kwargs):
            target = kwargs["out"] if kwargs.get("out") is not None else args[:1] or kwargs.get("tensor")
            for storage in storages(target):
                self._remember(storage)
        generator = kwargs.get("generator")
        if generator is not None and generator not in self.generators:
            self.generators[generator] = generator.get_state()
        result = func(*args, **kwargs)
        self.note((args, kwargs), result)
        return result

    def note(self, given: Any, made: Any) -> None:
        """What is in `made` and shares no memory with what is `given` is young."""
        new = {storage._cdata for storage in storages(made)}
        if new:
            self.young |= new - {storage._cdata for storage in storages(given)}

    def _remember(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self.young and storage._cdata not in self.before:
            self.before[storage._cdata] = (storage, storage.clone())

    def restore(self) -> None:
        """Put everything back that was there before."""
        for storage, copy in self.before.values():
            storage.copy_(copy)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Run the block with everything as it was before; afterwards it is again as it is now."""
        now = [(storage, storage.clone()) for storage, _ in self.before.values()]
        states = [(generator, generator.get_state()) for generator in self.generators]
        self.restore()
        for generator, state in self.generators.items():
            generator.set_state(state)
        try:
            yield
        finally:
            for storage, copy in now:
                storage.copy_(copy)
            for generator, state in states:
                generator.set_state(state)

    def run_op(self, op: Primitive, values: list[Any]) -> Any:
        """Run one of our ops; what it changes inside is its own affair."""
        before, self.paused = self.paused, True
        try:
            result = op.run(values)
        finally:
            self.paused = before
        self.note(values, result)
        return result


def storages(value: Any) -> Iterator[torch.UntypedStorage]:
    """The memory under all tensors in a structure of tuples, lists and dicts."""
    if isinstance(value, Tensor):
        value = value.data
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            yield value.untyped_storage()
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from storages(item)
    elif isinstance(value, dict):
        yield from storages(list(value.values()))
