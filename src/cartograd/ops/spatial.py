"""Convolutions and pools in either layout: torch's functions, with the keyword `layout`.

``layout="NHWC"`` (of one axis "NLC", of three "NDHWC") takes and gives the channels last. Weights, and the indices that
maxima come with, keep torch's own meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cartograd.ops import conv, maxpool, pool
from cartograd.ops.layout import channels_last

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
]


def _max_pool(values: Callable[..., Any], both: Callable[..., Any], dims: int) -> Callable[..., Any]:
    def max_pool(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        op = both if return_indices else values
        return op(input, kernel_size, stride, padding, dilation, ceil_mode)

    return channels_last(_named(max_pool, values), dims)


def _adaptive_max_pool(values: Callable[..., Any], both: Callable[..., Any], dims: int) -> Callable[..., Any]:
    def adaptive_max_pool(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        return (both if return_indices else values)(input, output_size)

    return channels_last(_named(adaptive_max_pool, values), dims)


def _named(function: Callable[..., Any], after: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__, function.__doc__ = after.__name__, after.__doc__
    return function


conv1d = channels_last(conv.conv1d, 1)
conv2d = channels_last(conv.conv2d, 2)
conv3d = channels_last(conv.conv3d, 3)
conv_transpose1d = channels_last(conv.conv_transpose1d, 1)
conv_transpose2d = channels_last(conv.conv_transpose2d, 2)
conv_transpose3d = channels_last(conv.conv_transpose3d, 3)
max_pool1d = _max_pool(maxpool.max_pool1d, maxpool.max_pool1d_with_indices, 1)
max_pool2d = _max_pool(maxpool.max_pool2d, maxpool.max_pool2d_with_indices, 2)
max_pool3d = _max_pool(maxpool.max_pool3d, maxpool.max_pool3d_with_indices, 3)
avg_pool1d = channels_last(pool.avg_pool1d, 1)
avg_pool2d = channels_last(pool.avg_pool2d, 2)
avg_pool3d = channels_last(pool.avg_pool3d, 3)
adaptive_avg_pool1d = channels_last(pool.adaptive_avg_pool1d, 1)
adaptive_avg_pool2d = channels_last(pool.adaptive_avg_pool2d, 2)
adaptive_avg_pool3d = channels_last(pool.adaptive_avg_pool3d, 3)
adaptive_max_pool1d = _adaptive_max_pool(maxpool.adaptive_max_pool1d, maxpool.adaptive_max_pool1d_with_indices, 1)
adaptive_max_pool2d = _adaptive_max_pool(maxpool.adaptive_max_pool2d, maxpool.adaptive_max_pool2d_with_indices, 2)
adaptive_max_pool3d = _adaptive_max_pool(maxpool.adaptive_max_pool3d, maxpool.adaptive_max_pool3d_with_indices, 3)
