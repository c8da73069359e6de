"""`Tensor`: a ``torch.Tensor`` and its place in a graph.

It is not a subclass of ``torch.Tensor`` but a small slotted object that speaks torch's function protocol: any
``torch`` function that is given one calls `Tensor.__torch_function__`, which looks the function up in `RULES`
and runs our op for it, or else torch's own derivative of that one function (`fallback`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from cartograd.engine.capturing import recorder, refuse_to_read
from cartograd.engine.graph import Leaf, Node, Watchers
from cartograd.errors import LeafError, NoGradientError, UnsupportedError

RULES: dict[Any, Callable[..., Any]] = {}
"""torch function -> our op. Filled by `primitive` and `composite`; the engine itself knows no op."""

KEYWORDS: dict[Any, frozenset[str]] = {}
"""The keywords that a composite takes. A call with others takes torch's derivative."""

ALIASES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "x2": "other", "self": "input"}
"""Names that torch accepts for its own parameters."""


class Tensor:
    """A value that remembers how it was computed.

    Parameters
    ----------
    data : torch.Tensor, numpy array, number or nested list
        The value; a ``torch.Tensor`` or NumPy array is shared, not copied.
    requires_grad : bool, default=False
        Whether operations on it are recorded and ``backward`` fills its ``grad``.
    dtype, device : optional
        Converted to, where given.

    Examples
    --------
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    Tensor([2., 4.])
    """

    __slots__ = ("__weakref__", "_edge", "_parked", "data")
    __array_priority__ = 1000  # numpy leaves mixed arithmetic to us

    data: torch.Tensor
    _edge: Any  # Node, Leaf, None; inside a recorded gradient rule also a Parameter
    _parked: Leaf  # the leaf (gradient, hooks) of a tensor whose requires_grad was turned off; unset otherwise

    def __init__(
        self,
        data: Any,
        requires_grad: bool = False,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.data = as_torch(data, dtype, device)
        self._edge = None
        if requires_grad:
            self.requires_grad_()

    if TYPE_CHECKING:  # everything else that torch.Tensor has is given by `methods`

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = RULES.get(func)
        if rule is None or (kwargs and kwargs.get("out") is not None):
            from cartograd.engine.fallback import run_torch

            return run_torch(func, args, kwargs or {})
        if not kwargs:
            return rule(*args)
        known = KEYWORDS.get(rule)
        if known is not None and not known.issuperset(kwargs):
            kwargs = {name if name in known else ALIASES.get(name, name): value for name, value in kwargs.items()}
            if not known.issuperset(kwargs):
                from cartograd.engine.fallback import run_torch

                return run_torch(func, args, kwargs)
        return rule(*args, **kwargs)

    # The graph

    @property
    def node(self) -> Node | None:
        """The op that made this tensor; `None` for a leaf."""
        edge = self._edge
        return edge if type(edge) is Node else None

    grad_fn = node

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded op made this tensor."""
        return type(self._edge) is not Node

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded."""
        return self._edge is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Start or stop recording what is done with this leaf."""
        if type(self._edge) is Node:
            if not requires_grad:
                raise LeafError(
                    f"requires_grad can only be turned off on a leaf, and this tensor was made by {self._edge.name}"
                    f" at {self._edge.where()}. Use .detach() for a copy outside the graph."
                )
        elif not requires_grad:
            if type(self._edge) is Leaf:
                self._parked = self._edge
            self._edge = None
        elif self._edge is None and hasattr(self, "_parked"):
            self._edge = self._parked
        elif self._edge is None:
            if not (self.data.is_floating_point() or self.data.is_complex()):
                raise UnsupportedError(
                    f"only floating-point and complex tensors can require grad, got {self.data.dtype}; "
                    "convert with .to(torch.float32) first"
                )
            self._edge = Leaf(self.data)
            self._edge.wrapper = weakref.ref(self)
        return self

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient: of a leaf, or of an inner tensor after `retain_grad`."""
        edge = self._edge
        if type(edge) is Leaf:
            if (recording := recorder()) is not None:
                recording.look(edge)
            return edge.grad
        if type(edge) is Node and edge.watchers is not None:
            return edge.watchers.retained
        return self._parked.grad if edge is None and hasattr(self, "_parked") else None

    @grad.setter
    def grad(self, value: Tensor | torch.Tensor | None) -> None:
        from cartograd.engine.accumulate import require_fit

        if value is not None:
            value = value if isinstance(value, Tensor) else from_raw(value.detach())
            require_fit(value.data, self.data.shape, self.data.dtype, self.data.device, "the .grad of this tensor")
        if type(self._edge) is Leaf:
            if (recording := recorder()) is not None:
                recording.put(self._edge, value)
            self._edge.grad = value
        elif type(self._edge) is Node:
            _watchers(self._edge).retained = value
        elif hasattr(self, "_parked"):
            self._parked.grad = value
        elif value is not None:
            raise NoGradientError("this tensor does not require grad; call .requires_grad_() before setting .grad")

    def retain_grad(self) -> None:
        """Keep the gradient of this inner tensor in ``.grad``; a leaf keeps it anyway."""
        if self._edge is None:
            raise NoGradientError("retain_grad() needs a tensor that requires grad; this one does not")
        if type(self._edge) is Node:
            _watchers(self._edge).retains = True

    @property
    def retains_grad(self) -> bool:
        """Whether this inner tensor keeps its gradient."""
        edge = self._edge
        return type(edge) is Node and edge.watchers is not None and edge.watchers.retains

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Handle:
        """Call `hook(total_gradient)` once in every backward pass; what it returns replaces the gradient."""
        if self._edge is None:
            raise NoGradientError("a hook needs a tensor that requires grad; this one does not")
        return Handle(_watchers(self._edge).hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Handle:
        """Call `hook(tensor)` after ``.grad`` of this leaf has been accumulated."""
        if type(self._edge) is not Leaf:
            raise LeafError("a post-accumulate hook needs a leaf that requires grad; use register_hook() here")
        watchers = _watchers(self._edge)
        watchers.owner = self  # the hook is called with it, so it must outlive its last name
        return Handle(watchers.post_hooks, hook)

    def backward(
        self,
        gradient: Tensor | torch.Tensor | None = None,
        *,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Tensor | torch.Tensor] | None = None,
        workers: int = 1,
    ) -> None:
        """Accumulate the gradient of this tensor into the ``.grad`` of every leaf it was computed from.

        Parameters
        ----------
        gradient : Tensor of this tensor's shape, default=None
            What to start from; one may be left out for a tensor of one element.
        retain_graph : bool, default=None
            Keep saved values for another pass; `None` means as `create_graph`.
        create_graph : bool, default=False
            Record the pass itself, for higher derivatives.
        inputs : sequence of tensors, default=None
            Accumulate into these only.
        workers : int, default=1
            Threads to run the pass on; the result is the same to the last bit.
        """
        from cartograd.engine.backward import backward

        backward(
            self,
            gradient,
            retain_graph=retain_graph,
            create_graph=create_graph,
            inputs=inputs,
            workers=workers,
        )

    def detach(self) -> Tensor:
        """The same value outside the graph; shares memory."""
        return from_raw(self.data.detach())

    def detach_(self) -> Tensor:
        """Take this tensor itself out of the graph."""
        self._edge = None
        return self

    # Leaving the graph for Python and NumPy

    def item(self) -> Any:
        """The one element as a Python number."""
        return self.data.item()

    def tolist(self) -> Any:
        """Nested Python lists of the values."""
        refuse_to_read("tolist")
        return self.data.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """The values as a NumPy array that shares memory; with `force`, of a tensor that requires grad, too."""
        if self._edge is not None and not force:
            raise NoGradientError("this tensor requires grad, and a NumPy array cannot carry it: use .detach().numpy()")
        refuse_to_read("numpy")
        return self.data.numpy(force=force)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Tensor]:
        if self.data.dim() == 0:
            raise UnsupportedError("a 0-d tensor has no elements to iterate over; use .item()")
        return iter(Tensor.__torch_function__(torch.Tensor.unbind, (), (self, 0)))

    def __bool__(self) -> bool:
        return bool(self.data)

    def __int__(self) -> int:
        return int(self.data)

    def __float__(self) -> float:
        return float(self.data)

    def __complex__(self) -> complex:
        return complex(self.data.item())

    def __index__(self) -> int:
        return self.data.__index__()

    def __hash__(self) -> int:
        return id(self)

    def __format__(self, spec: str) -> str:
        return format(self.data.item(), spec) if self.data.dim() == 0 and spec else format(str(self), spec)

    def __repr__(self) -> str:
        text = repr(self.data.detach()).replace("tensor(", "Tensor(", 1)
        edge = self._edge
        if edge is None:
            return text
        return text[:-1] + (f", node={edge.name})" if type(edge) is Node else ", requires_grad=True)")

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if type(self._edge) is Node:
            raise LeafError("only leaves can be deep-copied; use .detach().clone() for a copy of this result")
        copied = Tensor(self.data.clone(), requires_grad=self.requires_grad)
        memo[id(self)] = copied
        copied.grad = None if self.grad is None else from_raw(self.grad.data.clone())
        return copied

    def __reduce__(self) -> Any:
        if type(self._edge) is Node:
            raise LeafError("only leaves can be pickled; use .detach() first")
        return Tensor, (self.data, self.requires_grad)


