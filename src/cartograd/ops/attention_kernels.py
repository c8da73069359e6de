"""Scaled dot-product attention: by a kernel that never holds all weights where there is one, else by the formula."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cartograd.engine.accumulate import raw
from cartograd.engine.primitive import composite, primitive
from cartograd.ops.attention import LOW, attention, blocked, composed_attention, grouped, kept

aten = torch.ops.aten
_cpu = aten._scaled_dot_product_flash_attention_for_cpu.default
_cpu_backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_flash = aten._scaled_dot_product_flash_attention.default
_flash_backward = aten._scaled_dot_product_flash_attention_backward.default
_efficient = aten._scaled_dot_product_efficient_attention.default
_efficient_backward = aten._scaled_dot_product_efficient_attention_backward.default
_MATH, _FLASH, _EFFICIENT, _CUDNN = range(4)  # what torch._fused_sdp_choice answers


@composite("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """As `torch.nn.functional.scaled_dot_product_attention`."""
    if attn_mask is not None and not (attn_mask.dtype == torch.bool or attn_mask.is_floating_point()):
        raise RuntimeError(f"attn_mask must be bool or floating-point, got {attn_mask.dtype}")
    kernel = _kernel(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if kernel is not None:
        return fused_attention(query, key, value, attn_mask, is_causal, scale, kernel)
    in_groups = enable_gqa and not (query.shape[-3] == key.shape[-3] == value.shape[-3])
    if in_groups:
        query, key, value, attn_mask = grouped(query, key, value, attn_mask)
    keep = kept(query, key, attn_mask, dropout_p) if dropout_p > 0 else None
    out = attention(query, key, value, attn_mask, keep, dropout_p, is_causal, scale)
    return out.flatten(-4, -3) if in_groups else out


def _kernel(
    query: Any, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool, scale: Any, gqa: bool
) -> str | None:
    """The kernel for this call, `None` for the formula; as torch chooses, but a mask may have a gradient only there."""
    if query.dim() != 4 or dropout_p > 0 or (mask is not None and mask.requires_grad and torch.is_grad_enabled()):
        return None
    q, k, v = (raw(one).detach() for one in (query, key, value))
    m = None if mask is None else raw(mask).detach()
    choose: Any = torch._fused_sdp_choice
    choice = choose(q, k, v, m, dropout_p, is_causal, scale=scale, enable_gqa=gqa)
    if q.is_cpu:
        return "cpu" if choice == _FLASH else None
    if choice == _MATH or not q.is_cuda or not (q.shape[1:2] == k.shape[1:2] == v.shape[1:2]):
        return None
    widths = {q.shape[-1], v.shape[-1]}
    if choice != _EFFICIENT and m is None and q.dtype in LOW and len(widths) == 1 and q.shape[-1] % 8 == 0:
        return "flash"
    return "efficient" if all(width * q.element_size() % 16 == 0 for width in widths) else None


@primitive(extra="constant")
def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    kernel: str,
) -> Any:
    """As `attention`, for four axes and a mask without a gradient: block by block, so P is never there as a whole.

    On the CPU, key and value may have fewer heads than the query; each of them then serves a group of it.
    """
    if kernel == "flash":
        out, *saved = _flash(query, key, value, 0.0, is_causal, scale=scale)
    elif kernel == "efficient":
        out, *saved = _efficient(query, key, value, _aligned(attn_mask, query, key), True, 0.0, is_causal, scale=scale)
    else:
        out, *saved = _cpu(query, key, value, 0.0, is_causal, attn_mask=_added(attn_mask, query), scale=scale)
    return out, tuple(saved)


def _added(mask: Tensor | None, query: Tensor) -> Tensor | None:
    return None if mask is None else blocked(mask).to(query.dtype)


def _aligned(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """The mask in full, its rows 16 elements apart or a multiple of that, as the kernel wants them."""
    if mask is None:
        return None
    added, length = blocked(mask).to(query.dtype), key.shape[-2]
    added = added.expand(*added.shape[:-1], length)
    return F.pad(added, (0, -length % 16))[..., :length].expand(*query.shape[:-1], length)


@fused_attention.vjp("query", "key", "value")
def _(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    kernel: str,
    out: Tensor,
    extra: Any,
    need: tuple[bool, ...],
) -> Any:
    if kernel == "flash":
        *saved, _ = extra
        return _flash_backward(g, query, key, value, out, *saved[:5], 0.0, is_causal, *saved[5:], scale=scale)
    if kernel == "efficient":
        mask = _aligned(attn_mask, query, key)
        wanted = (*need, False)
        return _efficient_backward(g, query, key, value, mask, out, *extra, 0.0, wanted, is_causal, scale=scale)[:3]
    mask = _added(attn_mask, query)
    return _cpu_backward(g, query, key, value, out, *extra, 0.0, is_causal, attn_mask=mask, scale=scale)


@fused_attention.restate
def _(query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: float | None, kernel: str) -> Any:
    batch, heads, length, _ = query.shape
    width = value.shape[-1]
    if key.shape[1] != heads or value.shape[1] != heads:
        query, key, value, attn_mask = grouped(query, key, value, attn_mask)
    out = composed_attention(query, key, value, attn_mask, None, 0.0, is_causal, scale)
    return out.reshape(batch, heads, length, width)


@fused_attention.example
def _(make: Any) -> Any:
    mask = torch.tensor([[True, False, True], [True, True, True]])
    return make(1, 2, 2, 2), make(1, 2, 3, 2), make(1, 2, 3, 2), mask, False, None, "cpu"


@fused_attention.example
def _(make: Any) -> Any:
    return make(1, 2, 3, 2), make(1, 1, 3, 2), make(1, 1, 3, 2), None, True, 0.6, "cpu"
