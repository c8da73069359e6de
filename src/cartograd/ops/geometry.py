"""Distances and angles between points."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cartograd.engine.primitive import composite, primitive
from cartograd.engine.tensor import Tensor as Recorded
from cartograd.ops.vector_norm import norm_gradient

_cdist_backward = torch.ops.aten._cdist_backward.default
_pdist_backward = torch.ops.aten._pdist_backward.default
_BY_PRODUCTS = {"use_mm_for_euclid_dist": True, "donot_use_mm_for_euclid_dist": False}
_FEW = 25  # torch multiplies matrices where there are more points than this on either side


@primitive(broadcasts=True)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, by_products: bool = False) -> Tensor:
    """out[..., i, j] = |x1[..., i] - x2[..., j]|_p, and 0 has gradient 0.

    d/dx1[i] = sum over j of g[i, j] * sign(d) * (|d| / out[i, j])^(p - 1) with d = x1[i] - x2[j]; d/dx2 is the same
    with i and j exchanged. `by_products`: for p = 2, |x|^2 - 2 x.y + |y|^2, fast but inexact for points close together.
    """
    mode = "use_mm_for_euclid_dist" if by_products else "donot_use_mm_for_euclid_dist"
    return torch.cdist(x1, x2, p, mode)


@cdist.vjp("x1")
def _(g: Any, x1: Tensor, x2: Tensor, p: float, by_products: bool, out: Tensor) -> Any:
    return _pulls(g, x1, x2, p, by_products, out)


@cdist.vjp("x2")
def _(g: Any, x1: Tensor, x2: Tensor, p: float, by_products: bool, out: Tensor) -> Any:
    return _pulls(g.mT, x2, x1, p, by_products, out.mT)


def _pulls(g: Any, points: Any, others: Any, p: float, by_products: bool, distances: Any) -> Any:
    """What `g` makes of moving each of `points`, of all distances to `others`."""
    if p == 2 and (by_products or isinstance(g, Recorded)):
        ratio = g / distances.masked_fill(distances == 0, math.inf)
        return points * ratio.sum(-1, keepdim=True) - torch.matmul(ratio, others)
    if isinstance(g, Recorded):
        return _pull(g, points.unsqueeze(-2) - others.unsqueeze(-3), distances, p).sum(-2)
    return _cdist_backward(g.contiguous(), points, others, p, distances.contiguous())


def _pull(g: Any, difference: Any, distance: Any, p: float) -> Any:
    """g times the slope of the norm of each difference, as ops that can be differentiated again, at 0 too."""
    g, distance = g.unsqueeze(-1), distance.unsqueeze(-1)
    if math.isinf(p):
        return g * torch.sgn(difference) * (torch.abs(difference) == distance)
    return norm_gradient(g, difference, distance.masked_fill(distance == 0, 1), p, -1)


@cdist.example
def _(make: Any) -> Any:
    return make(2, 2), make(3, 2)


@cdist.example
def _(make: Any) -> Any:
    return make(2, 1, 2), make(1, 3, 2), 2.0, True


@cdist.example
def _(make: Any) -> Any:
    return make(2, 2), make(3, 2), 1.0


@cdist.example
def _(make: Any) -> Any:
    return make(2, 2), make(3, 2), 3.0


@cdist.example
def _(make: Any) -> Any:
    return make(2, 2), make(3, 2), math.inf


@composite(torch.cdist)
def any_cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Any:
    """`cdist` with torch's choice of how to compute it."""
    by_products = _BY_PRODUCTS.get(compute_mode)
    if by_products is None:
        if compute_mode != "use_mm_for_euclid_dist_if_necessary":
            raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
        by_products = x1.shape[-2:-1].numel() > _FEW or x2.shape[-2:-1].numel() > _FEW
    return cdist(x1, x2, float(p), by_products and p == 2)


@primitive("pdist")
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """|input[i] - input[j]|_p for all i < j, and 0 has gradient 0.   Its gradient is that of cdist"""
    return torch.pdist(input, p)


@pdist.vjp("input")
def _(g: Any, input: Any, p: float, out: Any) -> Any:
    if not isinstance(g, Recorded):
        return _pdist_backward(g.contiguous(), input.contiguous(), p, out)
    first, second = torch.triu_indices(input.shape[0], input.shape[0], 1, device=g.device)
    difference = torch.index_select(input, 0, first) - torch.index_select(input, 0, second)
    pull = _pull(g, difference, out, float(p))
    return torch.zeros_like(input).index_add(0, first, pull).index_add(0, second, pull, alpha=-1)


@pdist.example
def _(make: Any) -> Any:
    return (make(4, 2),)


@pdist.example
def _(make: Any) -> Any:
    return make(4, 2), 3.0


@composite("pairwise_distance")
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    """|x1 - x2 + eps|_p along the last axis"""
    return torch.linalg.vector_norm(x1 - x2 + eps, p, -1, keepdim)


@composite("dist")
def dist(input: Any, other: Any, p: float = 2.0) -> Any:
    """|input - other|_p over all elements"""
    return torch.linalg.vector_norm(input - other, p)


@primitive("cosine_similarity", broadcasts=True)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1.x2 / (|x1| |x2|) along `dim`, where no length counts as less than `eps`.

    d/dx1 = g * (x2 / |x2| - out * x1 / |x1|) / |x1|, and the other way round for x2
    """
    return torch.cosine_similarity(x1, x2, dim, eps)


@cosine_similarity.vjp("x1", "x2")
def _(g: Any, x1: Any, x2: Any, dim: int, eps: float, out: Any, need: Any) -> Any:
    g, out = g.unsqueeze(dim), out.unsqueeze(dim)
    if x1.shape != x2.shape:
        shape = torch.broadcast_shapes(x1.shape, x2.shape)
        x1, x2 = x1.expand(shape), x2.expand(shape)
    lengths = [torch.linalg.vector_norm(x, 2, dim, keepdim=True) for x in (x1, x2)]
    safe = [length.clamp_min(eps) for length in lengths]
    units = [x / length for x, length in ((x1, safe[0]), (x2, safe[1]))]

    def gradient(x: Any, k: int) -> Any:
        along = x / lengths[k].masked_fill(lengths[k] == 0, 1)
        return g * (units[1 - k] - out * along) / safe[k]

    return gradient(x1, 0) if need[0] else None, gradient(x2, 1) if need[1] else None


@cosine_similarity.example
def _(make: Any) -> Any:
    return make(2, 3), make(1, 3)
