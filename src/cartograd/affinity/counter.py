r"""Random numbers by counting: the t-th number of a stream is a hash of (seed, purpose, t).

The same on every device, for any number of threads, and whatever else the process draws. The hash is SplitMix64's
(Steele, Lea and Flood, 2014): a Weyl sequence through two rounds of xor-shift and multiply.
"""

from __future__ import annotations

import zlib

import torch

_WEYL = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def stream(seed: int, purpose: str, step: int = 0) -> int:
    """The key of the stream for this purpose and step, 64 bits."""
    key = _hash_int((seed & _MASK) + _WEYL)
    key = _hash_int(key ^ zlib.crc32(purpose.encode()))
    return _hash_int(key + (step + 1) * _WEYL)


def uniform(key: int, shape: tuple[int, ...], device: torch.device, first: int = 0) -> torch.Tensor:
    """float64 numbers of the stream from its number `first` on, at least 0 and below 1, with 53 random bits."""
    total = 1
    for length in shape:
        total *= length
    counter = torch.arange(first + 1, first + 1 + total, dtype=torch.int64, device=device)
    bits = _hash(counter * _signed(_WEYL) + _signed(key))
    return (_shifted(bits, 11).to(torch.float64) * 2.0**-53).reshape(shape)


def integers(key: int, high: torch.Tensor | int, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """int64 numbers of the stream, at least 0 and below `high` (a number, or one that broadcasts to `shape`)."""
    return (uniform(key, shape, device) * high).to(torch.int64)


_MASK = (1 << 64) - 1


def _hash_int(z: int) -> int:
    z &= _MASK
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _shifted(z: torch.Tensor, by: int) -> torch.Tensor:
    """z >> by of an unsigned number: int64 shifts drag the sign bit along."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def _hash(z: torch.Tensor) -> torch.Tensor:
    z = (z ^ _shifted(z, 30)) * _signed(_FIRST)
    z = (z ^ _shifted(z, 27)) * _signed(_SECOND)
    return z ^ _shifted(z, 31)
