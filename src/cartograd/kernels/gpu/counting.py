"""Random numbers by counting, for kernels and for their twins: SplitMix64's hash of a key and a counter.

The same hash as `cartograd.affinity.counter`: number t of the stream with key k is the hash of k + (t + 1) w.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_WEYL = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
WEYL, FIRST, SECOND = tl.constexpr(_WEYL), tl.constexpr(_FIRST), tl.constexpr(_SECOND)


@triton.jit
def hashed(key, counter):
    """64 random bits (uint64) for each counter (int64) of the stream with this key (int64)."""
    z = key.to(tl.uint64) + (counter + 1).to(tl.uint64) * WEYL
    z = (z ^ (z >> 30)) * FIRST
    z = (z ^ (z >> 27)) * SECOND
    return z ^ (z >> 31)


@triton.jit
def below(bits, high):
    """32 random bits (in a uint64) as a number from 0 to high - 1 (int64)."""
    return ((bits & 0xFFFFFFFF) * high.to(tl.uint64)) >> 32


def hashed_in_torch(key: int, counter: torch.Tensor) -> torch.Tensor:
    """The twin of `hashed`: the same 64 bits as int64."""
    z = (counter + 1) * _signed(_WEYL) + _signed(key)
    z = (z ^ _shifted(z, 30)) * _signed(_FIRST)
    z = (z ^ _shifted(z, 27)) * _signed(_SECOND)
    return z ^ _shifted(z, 31)


def below_in_torch(bits: torch.Tensor, high: int) -> torch.Tensor:
    """The twin of `below`, for `high` below 2^31."""
    return _shifted((bits & 0xFFFFFFFF) * high, 32)


def _shifted(z: torch.Tensor, by: int) -> torch.Tensor:
    """z >> by of an unsigned number."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
