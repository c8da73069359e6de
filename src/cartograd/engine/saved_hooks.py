"""`saved_tensors_hooks`: every saved tensor goes through a user's pack and comes back through his unpack.

`offload_to_cpu` is built on it: values that wait for the backward pass wait in CPU memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from cartograd.engine.graph import Node
from cartograd.engine.primitive import Primitive
from cartograd.engine.stored import Saver, Stored, full_version, replace_tensors, require_version, saving
from cartograd.engine.tensor import Tensor
from cartograd.errors import VjpError

Pack = Callable[[torch.Tensor], Any]
Unpack = Callable[[Any], Any]


class saved_tensors_hooks:
    """Keep what is saved for the backward pass in another form.

    Inside the block every tensor that an op saves is replaced by ``pack(tensor)``; when the backward pass needs it,
    inside the block or after it, ``unpack`` gets that and must return a tensor of the same values, shape, dtype and
    device. Both are called with grad mode off, once for each tensor of each op, for our own ops and for those that
    torch differentiates. Of nested blocks the innermost counts. Parameters are saved, too, and passed to `pack`.

    Parameters
    ----------
    pack : callable
        Takes a ``torch.Tensor``, returns anything.
    unpack : callable
        Takes what `pack` returned, returns the tensor.

    Examples
    --------
    >>> import cartograd
    >>> x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    >>> with cartograd.saved_tensors_hooks(lambda t: t.tolist(), torch.tensor):
    ...     loss = (x * x).sum()
    >>> loss.backward()
    >>> x.grad
    Tensor([2., 4.])
    """

    def __init__(self, pack: Pack, unpack: Unpack) -> None:
        self._saver = HookSaver(pack, unpack)
        self._entered: list[Any] = []

    def __enter__(self) -> saved_tensors_hooks:
        block = saving(self._saver)
        block.__enter__()
        self._entered.append(block)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._entered.pop().__exit__(*exc)


class HookSaver(Saver):
    """Passes saved tensors through the hooks."""

    def __init__(self, pack: Pack, unpack: Unpack) -> None:
        self.pack = pack
        self.unpack = unpack

    def run(self, op: Primitive, values: list[Any]) -> Any:
        """The forward is as always."""
        return op.run(values)

    def call(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Torch saves the tensors here, so the hooks are given to torch."""
        with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):
            return function(*args, **kwargs)

    def store(self, values: tuple[Any, ...], node: Node | None) -> Stored:
        """Pack every tensor, each once even if it was saved twice."""
        return Packed(values, self, node)


class Packed(Stored):
    """Saved values, their tensors as `pack` made them."""

    __slots__ = ("content", "metas", "saver", "version")

    def __init__(self, values: tuple[Any, ...], saver: HookSaver, node: Node | None) -> None:
        self.saver = saver
        self.metas: list[tuple[torch.Size, torch.dtype, torch.device]] = []
        slots: dict[int, _Slot] = {}

        def pack(tensor: torch.Tensor) -> _Slot:
            if id(tensor) not in slots:
                slots[id(tensor)] = _Slot(self._hooked(saver.pack, tensor, node, "pack"), len(self.metas))
                self.metas.append((tensor.shape, tensor.dtype, tensor.device))
            return slots[id(tensor)]

        self.content = replace_tensors(values, pack)
        self.version = full_version(_opened(self.content))

    @staticmethod
    def _hooked(hook: Callable[[Any], Any], value: Any, node: Node | None, name: str) -> Any:
        try:
            with torch.no_grad():
                return hook(value)
        except Exception as error:
            if node is not None:
                error.add_note(f"in the {name} hook for a tensor saved by {node.name}, called at {node.where()}")
            raise

    def fetch(self, node: Node | None) -> tuple[Any, ...]:
        """Unpack every tensor once; what was packed as a tensor must not have been changed since."""
        require_version(full_version(_opened(self.content)), self.version, node)
        found: dict[int, torch.Tensor] = {}

        def unpack(value: Any) -> Any:
            if type(value) is _Slot:
                if value.number not in found:
                    made = self._hooked(self.saver.unpack, value.packed, node, "unpack")
                    found[value.number] = _require_same(made, self.metas[value.number], node)
                return found[value.number]
            return type(value)(map(unpack, value)) if type(value) in (tuple, list) else value

        return tuple(map(unpack, self.content))

    def release(self, last: bool) -> None:
        """Nothing was kept of what was unpacked."""

    def held(self, names: list[str]) -> list[tuple[str, Any]]:
        """The tensors among what `pack` returned."""
        return [("packed", _opened(self.content))]


