"""`search`: one function for all ways to find neighbours."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy
import torch

from cartograd.core.checks import show
from cartograd.engine import no_grad
from cartograd.errors import OptionError, UnsupportedError
from cartograd.neighbors import fused, narrowed, precomputed, validate
from cartograd.neighbors.calibrate import solve_by_cells
from cartograd.neighbors.default_device import device_or_default
from cartograd.neighbors.distances import KNOWN, METRICS, PRODUCT_METRICS
from cartograd.neighbors.exact import Found
from cartograd.neighbors.extras import available
from cartograd.neighbors.faiss_index import FaissConfig, solve_by_faiss
from cartograd.neighbors.intake import Given, intake
from cartograd.neighbors.nndescent import SERVED as NNDESCENT_METRICS
from cartograd.neighbors.nndescent import solve_by_nndescent, solve_with_recall
from cartograd.neighbors.precision import full_precision
from cartograd.neighbors.problem import Problem, solve_exactly
from cartograd.neighbors.ready import make_ready
from cartograd.neighbors.sparse_input import as_csr

log = logging.getLogger("cartograd.neighbors")

EXACT_UP_TO = 16_000
EXACT_UP_TO_ON_GPU = 150_000
EXACT_UP_TO_FUSED = 2_000_000
"""`auto` searches exactly where n rows times m queries is at most the square of this; the last where one kernel does it
and rows have up to 128 columns."""


def search(
    X: Any,
    k: int,
    *,
    metric: str | Callable[[Any, Any], Any] = "euclidean",
    backend: str | FaissConfig | None = "auto",
    queries: Any = None,
    exclude_self: bool | None = None,
    device: torch.device | str | None = None,
    random_state: Any = None,
    recall: float = 0.95,
    verbose: bool = False,
) -> tuple[Any, Any]:
    """Find the k nearest rows of every row.

    Parameters
    ----------
    X : array-like, (n, d)
        NumPy, torch (CPU or CUDA) or cartograd array, nested list, pandas or polars frame, ``scipy`` CSR matrix,
        ``numpy.memmap`` (read in blocks) or ``torch.utils.data.DataLoader`` (read once, batch by batch; the ids are
        the order in which it gives the rows). With ``metric="precomputed"`` the matrix of all distances, (n, n), or a
        sparse one of some.
    k : int
        How many neighbours; at most n - 1, or n where a row may be its own neighbour.
    metric : str or callable, default="euclidean"
        A name of `cartograd.neighbors.distances`, "precomputed", or a function of two Tensors: of shapes (r, 1, d) and
        (1, m, d), giving (r, m), or of one pair of rows (d,), giving a number.
    backend : str or FaissConfig, default="auto"
        "exact", "cells" (k-means cells; Euclidean and cosine metrics), "faiss", "nndescent", or "auto": exact up to
        about 16,000 rows (150,000 on a GPU, 2,000,000 there with Triton), then cells, or nndescent for metrics and
        sparse data that cells does not serve.
    queries : array-like, (m, d), default=None
        Rows whose neighbours among X are sought; None for those of X itself. With ``metric="precomputed"`` their
        distances to all rows of X, (m, n).
    exclude_self : bool, default=None
        Whether row i is left out of its own neighbours, by id. None: yes, unless `queries` are given; if True with
        `queries`, query i is row i of X.
    device : torch.device or str, default=None
        Where to compute; None for the device that the environment variable CARTOGRAD_DEVICE names, or else where the
        data are.
    random_state : int, numpy.random.RandomState or numpy.random.Generator, default=None
        Seed of whatever is random; None for a fixed one. The same seed gives the same neighbours at any thread count.
    recall : float, default=0.95
        The share of true neighbours that "cells" and "auto" must find, estimated on a sample of rows.
    verbose : bool, default=False
        Whether to show progress bars.

    Returns
    -------
    indices : (n, k) int64
        Neighbours of each row, nearest first; of equally near ones the smaller index first.
    distances : (n, k)
        Their distances, float32, or float64 for float64 data. Both are of the kind of X, on its device.

    Examples
    --------
    >>> import numpy
    >>> indices, distances = search(numpy.array([[0.0], [1.0], [3.0]]), k=1)
    >>> indices.ravel().tolist(), distances.ravel().tolist()
    ([1, 0, 1], [1.0, 1.0, 2.0])
    """
    validate.check_metric(metric, KNOWN)
    config = backend if isinstance(backend, FaissConfig) else FaissConfig()
    name = "faiss" if isinstance(backend, FaissConfig) else "auto" if backend is None else backend
    validate.check_backend(name)
    validate.check_share(recall)
    seed = seed_of(random_state)
    device = device_or_default(device)
    given = intake(X, "X", device)
    if queries is not None and metric != "precomputed":
        queries = _like(queries, given)
    asked = None if queries is None else intake(queries, "queries", device or given.rows.device)
    without_self = asked is None if exclude_self is None else bool(exclude_self)
    k = validate.check_count(k, given.rows.count, without_self)
    validate.check_queries(given.rows, None if asked is None else asked.rows, metric == "precomputed", without_self)
    with no_grad(), torch.no_grad(), full_precision():
        if metric == "precomputed":
            validate.check_served(name, metric, ("precomputed",) if name in ("auto", "exact") else PRODUCT_METRICS)
            ids, distances = _read_off(given, asked, k, without_self)
        else:
            ready = make_ready(given, asked, metric, ("X", "queries"))
            count = (ready.other or ready.data).count
            own = torch.arange(count, device=ready.data.device) if without_self else None
            sparse = None if given.sparse is None else _scaled(given.sparse, (asked or given).sparse, ready.scale)
            problem = Problem(ready.data, ready.other, own, k, ready.metric, recall, seed, verbose, sparse)
            ids, raw = _solve(problem, name, config)
            distances = ready.distances(raw)
    answer = (given if asked is None else asked).answer
    return answer(ids), answer(distances)


def _like(queries: Any, given: Given) -> Any:
    """Sparse queries for sparse data, dense ones for dense data."""
    if given.sparse is None and hasattr(queries, "tocsr"):
        matrix = as_csr(queries, "queries")
        validate.check_width(matrix.shape[1], given.rows.width)
        return matrix.toarray()
    if given.sparse is None:
        return queries
    if hasattr(queries, "tocsr"):
        return queries
    from scipy.sparse import csr_array

    return csr_array(validate.array_from(queries.cpu() if isinstance(queries, torch.Tensor) else queries, "queries"))


def _scaled(data: Any, queries: Any, scale: float) -> tuple[Any, Any]:
    """Both matrices times a power of two; the same one twice where they are the same."""
    if scale == 1.0:
        return data, queries
    scaled = data.astype(numpy.float64) * scale
    return scaled, scaled if queries is data else queries.astype(numpy.float64) * scale


def _read_off(given: Given, asked: Given | None, k: int, without_self: bool) -> tuple[torch.Tensor, torch.Tensor]:
    validate.check_square((given.rows.count, given.rows.width))
    if given.sparse is None:
        precomputed.check_matrix(given.rows, "X", square=True)
    source = given if asked is None else asked
    if source.sparse is not None:  # pairs that are not stored are no neighbours, whatever the other matrix is
        return precomputed.from_sparse(source.sparse, k, without_self)
    if asked is not None:
        precomputed.check_matrix(asked.rows, "queries", square=False)
    return precomputed.from_matrix(source.rows, k, without_self)


def _solve(problem: Problem, backend: str, config: FaissConfig) -> Found:
    chosen = _choose(problem) if backend == "auto" else solve_exactly if backend == "exact" else None
    if chosen is not None or backend == "cells":
        rounded = None if problem.sparse is not None else narrowed.narrow(problem)
        if rounded is not None:
            candidates = (chosen or solve_by_cells)(rounded[0])[0]
            found = narrowed.widen(problem, rounded[1], candidates, exact=chosen is solve_exactly)
            if found is not None:
                return found
    if chosen is not None:
        return chosen(problem)
    served = NNDESCENT_METRICS if backend == "nndescent" else PRODUCT_METRICS
    named = problem.metric.name if problem.metric in METRICS.values() else problem.metric.tile
    validate.check_served(backend, named, served)
    if backend == "nndescent":
        return solve_by_nndescent(problem)
    if problem.sparse is not None:
        raise UnsupportedError(
            f"backend {backend!r} takes dense data; use 'exact', 'nndescent' or 'auto' for sparse data"
        )
    return solve_by_faiss(problem, config) if backend == "faiss" else solve_by_cells(problem)


def _choose(problem: Problem) -> Callable[[Problem], Found]:
    """What `auto` does with this search, with a line in the log that says so."""
    n, m, name = problem.data.count, problem.asked.count, problem.metric.name
    said = f"auto: {n} rows, {m} queries, metric {name}"
    most = EXACT_UP_TO if problem.data.device.type == "cpu" else EXACT_UP_TO_ON_GPU
    if fused.serves(problem.data, problem.k, problem.metric, problem.queries):
        most = int(EXACT_UP_TO_FUSED / max(problem.data.width / 128, 1) ** 0.5)
    if n * m <= most**2:
        log.info("%s: searching exactly", said)
        return solve_exactly
    if name in PRODUCT_METRICS and problem.sparse is None:
        log.info("%s: cells", said)
        return solve_by_cells
    if name not in NNDESCENT_METRICS:
        log.info("%s: searching exactly, since no approximate backend serves this metric", said)
        return solve_exactly
    if not available("pynndescent"):
        log.info('%s: searching exactly; pip install "cartograd[ann]" brings the faster nndescent', said)
        return solve_exactly
    log.info("%s: nndescent", said)
    return solve_with_recall


def check_seed(random_state: Any, name: str = "random_state") -> None:
    """Refuse what is no seed; draw nothing from a generator."""
    if random_state is None or isinstance(random_state, (numpy.random.RandomState, numpy.random.Generator)):
        return
    if isinstance(random_state, (bool, numpy.bool_)) or not isinstance(random_state, (int, numpy.integer)):
        raise UnsupportedError(
            f"{name} must be a whole number, a RandomState, a Generator or None, got {show(random_state)}"
        )
    if random_state < 0:
        raise OptionError(f"{name} must not be negative, got {show(int(random_state))}")


def seed_of(random_state: Any) -> int:
    """A seed between 0 and 2^31 - 1; a fixed one for None."""
    if random_state is None:
        return 0
    if isinstance(random_state, numpy.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, numpy.random.Generator):
        return int(random_state.integers(2**31 - 1))
    check_seed(random_state)
    return int(random_state) % (2**31)
