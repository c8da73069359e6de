"""Search through an index of the faiss library (the ``[ann]`` extra)."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.core.checks import choice, count
from cartograd.errors import OptionError
from cartograd.neighbors.calibrate import repaired
from cartograd.neighbors.exact import Found
from cartograd.neighbors.extras import required
from cartograd.neighbors.measure import measured
from cartograd.neighbors.problem import Problem
from cartograd.neighbors.progress import steps
from cartograd.neighbors.rows import Rows
from cartograd.neighbors.tiles import middle, tile_rows
from cartograd.neighbors.workers import all_cores

log = logging.getLogger("cartograd.neighbors")

INDEX_TYPES = ("Flat", "IVF", "IVFPQ", "HNSW")
CHOSEN_BY_SIZE = ("nlist", "nprobe", "M")
"""Settings that may be None."""
MOST = {
    "nlist": 1 << 20,
    "nprobe": 1 << 20,
    "M": 1 << 12,
    "nbits": 16,
    "efConstruction": 10_000,
    "efSearch": 100_000,
    "refine": 1_000,
}
"""The largest values: faiss allocates and computes by them without a question."""


@dataclass(frozen=True)
class FaissConfig:
    """Which faiss index, and its settings. Never written to; None means "from the size of the data".

    Parameters
    ----------
    index_type : {"Flat", "IVF", "IVFPQ", "HNSW"}, default="Flat"
        Exact search; inverted lists; inverted lists of compressed rows; a navigable graph.
    nlist : int, default=None
        Inverted lists (IVF, IVFPQ). None: about 2 sqrt(n), with 40 rows or more in each.
    nprobe : int, default=None
        Lists looked into for a query (IVF, IVFPQ). None: an 8th of them, 8 at least.
    M : int, default=None
        IVFPQ: pieces a row is compressed into, a divisor of its width; None: the largest up to half the width and 96.
        HNSW: links per row; None: 32.
    nbits : int, default=8
        Bits per piece (IVFPQ).
    efConstruction : int, default=80
        Candidates while the graph is built (HNSW).
    efSearch : int, default=64
        Candidates while it is searched, k at least (HNSW).
    refine : int, default=4
        IVFPQ hands over so many times k candidates, to be ranked by exact distances.

    Examples
    --------
    >>> FaissConfig(index_type="IVF", nprobe=16)
    FaissConfig(index_type='IVF', nlist=None, nprobe=16, M=None, nbits=8, efConstruction=80, efSearch=64, refine=4)
    """

    index_type: str = "Flat"
    nlist: int | None = None
    nprobe: int | None = None
    M: int | None = None
    nbits: int = 8
    efConstruction: int = 80
    efSearch: int = 64
    refine: int = 4

    def __post_init__(self) -> None:
        choice(self.index_type, "index_type", INDEX_TYPES)
        for name, most in MOST.items():
            value = getattr(self, name)
            if value is not None or name not in CHOSEN_BY_SIZE:
                count(value, f"FaissConfig: {name}", 1, most)


def solve_by_faiss(problem: Problem, config: FaissConfig) -> Found:
    """Neighbours by a faiss index; distances measured again from the rows themselves."""
    faiss = required("faiss", "faiss")
    centre = middle(problem.data)
    index = _built(faiss, problem, config, centre)
    wanted = problem.k * (config.refine if config.index_type == "IVFPQ" else 1) + 4
    wanted = min(wanted, problem.data.count)
    ids = torch.empty(problem.asked.count, wanted, dtype=torch.int64, device=problem.data.device)
    starts = range(0, problem.asked.count, tile_rows(problem.data.width))
    for start in steps(starts, len(starts), "neighbours, faiss", problem.verbose):
        block = _host(problem.asked, start, centre)
        ids[start : start + len(block)] = torch.from_numpy(index.search(block, wanted)[1]).to(ids.device)
    if problem.own is not None:
        ids.masked_fill_(ids == problem.own[:, None], -1)
    with all_cores(problem.data.device):
        return repaired(problem, *measured(problem.metric, problem.data, problem.asked, ids))


def _built(faiss: Any, problem: Problem, config: FaissConfig, centre: torch.Tensor) -> Any:
    index = _empty(faiss, problem, config)
    if not index.is_trained:
        rows = torch.randperm(problem.data.count, generator=problem.generator())[
            : 256 * max(index.nlist, 1 << config.nbits)
        ]
        sample = problem.data.take(rows.sort().values.to(problem.data.device)).sub_(centre)
        index.train(sample.to("cpu", torch.float32).numpy())
    for start in range(0, problem.data.count, tile_rows(problem.data.width)):
        index.add(_host(problem.data, start, centre))
    return index


def _empty(faiss: Any, problem: Problem, config: FaissConfig) -> Any:
    n, width = problem.data.count, problem.data.width
    if config.index_type == "Flat":
        return faiss.IndexFlatL2(width)
    if config.index_type == "HNSW":
        index = faiss.IndexHNSWFlat(width, config.M or 32)
        index.hnsw.efConstruction = config.efConstruction
        index.hnsw.efSearch = max(config.efSearch, problem.k + 4)
        return index
    nlist = config.nlist or max(1, min(round(2 * math.sqrt(n)), n // 40))
    if nlist > n:
        raise OptionError(f"FaissConfig: nlist={nlist} is more than the {n} rows; use fewer lists")
    lists = faiss.IndexFlatL2(width)
    if config.index_type == "IVF":
        index = faiss.IndexIVFFlat(lists, width, nlist)
    else:
        index = faiss.IndexIVFPQ(lists, width, nlist, _pieces(width, config.M), _bits(n, config.nbits))
        _quiet(index.pq.cp, problem.seed)
    _quiet(index.cp, problem.seed)
    index.nprobe = min(nlist, config.nprobe or max(8, nlist // 8))
    return index


def _quiet(clustering: Any, seed: int) -> None:
    clustering.min_points_per_centroid = 1  # it would print a warning to the terminal
    clustering.seed = seed % (1 << 31)


def _pieces(width: int, wanted: int | None) -> int:
    divisors = [m for m in range(1, width + 1) if width % m == 0]
    if wanted is None:
        return max(m for m in divisors if m <= max(1, min(width // 2, 96)))
    if wanted not in divisors:
        raise OptionError(f"FaissConfig: M={wanted} does not divide the {width} columns; possible are {divisors}")
    return wanted


def _bits(n: int, bits: int) -> int:
    if n < 1 << bits:
        raise OptionError(
            f"FaissConfig: nbits={bits} needs {1 << bits} rows or more to train, got {n}; use index_type='Flat'"
        )
    return bits


def _host(rows: Rows, start: int, centre: torch.Tensor) -> Any:
    stop = min(start + tile_rows(rows.width), rows.count)
    return (rows.block(start, stop) - centre).to("cpu", torch.float32).contiguous().numpy()
