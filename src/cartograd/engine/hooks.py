"""Hooks: what a backward pass calls when the gradient of a tensor is complete."""

from __future__ import annotations

from typing import Any

import torch

from cartograd.engine.accumulate import raw, require_fit
from cartograd.engine.graph import Leaf, Node, Watchers
from cartograd.engine.tensor import Tensor, from_raw


def call_hooks(watchers: Watchers, total: Any) -> Any:
    """Run a tensor's hooks on the total; each may replace it. They may add and remove hooks while they run."""
    for hook in list(watchers.hooks.values()):
        given = total if type(total) is Tensor else from_raw(total)
        replaced = hook(given)
        if replaced is not None:
            require_fit(raw(replaced), given.data.shape, given.data.dtype, given.data.device, "what a hook returns")
            if type(total) is not Tensor:
                total = raw(replaced)
            else:
                total = replaced if type(replaced) is Tensor else from_raw(replaced.detach())
    return total


def call_parameter_hooks(parameter: torch.Tensor, total: Any) -> Any:
    """Run the hooks that were registered on an ``nn.Parameter`` through torch."""
    for hook in list((parameter._backward_hooks or {}).values()):
        replaced = hook(total)
        if replaced is not None:
            require_fit(raw(replaced), parameter.shape, parameter.dtype, parameter.device, "what a hook returns")
            recorded = isinstance(total, Tensor) and not isinstance(replaced, Tensor)
            total = from_raw(raw(replaced)) if recorded else replaced
    return total


def has_post_hooks(leaf: Any) -> bool:
    """Whether somebody waits for this leaf to be accumulated."""
    if type(leaf) is Leaf:
        return leaf.watchers is not None and bool(leaf.watchers.post_hooks)
    return bool(leaf._post_accumulate_grad_hooks)


def post_hooks(leaf: Any) -> list[Any]:
    """A snapshot of a leaf's post-accumulate hooks."""
    if type(leaf) is Leaf:
        return [] if leaf.watchers is None else list(leaf.watchers.post_hooks.values())
    return list((leaf._post_accumulate_grad_hooks or {}).values())


def hook_keys(edge: Any) -> tuple[int, ...]:
    """Return the keys of all hooks at a place in the graph, which differ from hook to hook."""
    if type(edge) is Leaf or type(edge) is Node:
        return () if edge.watchers is None else (*edge.watchers.hooks, *edge.watchers.post_hooks)
    first, last = edge._backward_hooks, edge._post_accumulate_grad_hooks
    return (*(first or ()), *(last or ())) if first or last else ()


def owner(leaf: Any) -> Any:
    """The tensor a post-accumulate hook is called with."""
    if type(leaf) is not Leaf:
        return leaf
    assert leaf.watchers is not None
    return leaf.watchers.owner


def new_watchers(node: Node) -> Watchers:
    """Give `node` a place to keep its gradient."""
    node.watchers = Watchers()
    return node.watchers


def retain(watchers: Watchers, total: Any, create_graph: bool) -> None:
    """Accumulate into the ``.grad`` of an inner tensor."""
    value = total if type(total) is Tensor else from_raw(total.clone())
    watchers.retained = value if watchers.retained is None else watchers.retained + value
    if not create_graph:
        watchers.retained = watchers.retained.detach()
