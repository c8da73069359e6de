"""Gradients of an encoder's weights added up over processes while the backward pass is still at work.

Weights are put in buckets, those that a backward pass reaches first in the first. A hook that the pass calls when the
gradient of a weight is complete counts down its bucket; a bucket that is full is sent off, and the pass goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from cartograd.distributed.group import Ranks

BUCKET_BYTES = 1 << 20


class Bucket:
    """Weights whose gradients travel together.

    Parameters
    ----------
    weights : list of torch.Tensor
        Of one type, on one device.
    """

    def __init__(self, weights: list[torch.Tensor]) -> None:
        self.weights, self.missing = weights, len(weights)
        self.sent: tuple[torch.Tensor, Any] | None = None

    def flat(self) -> torch.Tensor:
        """All gradients one after the other; those of weights that the loss does not depend on are 0."""
        parts = [torch.zeros_like(one) if one.grad is None else one.grad for one in self.weights]
        return torch.cat([part.detach().reshape(-1) for part in parts])

    def take_back(self, flat: torch.Tensor) -> None:
        """Write sums of gradients back to the weights."""
        for one, part in zip(self.weights, flat.split([one.numel() for one in self.weights]), strict=True):
            one.grad = part.view(one.shape).to(one)


class SharedGradients:
    """The weights of an encoder that several processes train together.

    Parameters
    ----------
    ranks : Ranks
        The processes.
    weights : iterable of torch.Tensor
        In the order in which a forward pass meets them; the values of process 0 are given to all.
    bucket_bytes : int, default=1048576
        How large a bucket is at most, but for a single weight.
    """

    def __init__(self, ranks: Ranks, weights: Iterable[torch.Tensor], bucket_bytes: int = BUCKET_BYTES) -> None:
        self.ranks = ranks
        ordered = list(weights)
        with torch.no_grad():
            for number, one in enumerate(ordered):
                one.copy_(ranks.from_first(one.detach(), f"weights {number}"))
        self.buckets: list[Bucket] = []
        self._of: dict[int, Bucket] = {}
        for group in _grouped(reversed(ordered), bucket_bytes):
            bucket = Bucket(group)
            self.buckets.append(bucket)
            self._of |= {id(one): bucket for one in group}
        self.early = 0
        """Buckets that were sent before the backward pass was over, of all so far."""

    @contextlib.contextmanager
    def summed(self) -> Iterator[None]:
        """A backward pass; when the block ends, gradients are sums over all processes."""
        told = self.ranks.agree("gradients of a step", len(self.buckets), self.ranks.asked.number)
        self.ranks.heard = max(signal for _, signal in told)
        for bucket in self.buckets:
            bucket.missing, bucket.sent = len(bucket.weights), None
        hooks = [
            one.register_post_accumulate_grad_hook(self._arrived) for bucket in self.buckets for one in bucket.weights
        ]
        self._next = 0
        try:
            yield
        finally:  # where the pass has failed here, too: the others wait for every bucket, and are told afterwards
            for hook in hooks:
                hook.remove()
            self.early += self._next
            self._send(len(self.buckets))
            self._take_all_back()

    def _take_all_back(self) -> None:
        for bucket in self.buckets:
            assert bucket.sent is not None
            flat, work = bucket.sent
            self.ranks.finish(work)
            bucket.take_back(flat)

    def like_first(self, buffers: Iterable[torch.Tensor]) -> None:
        """Give all processes the first one's buffers, such as running means, which each has found from its own rows."""
        with torch.no_grad():
            for number, one in enumerate(buffers):
                one.copy_(self.ranks.from_first(one, f"buffer {number}"))

    def _arrived(self, weight: Any) -> None:
        bucket = self._of[id(weight)]
        bucket.missing -= 1
        last = self._next
        while last < len(self.buckets) and self.buckets[last].missing == 0:
            last += 1
        self._send(last)

    def _send(self, stop: int) -> None:
        """Send buckets up to `stop` off, always in their order: the others do the same."""
        while self._next < stop:
            bucket = self.buckets[self._next]
            bucket.sent = self.ranks.begin_sum(bucket.flat())
            self._next += 1


def _grouped(weights: Iterable[torch.Tensor], most: int) -> Iterator[list[torch.Tensor]]:
    group: list[torch.Tensor] = []
    size = 0
    for one in weights:
        bytes_ = one.numel() * one.element_size()
        if group and (size + bytes_ > most or one.dtype != group[0].dtype or one.device != group[0].device):
            yield group
            group, size = [], 0
        group.append(one)
        size += bytes_
    if group:
        yield group
