"""A fit that several processes share: who has which rows, and what each finds for its own.

Every process owns a range of the rows of the map (`cartograd.distributed.row_bounds`): it searches their neighbours,
holds their edges, moves them, and after each step gets the others' new places. The estimators call these functions
where a process alone would look at all rows.
"""

from __future__ import annotations

import contextlib
import logging
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from cartograd.affinity import checks
from cartograd.affinity.data import not_negative
from cartograd.affinity.entropic_rows import solve_rows
from cartograd.affinity.fuzzy import memberships, smooth_distances
from cartograd.distributed import Part, Ranks, find_ranks, row_bounds
from cartograd.distributed.edges import own_graph
from cartograd.distributed.search import Wanted, search_own
from cartograd.embedding.labels import check_same_labels, labels_of_all
from cartograd.embedding.neighbourhood import FARTHEST, Neighbourhood
from cartograd.embedding.resuming import parameters_of, told
from cartograd.embedding.rowkeys import row_keys
from cartograd.embedding.source import Source, make_source, searchable
from cartograd.embedding.spread_source import (
    SpreadRows,
    SpreadSource,
    serves_all,
    spread_scores,
    spread_source,
    there,
    true_metric,
)
from cartograd.errors import InputError
from cartograd.neighbors import Graph
from cartograd.neighbors.intake import Given
from cartograd.neighbors.rows import Rows, SparseRows, TensorRows

if TYPE_CHECKING:
    from cartograd.embedding.base import AffinityMatcher

log = logging.getLogger("cartograd.embedding")

CHOICES = ("auto", True, False, "sharded")


@contextlib.contextmanager
def shared(model: AffinityMatcher) -> Iterator[None]:
    """A fit, with the other processes where there are any: an error in one ends it in all."""
    asked = getattr(model, "distributed", "auto")
    checks.choice(asked, "distributed", CHOICES)
    ranks = find_ranks(asked)
    if ranks is None:
        yield
        return
    model._ranks = ranks
    with ranks.one_for_all(type(model).__name__):
        yield
        model.__dict__.pop("_ranks", None)


def joined(model: AffinityMatcher, given: Given, y: Any) -> tuple[Given, Any]:
    """All rows, and all labels, of processes that were each given all or their own ones.

    Where all were given the same rows these are all there are. Otherwise each has its own, which follow each other in
    the order of the ranks; they are brought together, and what the model shows is its own part.
    """
    ranks = model._ranks
    if ranks is None:
        return given, y
    check_alike(model, ranks)
    found = _facts(ranks, given)
    if getattr(model, "distributed", "auto") != "sharded" and bool((found == found[0]).all()):
        if y is not None:
            check_same_labels(ranks, y)
        return given, y
    _check_shards(found, getattr(model, "distributed", "auto"))
    counts = found[:, 0].tolist()
    before = sum(counts[: ranks.rank])
    model._shown_rows = slice(before, before + counts[ranks.rank])
    if y is not None:
        y = labels_of_all(ranks, y)
    log.info("%d processes hold %s rows of %d", ranks.size, counts, sum(counts))
    if _stays_spread(model, given, y):
        held = [sum(counts[:rank]) for rank in range(ranks.size + 1)]
        return Given(SpreadRows(given.rows, held), given.kind, given.home), y
    log.info("every process gets all rows")
    return gathered_rows(ranks, given), y


def _stays_spread(model: AffinityMatcher, given: Given, y: Any) -> bool:
    """Whether a map can be made of rows without any process having all of them."""
    plain = given.sparse is None and model._metric() != "precomputed"
    return model._owns_rows() and plain and y is None and getattr(model, "precomputed_knn", None) is None


def source_of(model: AffinityMatcher, given: Given) -> tuple[Given, Source]:
    """The source of the rows given; where they are spread, but too few for all processes to own some, of all rows."""
    if not isinstance(given.rows, SpreadRows):
        return given, make_source(given.rows, model._metric(), model._merges())
    source = spread_source(given.rows, model._metric(), model._merges())
    if serves_all(source.bounds):
        return given, source
    assert model._ranks is not None
    given = gathered_rows(model._ranks, Given(given.rows.local, given.kind, given.home))
    return given, make_source(given.rows, model._metric(), model._merges())


def check_alike(model: AffinityMatcher, ranks: Ranks) -> None:
    """Refuse processes with different parameters: they would wait for different things of each other."""
    named = {"method": type(model).__name__, **{name: told(value) for name, value in parameters_of(model).items()}}
    sums = torch.tensor([[zlib.crc32(text.encode()) for text in named.values()]], dtype=torch.int64)
    found = ranks.gathered(sums, f"{sums.shape[1]} parameters")
    for (name, text), column in zip(named.items(), found.T, strict=True):
        other = torch.nonzero(column != column[0])[:, 0].tolist()
        if other:
            raise InputError(
                f"{name} is not the same in process 0 and process {other[0]} (here, in process {ranks.rank}, it is "
                f"{text}): give all processes the same parameters"
            )


