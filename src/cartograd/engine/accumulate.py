"""Fitting a gradient to what it is the gradient of, and adding it into a leaf's ``.grad``."""

from __future__ import annotations

import sys
from typing import Any

import torch

from cartograd.engine import modes
from cartograd.engine.graph import CPU, Leaf, Node
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.errors import GradientShapeError, GradientTypeError, NotTwiceDifferentiableError, VjpError

_storage_users = torch._C._storage_Use_Count
_strided = torch.strided


def raw(value: Any) -> torch.Tensor:
    """The plain tensor under a gradient."""
    return value.data if type(value) is Tensor else value


def require_fit(gradient: torch.Tensor, shape: torch.Size, dtype: torch.dtype, device: torch.device, what: str) -> None:
    """Refuse a gradient a user gave that is not exactly of the shape, dtype and device of its tensor."""
    if not isinstance(gradient, torch.Tensor):
        raise GradientTypeError(f"{what} must be a Tensor or a torch.Tensor, got {type(gradient).__name__}")
    if gradient.shape != shape or gradient.dtype != dtype or gradient.device != device:
        raise GradientShapeError(
            f"{what} must have shape {tuple(shape)}, dtype {dtype} on {device}, "
            f"but has shape {tuple(gradient.shape)}, dtype {gradient.dtype} on {gradient.device}"
        )


def fit(gradient: Any, edge: Any, node: Node) -> Any:
    """Check what a rule of `node` returned for the input behind `edge`; undo broadcasting where the op does it."""
    if type(gradient) is not torch.Tensor and not isinstance(gradient, (torch.Tensor, Tensor)):
        raise VjpError(
            f"the gradient rule of {node.name} (called at {node.where()}) returned a {type(gradient).__name__}, "
            "not a tensor"
        )
    kind = type(edge)
    on_cpu = edge.device is CPU if kind is Node or kind is Leaf else edge.is_cpu
    same_device = gradient.is_cpu if on_cpu else gradient.device == edge.device
    if gradient.shape == edge.shape and gradient.dtype is edge.dtype and same_device:
        return gradient
    if kind is Leaf and _moved(edge, gradient):
        return gradient
    if node.plan.op.broadcasts and same_device:
        return _unbroadcast(gradient, edge, node)
    raise VjpError(
        f"the gradient rule of {node.name} (called at {node.where()}) returned shape {tuple(gradient.shape)}, "
        f"{gradient.dtype} on {gradient.device} for an input of shape {tuple(edge.shape)}, "
        f"{edge.dtype} on {edge.device}"
    )


def _moved(leaf: Leaf, gradient: Any) -> bool:
    """Whether a user has given the leaf's tensor new ``.data``, which is what the gradient fits."""
    tensor = leaf.wrapper() if leaf.wrapper is not None else None
    if tensor is None or (tensor.data.shape == leaf.shape and tensor.data.dtype is leaf.dtype):
        return False
    leaf.shape, leaf.dtype, leaf.device = tensor.data.shape, tensor.data.dtype, tensor.data.device
    return gradient.shape == leaf.shape and gradient.dtype is leaf.dtype


def _unbroadcast(gradient: Any, edge: Any, node: Node) -> Any:
    given, wanted = gradient.shape, edge.shape
    if given != wanted:
        added = len(given) - len(wanted)
        if added > 0 and given[added:] == wanted:  # the commonest case, one kernel: a bias
            gradient = (gradient if added == 1 else gradient.flatten(0, added - 1)).sum(0)
        else:
            try:
                gradient = gradient.sum_to_size(wanted)
            except RuntimeError as error:
                raise VjpError(
                    f"the gradient rule of {node.name} (called at {node.where()}) returned shape {tuple(given)}, "
                    f"which is no broadcast of the input's shape {tuple(wanted)}"
                ) from error
    return gradient if gradient.dtype is edge.dtype else gradient.to(edge.dtype)


def _references_of_a_local() -> int:
    value = object()
    return sys.getrefcount(value)


ALONE = _references_of_a_local()
"""What ``sys.getrefcount`` says of an object that one local variable holds and nobody else."""


def is_private(total: torch.Tensor) -> bool:
    """Whether the one Python reference to `total`, if there is but one, is the only way to its memory."""
    if total.layout is not _strided or not total.is_contiguous():
        return False
    return bool(_storage_users(total.untyped_storage()._cdata) <= 2)


def settle(slot: list[Any]) -> bool:
    """Add the total in `slot`, a list of a leaf and its total, into the leaf's ``.grad`` if that is all there is to do.

    False where it is not, and nothing was done: somebody watches the leaf, or the first total has to be copied.
    """
    leaf, total = slot
    ours = type(leaf) is Leaf
    if leaf.watchers is not None if ours else _watched_by_torch(leaf):
        return False
    before = leaf.grad
    if total.layout is not _strided:
        return False
    if before is not None:
        before = before.data if ours else before
        if before.layout is _strided:
            before.add_(total)
            return True
        return False
    if sys.getrefcount(total) > ALONE + 1 or not is_private(total):
        return False
    leaf.grad = from_raw(total) if ours else total
    return True


def _watched_by_torch(leaf: torch.Tensor) -> bool:
    return bool(leaf._backward_hooks or leaf._post_accumulate_grad_hooks)  # results of torch's were handed over


def accumulate(leaf: Any, total: Any, alone: bool, create_graph: bool) -> None:
    """Add `total` into the ``.grad`` of a `Leaf` or a Parameter.

    The first gradient is stored as it is when nobody else can see its memory (`alone` says that no other Python
    reference exists), and copied otherwise: a later in-place change of one ``.grad`` never reaches another tensor.
    """
    if modes.watchers and modes.watch.capture is not None and not modes.watch.capture.silent:
        modes.watch.capture.accumulate(leaf, raw(total), lambda: accumulate(leaf, total, alone, create_graph))
        return
    if type(leaf) is Leaf:
        if create_graph:
            leaf.grad = total if leaf.grad is None else leaf.grad + total
        elif leaf.grad is None:
            leaf.grad = from_raw(_private(raw(total), leaf, alone))
        else:
            leaf.grad.data.add_(raw(total))
        return
    if create_graph and type(total) is Tensor and total.requires_grad:
        raise NotTwiceDifferentiableError(
            "backward(create_graph=True) would have to store a recorded gradient in the .grad of an nn.Parameter, "
            "which holds plain torch tensors only: use cartograd.grad(loss, parameters, create_graph=True) instead"
        )
    if leaf.grad is None:
        leaf.grad = _private(raw(total), leaf, alone)
    elif leaf.grad.layout is raw(total).layout is torch.strided:
        leaf.grad.add_(raw(total))
    else:
        leaf.grad = leaf.grad + raw(total)


def _private(total: torch.Tensor, leaf: Any, alone: bool) -> torch.Tensor:
    if total.layout is not torch.strided:
        return total.clone()
    if alone and is_private(total):
        return total
    if type(leaf) is Leaf:
        return total.clone(memory_format=torch.contiguous_format)
    return torch.empty_like(leaf, requires_grad=False).copy_(total)
