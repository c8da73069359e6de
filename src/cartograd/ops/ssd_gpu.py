"""Which calls of the SSD scan the GPU's kernels take; all others are torch's."""

from __future__ import annotations

import functools
from types import ModuleType

import torch
from torch import Tensor

from cartograd.kernels import gpu

KINDS = (torch.float32, torch.bfloat16, torch.float16)
LEAST, MOST = 16, 256
"""Channels of values and of the state: products are of 16 at least, and longer ones leave no room on the chip."""
MOST_RANKS = 64
"""Ranks of one step are rows of one tile."""
SHARED = 160 * 1024
"""Bytes on a multiprocessor that the kernels ask for at most."""


def gpu_kernels(v: Tensor, da: Tensor, B: Tensor, C: Tensor, initial_state: Tensor | None) -> ModuleType | None:
    """The module of kernels, `cartograd.kernels.gpu.ssd`, if it takes these inputs."""
    if v.device.type == "cpu" and not gpu.interpreted():
        return None
    given = [one for one in (v, da, B, C, initial_state) if one is not None]
    widths = v.shape[5], B.shape[5]
    fitting = (
        all(one.dtype in KINDS for one in given)
        and min(widths) >= LEAST
        and max(widths) <= MOST
        and max(v.shape[3], C.shape[3]) <= MOST_RANKS
        and v.numel() > 0
        and gpu.served(v)
        and _roomy(v.device)
    )
    return gpu.load("ssd") if fitting else None


@functools.cache
def _roomy(device: torch.device) -> bool:
    if device.type == "cpu":
        return True
    properties = torch.cuda.get_device_properties(device)
    return getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block) >= SHARED
