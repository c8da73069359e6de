r"""Random numbers by counting: the t-th number of a stream is a hash of (seed, purpose, t).

The same on every device, for any number of threads, and whatever else the process draws. The hash is SplitMix64's
(Steele, Lea and Flood, 2014): a Weyl sequence through two rounds of xor-shift and multiply.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy
import torch

_WEYL = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def stream(seed: int, purpose: str, step: int = 0) -> int:
    """The key of the stream for this purpose and step, 64 bits."""
    key = _hash_int((seed & _MASK) + _WEYL)
    key = _hash_int(key ^ zlib.crc32(purpose.encode()))
    return _hash_int(key + (step + 1) * _WEYL)


def later(key: int, places: int) -> int:
    """The key of a stream whose number t is number ``t + places`` of this one."""
    return (key + places * _WEYL) & _MASK


def signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def uniform(key: int, shape: tuple[int, ...], device: torch.device, first: int = 0) -> torch.Tensor:
    """float64 numbers of the stream from its number `first` on, at least 0 and below 1, with 53 random bits."""
    total = math.prod(shape)
    return at(key, torch.arange(first, first + total, dtype=torch.int64, device=device)).reshape(shape)


def at(key: int, places: torch.Tensor) -> torch.Tensor:
    """The numbers of the stream at these places (int64), as `uniform` gives them."""
    return _shifted(hashed(key, places), 11).to(torch.float64) * 2.0**-53


def hashed(key: int, places: torch.Tensor) -> torch.Tensor:
    """64 random bits for each of these places (int64) of the stream."""
    z = places + 1
    if z.device.type == "cpu":
        _hash_array(_unsigned(z), key)
        return z
    return _hash(z.mul_(signed(_WEYL)).add_(signed(key)))


def below(key: int, places: torch.Tensor, high: torch.Tensor | int) -> torch.Tensor:
    """int64 numbers at these places of the stream, at least 0 and below `high`; off the even by at most high 2^-32."""
    z = hashed(key, places)
    if isinstance(high, int) and z.device.type == "cpu":
        bits = _unsigned(z)
        bits >>= numpy.uint64(32)
        bits *= numpy.uint64(high)
        bits >>= numpy.uint64(32)
        return z
    return (z >> 32).bitwise_and_((1 << 32) - 1).mul_(high).bitwise_right_shift_(32)


def small_integers(key: int, high: torch.Tensor, shape: tuple[int, int], first: int) -> torch.Tensor:
    """int64 numbers at least 0 and below `high` (r, 1), which is at most 2^24: two of each 64 random bits.

    `first` is the number of the first row, so that rows can be drawn in pieces; off the even by at most high 2^-31.
    """
    rows, columns = shape
    half = (columns + 1) // 2
    bits = hashed(key, torch.arange(first * half, (first + rows) * half, device=high.device)).reshape(rows, half)
    both = torch.cat([_shifted(bits, 33), bits & ((1 << 31) - 1)], 1)
    return both[:, :columns].mul_(high).bitwise_right_shift_(31)


def normal(key: int, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """float64 numbers of the standard normal distribution (Box and Muller)."""
    total = math.prod(shape)
    first, second = uniform(key, (2, total), device)
    return (torch.sqrt(-2 * torch.log1p(-first)) * torch.cos(2 * math.pi * second)).reshape(shape)


def integers(key: int, high: torch.Tensor | int, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """int64 numbers of the stream, at least 0 and below `high` (a number, or one that broadcasts to `shape`)."""
    return (uniform(key, shape, device) * high).to(torch.int64)


_MASK = (1 << 64) - 1


def _hash_int(z: int) -> int:
    z &= _MASK
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)


def _shifted(z: torch.Tensor, by: int) -> torch.Tensor:
    """z >> by of an unsigned number: int64 shifts drag the sign bit along."""
    return (z >> by).bitwise_and_((1 << (64 - by)) - 1)


def _hash(z: torch.Tensor) -> torch.Tensor:
    """The hash of int64 numbers, which are overwritten."""
    z.bitwise_xor_(_shifted(z, 30)).mul_(signed(_FIRST))
    z.bitwise_xor_(_shifted(z, 27)).mul_(signed(_SECOND))
    return z.bitwise_xor_(_shifted(z, 31))


def _unsigned(z: torch.Tensor) -> Any:
    """The same numbers for NumPy, whose products of them are three times as fast as torch's."""
    return z.numpy().view(numpy.uint64)


def _hash_array(z: Any, key: int) -> None:
    """The hash of `key` + z Weyl's number, in place."""
    z *= numpy.uint64(_WEYL)
    z += numpy.uint64(key)
    z ^= z >> numpy.uint64(30)
    z *= numpy.uint64(_FIRST)
    z ^= z >> numpy.uint64(27)
    z *= numpy.uint64(_SECOND)
    z ^= z >> numpy.uint64(31)
