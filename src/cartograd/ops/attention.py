"""The formula of scaled dot-product attention, softmax(query key' * scale + mask) value; see `attention_kernels`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cartograd.engine.accumulate import raw
from cartograd.engine.primitive import primitive

LOW = (torch.float16, torch.bfloat16)


@primitive()
def kept(query: Tensor, key: Tensor, attn_mask: Tensor | None, dropout_p: float) -> Tensor:
    """Which weights dropout keeps: truth values, without a gradient. Drawn as torch's formula draws them.

    Apart from `attention`, so that this is a pure function; an op, so that it can be drawn again when memory is short.
    """
    masked = () if attn_mask is None else attn_mask.shape[:-2]
    batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], masked)
    dtype = torch.float32 if query.dtype in LOW else query.dtype
    drawn = torch.empty(*batch, query.shape[-2], key.shape[-2], dtype=dtype, device=query.device)
    return drawn.bernoulli_(1 - dropout_p).bool()


@kept.vjp("query", "key", "attn_mask")
def _(g: Tensor) -> Any:
    return None, None, None


def grouped(query: Any, key: Any, value: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """Heads as (heads of key, queries of each): keys and values are then broadcast and never copied."""
    heads = query.shape[-3]
    if key.shape[-3] != value.shape[-3]:
        key, value = (one.repeat_interleave(heads // one.shape[-3], -3) for one in (key, value))
    few = key.shape[-3]
    if heads % few:
        raise RuntimeError(f"enable_gqa needs {heads} heads of query to be a multiple of the {few} of key and value")
    if mask is not None and mask.dim() > 2:
        mask = mask.unsqueeze(-3) if mask.shape[-3] == 1 else mask.unflatten(-3, (few, heads // few))
    return query.unflatten(-3, (few, heads // few)), key.unsqueeze(-3), value.unsqueeze(-3), mask


def blocked(mask: Any) -> Any:
    """A mask of booleans as one to add: -inf where nothing may be seen. Another mask is as it is."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~raw(mask), -math.inf)


def _scores(query: Any, key: Any, mask: Any, is_causal: bool, scale: float | None) -> Any:
    """query key' * scale + mask, -inf above the diagonal if causal."""
    scale = _scale(query, scale)
    scores = (query * scale) @ key.mT
    if mask is not None:
        scores = scores + blocked(mask).to(scores.dtype)
    if is_causal:
        above = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu_(1)
        scores = scores.masked_fill(above, -math.inf)
    return scores


def _scale(query: Any, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _wide(*tensors: Any) -> Any:
    """Half precision as float32: the weights of many keys do not fit into 8 bits."""
    return (one.float() if one.dtype in LOW else one for one in tensors)


@primitive(broadcasts=True, extra="constant")
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    keep: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Any:
    """P value with P = softmax(S), S = query key' * scale + mask. With D = P * (g value' - sum(g * out)):

    d/dquery = D key * scale,  d/dkey = D' query * scale,  d/dvalue = P' g,  d/dmask = D.
    P is not saved but computed again from S and its logsumexp; a row without any key in sight has P = 0.
    """
    q, k, v = _wide(query, key, value)
    scores = _scores(q, k, attn_mask, is_causal, scale)
    total = torch.logsumexp(scores, -1, keepdim=True)
    total.masked_fill_(total == -math.inf, math.inf)
    weights = _drop(scores.sub_(total).exp_(), keep, dropout_p)
    return (weights @ v).to(query.dtype), total


@attention.vjp("query", "key", "value", "attn_mask")
def _(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    keep: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    out: Tensor,
    extra: Tensor,
    need: tuple[bool, ...],
) -> Any:
    g, q, k, v, out = _wide(g, query, key, value, out)
    weights = _scores(q, k, attn_mask, is_causal, scale).sub_(extra).exp_()
    of_value = (weights if keep is None else _drop(weights.clone(), keep, dropout_p)).mT @ g if need[2] else None
    if not (need[0] or need[1] or need[3]):
        return None, None, of_value, None
    of_scores = _drop(g @ v.mT, keep, dropout_p).sub_((g * out).sum(-1, keepdim=True)).mul_(weights)
    of_query = (of_scores @ k).mul_(_scale(q, scale)) if need[0] else None
    of_key = (of_scores.mT @ q).mul_(_scale(q, scale)) if need[1] else None
    return of_query, of_key, of_value, of_scores if need[3] else None


def _dropped(weights: Any, keep: Any, dropout_p: float) -> Any:
    if keep is None:
        return weights
    return weights * keep * _share(dropout_p)


def _drop(weights: Tensor, keep: Any, dropout_p: float) -> Tensor:
    """The same in place: every array of this size counts."""
    return weights if keep is None else weights.mul_(keep).mul_(_share(dropout_p))


def _share(dropout_p: float) -> float:
    return 0.0 if dropout_p == 1 else 1 / (1 - dropout_p)


@attention.restate
def composed_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    keep: Any,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Any:
    """The same, of matmul and softmax."""
    q, k, v = _wide(query, key, value)
    scores = _scores(q, k, attn_mask, is_causal, scale)
    unseeing = (raw(scores) == -math.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(unseeing, 0), -1).masked_fill(unseeing, 0)
    return (_dropped(weights, keep, dropout_p) @ v).to(query.dtype)


@attention.example
def _(make: Any) -> Any:
    return make(1, 2, 2), make(2, 3, 2), make(3, 1), make(2, 3), None, 0.0, False, None


@attention.example
def _(make: Any) -> Any:
    keep = torch.tensor([[True, False, True], [True, True, False]])
    mask = torch.tensor([[True, True, True], [False, False, False]])
    return make(2, 3), make(3, 3), make(3, 2), mask, keep, 0.5, True, 0.3
