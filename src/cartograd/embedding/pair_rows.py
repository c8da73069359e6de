"""PaCMAP's gradient by the kernel for the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import torch

from cartograd.distributed import Part
from cartograd.distributed.edges import listed_ends
from cartograd.embedding.kernel_rows import each_range, in_words
from cartograd.kernels import cpu

MODULE = "pair_layout"
KINDS = 3


class PairRows:
    """Three kinds of pairs, each from both its ends.

    Parameters
    ----------
    kinds : sequence of torch.Tensor
        Three of (n, m) int64: row i is a pair with the rows in row i.
    whose : Part, default=None
        Where those are the rows of one process.
    """

    def __init__(self, kinds: Sequence[torch.Tensor], whose: Part | None = None) -> None:
        self.own = None if whose is None else whose.own
        if whose is not None:
            self.n = whose.bounds[-1]
            indptr, columns = listed_ends(whose.ranks, whose.bounds, kinds)
            self.indptr, self.columns = indptr.numpy(), columns.to(torch.int32).numpy()
            return
        kernels = cpu.load(MODULE)
        self.n = len(kinds[0])
        others = [kind.to(torch.int32).contiguous().numpy() for kind in kinds]
        counts = numpy.zeros(KINDS * self.n, dtype=numpy.int64)
        for kind, part in enumerate(others):
            kernels.count_ends(part, kind, counts)
        self.indptr = numpy.concatenate([numpy.zeros(1, dtype=numpy.int64), numpy.cumsum(counts)])
        self.columns = numpy.empty(int(self.indptr[-1]), dtype=numpy.int32)
        places = self.indptr[:-1].copy()
        for kind, part in enumerate(others):
            kernels.list_ends(part, kind, places, self.columns)

    def gradient(
        self, Z: torch.Tensor, forces: Sequence[tuple[float, float]]
    ) -> tuple[torch.Tensor, tuple[float, ...]]:
        r"""The gradient at Z (n, c) of pairs whose losses have the derivatives a / (b + s)^2, (a, b) for each kind.

        With it, for each kind, the sum of 1 / (b + s) over its pairs; 0 where a is.
        """
        kernel, places = cpu.load(MODULE).gradient, in_words(Z).numpy()
        a, b = (numpy.array(part, dtype=numpy.float32) for part in zip(*forces, strict=True))
        out = numpy.empty_like(places)

        def piece(start: int, stop: int) -> numpy.ndarray:
            sums = numpy.zeros(KINDS)
            kernel(self.indptr, self.columns, places, out, start, stop, a, b, sums)
            return sums

        sums = sum(each_range(piece, self.n, self.own), numpy.zeros(KINDS))
        return torch.from_numpy(out)[:, : Z.shape[1]].contiguous(), tuple(
            float(part) / 2 for part in sums
        )  # each pair was met at both ends