def shared_seed(model: AffinityMatcher, seed: int) -> int:
    """The first process's seed: generators given as `random_state` may stand elsewhere in each."""
    return seed if model._ranks is None else model._ranks.agree("seeds", seed)[0][0]


def _facts(ranks: Ranks, given: Given) -> torch.Tensor:
    """(processes, 6): count, width, precision, two sums of the rows' keys, the first row's key."""
    keys = row_keys(given.rows)
    place = torch.arange(1, len(keys) + 1, device=keys.device)
    sums = [int((keys[:, 0] * place).sum()), int((keys[:, 1] ^ place).sum())]
    wide = int(given.rows.dtype == torch.float64)
    facts = [given.rows.count, given.rows.width, wide, *sums, int(keys[0, 0])]
    return ranks.gathered(torch.tensor([facts], dtype=torch.int64), "facts about the data")


def _check_shards(found: torch.Tensor, asked: Any) -> None:
    """Refuse rows that do not belong together."""
    for column, what in ((1, "columns"), (2, "precision")):
        other = torch.nonzero(found[:, column] != found[0, column])[:, 0].tolist()
        if other:
            have = [int(found[rank, column]) for rank in (0, other[0])]
            said = have if column == 1 else ["float64" if one else "float32" for one in have]
            raise InputError(
                f"process {other[0]} was given rows of {said[1]} {what}, and process 0 of {said[0]}: "
                "give all processes the same data, or each its own rows of one table"
            )
    if asked != "sharded" and bool((found[:, 5] == found[0, 5]).all()):
        raise InputError(
            f"the processes were given {found[:, 0].tolist()} rows that begin with the same row but are not the same "
            "data: give every process all rows, or each its own ones (distributed='sharded' where those begin alike)"
        )


def gathered_rows(ranks: Ranks, given: Given) -> Given:
    """The rows of all processes in each of them."""
    if isinstance(given.rows, SparseRows):
        matrix = given.rows.matrix
        dense = TensorRows(ranks.gathered(torch.from_numpy(matrix.toarray()), "sparse rows"))
        from scipy.sparse import csr_array

        whole = csr_array(dense.data.numpy())
        return Given(SparseRows(whole, given.rows.dtype, given.rows.device), given.kind, given.home)
    own = given.rows.block(0, given.rows.count)
    return Given(TensorRows(ranks.gathered(own, "rows")), given.kind, given.home)


def divided(model: AffinityMatcher, n: int) -> list[int] | None:
    """Whose rows are whose; None where a process works alone, or each makes the whole map: it is small, or is one whose
    rows cannot be moved apart from each other.
    """
    if model._ranks is None:
        return None
    bounds = row_bounds(n, model._ranks.size)
    if model._owns_rows() and all(a < b for a, b in pairwise(bounds)):
        return bounds
    log.info("each of the %d processes makes the whole map", model._ranks.size)
    return None


# what is found for own rows


def own_neighbourhood(
    model: AffinityMatcher, source: Source, k: int, found: tuple[torch.Tensor, torch.Tensor] | None
) -> Neighbourhood:
    """The k nearest rows of each row that this process owns; `found` are those of all rows, where they were given."""
    assert model._ranks is not None
    assert model._bounds is not None
    start, stop = model._bounds[model._ranks.rank], model._bounds[model._ranks.rank + 1]
    if found is None:
        indices, distances = _searched(model, source, k, slice(start, stop))
    else:
        indices, distances = (part[start:stop].to(source.rows.device) for part in found)
    last = model._ranks.gathered(distances[:, -1].to(torch.float64), "distances of the last neighbours")
    last = last[last > 0]
    scale = float(last.median()) if len(last) else 1.0
    near = (distances.to(torch.float64) / scale).clamp_(max=FARTHEST)
    return Neighbourhood(indices, near.to(distances.dtype), scale)


def _searched(model: AffinityMatcher, source: Source, k: int, own: slice) -> tuple[torch.Tensor, torch.Tensor]:
    if isinstance(source, SpreadSource):
        return source.neighbours(k, model.backend, model._seed, model.verbose)
    metric = true_metric(source.metric)
    wanted = Wanted(k, metric, "auto" if model.backend is None else model.backend, model._seed, model.verbose)
    indices, distances = search_own(searchable(source.rows), own.start, own.stop, wanted, source.rows.device)
    distances = not_negative(distances, metric)
    return indices, distances.sqrt() if metric == "sqhyperbolic" else distances