class _Slot:
    __slots__ = ("number", "packed")

    def __init__(self, packed: Any, number: int) -> None:
        self.packed = packed
        self.number = number


def _opened(value: Any) -> Any:
    if type(value) is _Slot:
        return value.packed
    return [_opened(item) for item in value] if type(value) in (tuple, list) else value


def _require_same(made: Any, meta: tuple[torch.Size, torch.dtype, torch.device], node: Node | None) -> torch.Tensor:
    made = made.data if type(made) is Tensor else made
    shape, dtype, device = meta
    if not isinstance(made, torch.Tensor) or made.shape != shape or made.dtype != dtype or made.device != device:
        what = "a checkpoint" if node is None else f"{node.name} (called at {node.where()})"
        given = (
            f"shape {tuple(made.shape)}, {made.dtype} on {made.device}"
            if isinstance(made, torch.Tensor)
            else f"a {type(made).__name__}"
        )
        raise VjpError(
            f"the unpack hook returned {given} for a tensor that {what} saved with shape {tuple(shape)}, "
            f"{dtype} on {device}: it must give back what pack was given"
        )
    return made


def offload_to_cpu(pin_memory: bool = False, min_bytes: int = 1024) -> saved_tensors_hooks:
    """Keep what is saved for the backward pass in CPU memory, and move it back when it is needed.

    Tensors that are in CPU memory already, Parameters, and tensors under `min_bytes` stay where they are. Tensors that
    share memory (a matrix and its transpose) are moved once.

    Parameters
    ----------
    pin_memory : bool, default=False
        Use page-locked memory: faster copies, which other programs cannot page out.
    min_bytes : int, default=1024
        Smaller tensors are not worth the trip.

    Examples
    --------
    >>> import cartograd
    >>> x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    >>> with cartograd.offload_to_cpu():
    ...     loss = (x * x).sum()
    >>> loss.backward()
    >>> x.grad
    Tensor([2., 4.])
    """
    mover = Mover(pin_memory, min_bytes)
    return saved_tensors_hooks(mover.pack, mover.back)


class Mover:
    """Moves memory to the CPU and back, one copy for all tensors that share it."""

    def __init__(self, pin_memory: bool = False, min_bytes: int = 1024) -> None:
        self.pin_memory = pin_memory
        self.min_bytes = min_bytes
        self.moved: dict[Any, tuple[StorageWeakRef, int, Any]] = {}  # by the storage's address and the dtype

    def pack(self, tensor: torch.Tensor) -> Any:
        """What stays, as it is; else its copy in CPU memory and how to find it there."""
        small = tensor.numel() * tensor.element_size() < self.min_bytes
        if tensor.is_cpu or small or isinstance(tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            return tensor
        return self.out(tensor)

    def out(self, tensor: torch.Tensor) -> tuple[torch.Tensor, bool, Any, torch.device]:
        """(copy, whether it is of the whole memory under the tensor, the tensor's layout, its device)."""
        whole = tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
        layout = (tensor.size(), tensor.stride(), tensor.storage_offset())
        return (self._shared(tensor) if whole else self._copy(tensor)), whole, layout, tensor.device

    def _shared(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        key = (storage._cdata, tensor.dtype)
        known = self.moved.get(key)
        if known is not None and not known[0].expired() and known[1] == tensor._version:
            copy: torch.Tensor | None = known[2]()
            if copy is not None:
                return copy
        self.moved = {key: entry for key, entry in self.moved.items() if entry[2]() is not None}
        copy = self._copy(torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage))
        self.moved[key] = (StorageWeakRef(storage), tensor._version, weakref.ref(copy))
        return copy

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self.pin_memory)
        return copy.copy_(tensor)

    def back(self, packed: Any) -> torch.Tensor:
        """The tensor on its own device again, laid out as it was, so that sums over it give the same bits."""
        if isinstance(packed, torch.Tensor):
            return packed
        copy, whole, (size, stride, offset), device = packed
        moved: torch.Tensor = copy.to(device, non_blocking=self.pin_memory)
        if whole:
            return moved.as_strided(size, stride, offset)
        return torch.empty_strided(size, stride, dtype=copy.dtype, device=device).copy_(moved)
