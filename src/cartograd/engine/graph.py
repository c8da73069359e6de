"""The recorded graph: nodes, leaves, and how to walk them.

An edge of the graph points from a result to what it was computed from. What stands at its far end is one of

- `Node`: one recorded application of an op (or one output of a multi-output op);
- `Leaf`: the gradient slot of a `Tensor` that a user made with ``requires_grad=True``;
- a plain ``torch.Tensor`` that requires grad: an ``nn.Parameter``, whose ``.grad`` is torch's own slot.

Nodes hold raw ``torch.Tensor`` values and never a `Tensor`, so dropping a result frees what only it needed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Union

import torch

if TYPE_CHECKING:
    from cartograd.engine.plan import Plan

CPU = torch.device("cpu")
"""One object for the commonest device: comparing with `is` is much faster than with `==`."""

REAL = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))
"""The dtypes our own rules are written for; complex values take torch's derivatives."""

next_number: Callable[[], int] = itertools.count(1).__next__
"""Numbers nodes in creation order, over all threads: a consumer's number is above its producers'."""


class Watchers:
    """What a user asked to be told about one tensor's gradient. Made on demand: most nodes have none."""

    __slots__ = ("hooks", "owner", "post_hooks", "retained", "retains")

    def __init__(self) -> None:
        self.hooks: dict[int, Callable[..., Any]] = {}
        self.post_hooks: dict[int, Callable[..., Any]] = {}
        self.owner: Any = None  # the tensor, where post-accumulate hooks will be called with it
        self.retains = False
        self.retained: Any = None


class Node:
    """One op that was run on something that requires grad.

    Attributes
    ----------
    plan
        Which gradient rules apply and what they need; `None` once the node has no rule left to run.
    parents
        One edge for each input that needs a gradient, in the order of the inputs.
    saved
        What the rules need, or where it is `Stored`; `None` once the backward pass has used and freed it.
    version
        Sum of the version counters of the saved tensors: any in-place change raises it.
    number
        Creation number, see `next_number`.
    shape, dtype, device
        Of the output; for a multi-output op `shape` is a tuple of (shape, dtype, device), the others `None`.
    code, instruction
        Where the user called the op; `where()` turns them into text.
    """

    __slots__ = (
        "code",
        "device",
        "dtype",
        "instruction",
        "number",
        "parents",
        "plan",
        "saved",
        "shape",
        "version",
        "watchers",
    )

    plan: Plan
    parents: tuple[Any, ...]
    saved: Any
    version: int
    number: int
    shape: Any
    dtype: torch.dtype
    device: torch.device
    code: CodeType | None
    instruction: int
    watchers: Watchers | None

    @property
    def name(self) -> str:
        """The op's name."""
        return self.plan.op.name

    def where(self) -> str:
        """`file:line` of the user's call that recorded this node."""
        return describe_place(self.code, self.instruction)

    def __repr__(self) -> str:
        return f"<Node {self.number} {self.name} at {self.where()}>"


class Leaf:
    """Where the gradient of a user's tensor is accumulated."""

    __slots__ = ("device", "dtype", "grad", "number", "shape", "watchers", "wrapper")

    def __init__(self, data: torch.Tensor) -> None:
        self.shape = data.shape
        self.dtype = data.dtype
        self.device = CPU if data.is_cpu else data.device
        self.number = next_number()
        self.grad: Any = None
        self.watchers: Watchers | None = None
        self.wrapper: Any = None  # a weak reference to the Tensor, whose data a user may have replaced

    def __repr__(self) -> str:
        return f"<Leaf {self.number} {tuple(self.shape)}>"


Edge = Union[Node, Leaf, torch.Tensor]

_INTERNAL = (
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
    os.path.dirname(os.path.abspath(torch.__file__)) + os.sep,
)
internal_files: dict[str, bool] = {}
"""Whether a file belongs to cartograd or torch, as far as it was met. By name: a piece of code hashes slowly."""


def calling_place(frame: FrameType) -> tuple[CodeType, int]:
    """(code, instruction) of the nearest frame outside cartograd and torch, from `frame` upwards."""
    known = internal_files.get
    current: FrameType | None = frame
    while current is not None:  # a call of a torch module is a dozen frames deep
        code = current.f_code
        internal = known(code.co_filename)
        if internal is None:
            internal = internal_files[code.co_filename] = code.co_filename.startswith(_INTERNAL)
        if not internal:
            return code, current.f_lasti
        current = current.f_back
    return frame.f_code, frame.f_lasti


def describe_place(code: CodeType | None, instruction: int) -> str:
    """Turn a stored place into `file:line`."""
    if code is None:
        return "<unknown>"
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            line = number
    return f"{code.co_filename}:{line}"


def walk(roots: Iterable[Any]) -> Iterator[Node]:
    """Every node reachable from `roots`, each once, newest first. Iterative: depth costs no stack."""
    seen: dict[int, Node] = {}
    stack = [root for root in roots if isinstance(root, Node)]
    while stack:
        node = stack.pop()
        if node.number in seen:
            continue
        seen[node.number] = node
        stack.extend(parent for parent in node.parents if type(parent) is Node and parent.number not in seen)
    for number in sorted(seen, reverse=True):
        yield seen[number]


def leads_to(roots: Iterable[Any], targets: set[int]) -> set[int]:
    """The ids of the nodes under `roots` from which one of `targets` (ids of edges) can be reached."""
    useful = set(targets)
    for node in reversed(list(walk(roots))):
        if any(id(parent) in useful for parent in node.parents):
            useful.add(id(node))
    return useful
