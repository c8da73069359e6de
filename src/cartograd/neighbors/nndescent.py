"""Search by nearest-neighbour descent, through the pynndescent library (the ``[ann]`` extra)."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import torch

from cartograd.neighbors.calibrate import SAMPLE, recall_of, repaired
from cartograd.neighbors.exact import Found
from cartograd.neighbors.extras import required
from cartograd.neighbors.measure import measured
from cartograd.neighbors.problem import Problem, solve_exactly
from cartograd.neighbors.tiles import tile_rows
from cartograd.neighbors.workers import all_cores

log = logging.getLogger("cartograd.neighbors")

SERVED = ("sqeuclidean", "euclidean", "cosine", "angular", "manhattan", "hamming", "jaccard")

EFFORTS: tuple[dict[str, Any], ...] = (
    {},
    {"max_candidates": 60, "n_iters": 15, "delta": 1e-4, "epsilon": 0.35},
    {"max_candidates": 60, "n_iters": 15, "delta": 1e-4, "epsilon": 0.5, "spare": 30},
)
"""Settings for the first try and for the next ones, should recall fall short."""


def solve_by_nndescent(problem: Problem) -> Found:
    """Neighbours by pynndescent at its defaults; distances measured again from the rows themselves."""
    return _solve(problem, **EFFORTS[0])


def solve_with_recall(problem: Problem) -> Found:
    """The same with more effort, and in the end exactly, until the recall asked for is met on a sample."""
    generator = problem.generator()
    sample = torch.randperm(problem.asked.count, generator=generator)[:SAMPLE].to(problem.data.device)
    truth = solve_exactly(problem, sample)
    for effort in EFFORTS:
        found = _solve(problem, **effort)
        recall = recall_of((found[0][sample], found[1][sample]), truth)
        log.info("nndescent: recall %.3f on a sample with settings %s", recall, effort or "at their defaults")
        if recall >= problem.recall:
            return found
    log.info("nndescent stayed below recall %.2f; searching exactly", problem.recall)
    return solve_exactly(problem)


def _solve(problem: Problem, spare: int = 2, epsilon: float = 0.2, **settings: Any) -> Found:
    library = required("pynndescent", "nndescent")
    data, queries, name = _inputs(problem)
    count = min(problem.k + spare, problem.data.count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it reports rows with too few neighbours; those are searched again below
        index = library.NNDescent(
            data, metric=name, n_neighbors=count, random_state=problem.seed, verbose=problem.verbose, **settings
        )
        if problem.queries is None:
            ids, distances = index.neighbor_graph
        else:
            index.prepare()
            ids, distances = index.query(queries, k=count, epsilon=epsilon)
    device = problem.data.device
    found = torch.from_numpy(ids).to(device, torch.int64), torch.from_numpy(distances).to(device, torch.float64)
    with all_cores(device):
        return repaired(problem, *_ranked(problem, *found))


def _inputs(problem: Problem) -> tuple[Any, Any, str]:
    """The data in memory, as pynndescent wants them, and its name for the metric."""
    name = problem.metric.name
    if problem.sparse is not None:
        names = {"sqeuclidean": "euclidean", "angular": "cosine"}
        return *problem.sparse, names.get(name, name)
    data = _whole(problem.data)
    queries = data if problem.queries is None else _whole(problem.queries)
    return data, queries, name if name in ("manhattan", "hamming", "jaccard") else "euclidean"


def _whole(rows: Any) -> Any:
    tile = tile_rows(rows.width)
    parts = [rows.block(start, min(start + tile, rows.count)) for start in range(0, rows.count, tile)]
    return torch.cat(parts).to("cpu", torch.float32).numpy()


def _ranked(problem: Problem, ids: torch.Tensor, distances: torch.Tensor) -> Found:
    """Self left out by id; measured again and sorted (of sparse data: by the distances as given); ties by id."""
    gone = ids < 0
    if problem.own is not None:
        gone |= ids == problem.own[:, None]
    ids = ids.masked_fill(gone, -1)
    if problem.sparse is None:
        return measured(problem.metric, problem.data, problem.asked, ids)
    raw = _raw(problem.metric.name, distances).masked_fill_(gone, torch.inf)
    ids, order = torch.sort(ids, dim=1)
    raw, again = torch.sort(raw.gather(1, order), dim=1, stable=True)
    return ids.gather(1, again), raw


def _raw(name: str, distances: torch.Tensor) -> torch.Tensor:
    """pynndescent's distances as our raw values: squared distances, for cosine and angular twice the cosine's."""
    if name in ("euclidean", "sqeuclidean"):
        return distances.square()
    return distances * 2 if name in ("cosine", "angular") else distances