class Handle:
    """Takes a hook away again: ``handle.remove()``, or use it as a context manager."""

    _next = 0

    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        Handle._next += 1
        self._key = Handle._next
        self._hooks = hooks
        hooks[self._key] = hook

    def remove(self) -> None:
        """Unregister the hook; does nothing the second time."""
        self._hooks.pop(self._key, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def tensor(
    data: Any,
    requires_grad: bool = False,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Make a `Tensor` from numbers, lists, NumPy arrays or torch tensors.

    Parameters
    ----------
    data : number, nested list, numpy array, torch.Tensor or Tensor
        The value; arrays and torch tensors are shared where no conversion is asked for.
    requires_grad : bool, default=False
        Whether to record operations on it.
    dtype, device : optional
        Converted to, where given.

    Examples
    --------
    >>> tensor([1.0, 2.0])
    Tensor([1., 2.])
    """
    return Tensor(data, requires_grad, dtype, device)


def from_raw(data: torch.Tensor, edge: Any = None) -> Tensor:
    """Wrap a torch tensor without checks."""
    made = object.__new__(Tensor)
    made.data = data
    made._edge = edge
    return made


def as_torch(data: Any, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> torch.Tensor:
    """The plain, detached torch tensor of anything that can be made one."""
    if isinstance(data, Tensor):
        data = data.data
    try:
        made = torch.as_tensor(data, dtype=dtype, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UnsupportedError(f"cannot make a tensor of {type(data).__name__}: {error}") from error
    return made.detach()


def _watchers(edge: Node | Leaf) -> Watchers:
    if edge.watchers is None:
        edge.watchers = Watchers()
    return edge.watchers
