"""Kernels for NVIDIA GPUs, written in Triton.

A module holds the kernels of one purpose, each beside a plain torch version of the same, its twin: what the kernel is
tested against, and what runs where there is no Triton. Triton is imported only when a kernel is used: `served` says
whether a tensor can be given to kernels, `load` imports a module of them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from types import ModuleType

import torch


def served(tensor: torch.Tensor) -> bool:
    """Whether kernels can work on this tensor: it is on a GPU of compute capability 8 or more, and Triton is there."""
    return on(tensor.device)


def on(device: torch.device) -> bool:
    """Whether kernels can work on tensors of this device; on a CPU only in Triton's interpreter, for tests."""
    if device.type == "cpu":
        return interpreted() and _installed()
    return device.type == "cuda" and _installed() and _capable(device.index or 0)


def interpreted() -> bool:
    """Whether Triton was asked to interpret kernels, which then take tensors on the CPU, slowly."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def load(name: str) -> ModuleType:
    """The module of kernels with this name."""
    return importlib.import_module(f"cartograd.kernels.gpu.{name}")


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _capable(index: int) -> bool:
    return torch.version.cuda is not None and torch.cuda.get_device_capability(index)[0] >= 8
