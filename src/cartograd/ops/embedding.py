"""Looking up rows of a table by their number, one by one or reduced in bags."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.fallback import run_torch
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.tensor import Tensor as Recorded
from cartograd.engine.transparent import transparent

_dense_backward = torch.ops.aten.embedding_dense_backward.default
_bag = torch.ops.aten._embedding_bag.default
_bag_backward = torch.ops.aten._embedding_bag_backward.default
_bag_weights_backward = torch.ops.aten._embedding_bag_per_sample_weights_backward.default
_MEAN, _MAX = 1, 2

_checked_embedding = transparent(F.embedding)  # looks at the options, then calls torch.embedding
composite(F.embedding_bag)(transparent(F.embedding_bag))  # likewise torch.embedding_bag


@primitive(torch.embedding, extra="constant")
def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False) -> Any:
    """weight[indices].   d/dweight = g, added up row by row

    The row `padding_idx` gets no gradient. With `scale_grad_by_freq` a row's gradient is divided by how often it was
    looked up.
    """
    return torch.embedding(weight, indices), weight.shape[0]


@embedding.vjp("weight")
def _(g: Any, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, extra: int) -> Any:
    g = _scaled_by_frequency(g, indices, extra) if scale_grad_by_freq else g
    return _sum_by_row(g, indices, extra, padding_idx)


@embedding.example
def _(make: Any) -> Any:
    return make(4, 2), torch.tensor([[3, 0], [1, 3]])


@composite(torch.embedding)
def any_embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    """`embedding`; for a sparse gradient, torch's derivative."""
    if sparse:
        return run_torch(torch.embedding, (weight, indices, padding_idx, scale_grad_by_freq, sparse), {})
    return embedding(weight, indices, padding_idx, scale_grad_by_freq)


@composite(F.embedding)
def functional_embedding(input: Any, weight: Any, padding_idx: int | None = None, **options: Any) -> Any:
    """`embedding` as ``torch.nn.functional`` spells it; straight to the op where no option needs a look."""
    if padding_idx is None and not any(options.get(name) for name in ("max_norm", "scale_grad_by_freq", "sparse")):
        return embedding(weight, input)
    return _checked_embedding(input, weight, padding_idx, **options)


def _sum_by_row(g: Any, indices: Tensor, count: int, padding_idx: int) -> Any:
    """`g` added up by row number, of `count` rows. On the CPU torch's own kernel is slow: it scans all indices."""
    if isinstance(g, Recorded) or not g.is_cpu:
        return _dense_backward(g, indices, count, padding_idx, False)
    made = g.new_zeros(count, g.shape[-1]).index_add_(0, indices.reshape(-1), g.reshape(-1, g.shape[-1]))
    if padding_idx >= 0:
        made[padding_idx] = 0
    return made


def _scaled_by_frequency(g: Any, indices: Tensor, count: int) -> Any:
    """`g` divided by how often its row was looked up."""
    return g / torch.bincount(indices.reshape(-1), minlength=count)[indices].unsqueeze(-1)


@primitive(_bag, multiple=True, extra="constant")
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Sums (mode 0), means (1) or maxima (2) of the rows weight[indices[offsets[b] : offsets[b + 1]]] for each bag b.

    d/dweight = g of the bag, times the sample's weight, divided by the size of the bag for the mean, added up row by
    row; for the maximum g goes to the winning row. d/dper_sample_weights = g of the bag times the row.
    """
    indices, offsets, per_sample_weights = _contiguous(indices, offsets, per_sample_weights)
    options = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
    outs = _bag(weight, indices, offsets, *options)
    return outs, Bags(outs[1], outs[2], outs[3], scale_grad_by_freq, mode, padding_idx, weight.shape[0])


def _contiguous(*given: Any) -> tuple[Any, ...]:
    """Return tensors as the kernels read them: as if they were contiguous, whatever their strides."""
    return tuple(None if one is None else one.contiguous() for one in given)


class Bags(NamedTuple):
    """What is known of the bags once they are reduced."""

    bag_of_sample: Tensor
    sizes: Tensor
    winners: Tensor
    scale_grad_by_freq: bool
    mode: int
    padding_idx: int
    rows: int


@embedding_bag.vjp("weight")
def _(g: Any, indices: Tensor, offsets: Tensor, per_sample_weights: Any, extra: Any) -> Any:
    g = g[0]
    if isinstance(g, Recorded) or extra.scale_grad_by_freq:  # torch's kernel takes the counts of other rows
        return _bag_gradient(g, indices, offsets, per_sample_weights, extra)
    indices, offsets, per_sample_weights = _contiguous(indices, offsets, per_sample_weights)
    places = (indices, offsets, extra.bag_of_sample, extra.sizes, extra.winners)
    return _bag_backward(g, *places, extra.rows, False, extra.mode, False, per_sample_weights, extra.padding_idx)


def _spread(g: Any, indices: Tensor, offsets: Tensor) -> Any:
    """For each sample the gradient of its bag."""
    places = torch.arange(indices.shape[0], device=indices.device, dtype=offsets.dtype)
    return torch.index_select(g, 0, torch.searchsorted(offsets, places, right=True) - 1)


def _bag_gradient(g: Any, indices: Tensor, offsets: Tensor, per_sample_weights: Any, bags: Bags) -> Any:
    """What the kernel computes, as ops that can be differentiated again."""
    if bags.mode == _MAX:
        g = g.masked_fill(bags.sizes.unsqueeze(-1) == 0, 0)
        return torch.zeros(bags.rows, g.shape[-1], dtype=g.dtype, device=g.device).scatter_add(0, bags.winners, g)
    if bags.mode == _MEAN:
        g = g / bags.sizes.clamp(min=1).unsqueeze(-1)
    g = _spread(g, indices, offsets)
    g = g if per_sample_weights is None else g * per_sample_weights.unsqueeze(-1)
    g = _scaled_by_frequency(g, indices, bags.rows) if bags.scale_grad_by_freq else g
    return _sum_by_row(g, indices, bags.rows, bags.padding_idx)


@embedding_bag.vjp("per_sample_weights")
def _(g: Any, weight: Any, indices: Tensor, offsets: Tensor, extra: Any) -> Any:
    g = g[0]
    if not isinstance(g, Recorded):
        places = (*_contiguous(indices, offsets), extra.bag_of_sample)
        return _bag_weights_backward(g, weight, *places, extra.mode, extra.padding_idx)
    products = (_spread(g, indices, offsets) * torch.index_select(weight, 0, indices)).sum(-1)
    return products.masked_fill(indices == extra.padding_idx, 0)


@embedding_bag.example
def _(make: Any) -> Any:
    return make(4, 2), torch.tensor([3, 0, 1, 3]), torch.tensor([0, 3, 3]), False, 0, False, make(4)


@embedding_bag.example
def _(make: Any) -> Any:
    return make(4, 2), torch.tensor([3, 0, 1, 3]), torch.tensor([0, 3, 3]), False, _MEAN


@embedding_bag.example
def _(make: Any) -> Any:
    return make(4, 2), torch.tensor([3, 0, 1, 3]), torch.tensor([0, 3, 3, 4]), False, _MAX, False, None, True


@composite(torch.embedding_bag)
def any_embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """`embedding_bag` with torch's own counting of rows from the end; for a sparse gradient, torch's derivative."""
    rest = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
    if sparse or (padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]):
        return run_torch(torch.embedding_bag, (weight, indices, offsets, *rest), {})
    padding_idx = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return embedding_bag(weight, indices, offsets, *rest[:-1], padding_idx)