@dataclass(frozen=True)
class OwnEdges(Part):
    """What a process must know of the others' edges to let its own act as if all were its own.

    Parameters
    ----------
    ranks, bounds
        See `Part`.
    largest : float
        The largest weight of all edges.
    """

    largest: float

    def edges_before(self, count: int) -> int:
        """How many edges the processes before this one have, `count` being its own."""
        return sum(one for (one,) in self.ranks.agree("numbers of edges", count)[: self.ranks.rank])


def largest_over_all(model: AffinityMatcher, value: float) -> float:
    """The largest of the processes' numbers; the number itself where there are no others."""
    part = model._part()
    if part is None:
        return value
    return float(part.ranks.gathered(torch.tensor([value], dtype=torch.float64), "largest numbers").max())


def own_edges(model: AffinityMatcher, graph: Graph) -> OwnEdges | None:
    """The edges of this process among those of all; None where it works alone."""
    if model._ranks is None or model._bounds is None:
        return None
    largest = float(graph.weights.max()) if graph.n_edges else 0.0
    return OwnEdges(model._ranks, model._bounds, largest_over_all(model, largest))


def own_memberships(model: AffinityMatcher, near: Neighbourhood, local_connectivity: float, mix: float) -> Graph:
    """The rows of UMAP's graph that this process owns, as `UMAPAffinity` would have them."""
    assert model._ranks is not None
    assert model._bounds is not None
    distances = near.distances
    sums = model._ranks.gathered(distances.sum(1, dtype=torch.float64), "sums of distances")
    overall = float(torch.cumsum(sums, 0)[-1] / (len(sums) * (distances.shape[1] + 1)))
    weights = memberships(distances, *smooth_distances(distances, local_connectivity, overall))
    indices, weights = _by_column(near.indices, weights.to(distances.dtype))
    return own_graph(model._ranks, model._bounds, indices, weights.exp(), "union", mix)


def own_joint(model: AffinityMatcher, near: Neighbourhood, perplexity: float) -> Graph:
    """The rows of t-SNE's joint probabilities that this process owns, as `entropic_graph` would have them."""
    assert model._ranks is not None
    assert model._bounds is not None
    indices, distances = near.squared()
    logs = solve_rows(distances, perplexity) - math.log(model._bounds[-1])
    indices, logs = _by_column(indices, logs)
    return own_graph(model._ranks, model._bounds, indices, logs.exp(), "mean")


def _by_column(indices: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's edges in the order of their columns: exponentials are then taken in the order of a whole graph."""
    columns, order = torch.sort(indices, dim=1)
    return columns, values.gather(1, order)


def whole_graph(model: AffinityMatcher, graph: Graph) -> Graph:
    """The edges of all rows, in every process: for what looks at the graph as a whole."""
    part = model._part()
    if part is None:
        return graph
    log.info("every process gets all edges of the graph")
    degrees = part.whole(graph.degrees()[part.own], "degrees")
    indptr = torch.cat([degrees.new_zeros(1), torch.cumsum(degrees, 0)])
    return Graph(indptr, part.whole(graph.indices, "columns"), part.whole(graph.weights, "weights of edges"))


def start_of(model: AffinityMatcher, source: Source, init: Any) -> Any:
    """What a layout begins with; where rows are spread over processes their scores, which all get, instead of "pca"."""
    if isinstance(source, SpreadSource) and isinstance(init, str) and init == "pca":
        return spread_scores(source, model.n_components, model._seed)
    return init


def rows_to_join_by(model: AffinityMatcher, source: Source, graph: Graph) -> Rows:
    """Rows by which the pieces of a graph are joined; where they are spread, and there are pieces, those of all."""
    if not isinstance(source, SpreadSource) or graph.connected_components()[0] == 1:
        return source.rows
    log.info("every process gets all rows, to join the pieces of the graph by")
    return gathered_rows(there(), Given(source.rows, "torch", source.rows.device)).rows


@contextlib.contextmanager
def asked_together(model: AffinityMatcher) -> Iterator[None]:
    """New rows of a map whose rows are spread over processes: an error in one, such as a bad value, ends it in all."""
    placement = getattr(model, "_placement", None)
    spread = placement is not None and isinstance(placement.source, SpreadSource)
    with there().one_for_all("new rows") if spread else contextlib.nullcontext():
        yield


def placed_by_all(model: AffinityMatcher, given: Given) -> tuple[Given, slice]:
    """New rows to be placed, and which of the answers are this process's.

    Where no process has all rows of the map they place the new rows of all together.
    """
    if not isinstance(model._placement.source, SpreadSource):
        return given, slice(None)
    ranks = there()
    counts = [count for (count,) in ranks.agree("new rows", given.rows.count)]
    before = sum(counts[: ranks.rank])
    return gathered_rows(ranks, given), slice(before, before + counts[ranks.rank])
