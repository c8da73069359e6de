"""A fit that several processes share: who has which rows, and what each finds for its own.

Every process owns a range of the rows of the map (`cartograd.distributed.row_bounds`): it searches their neighbours,
holds their edges, moves them, and after each step gets the others' new places. The estimators call these functions
where a process alone would look at all rows.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from cartograd.affinity import checks
from cartograd.affinity.data import not_negative
from cartograd.affinity.entropic_rows import solve_rows
from cartograd.affinity.fuzzy import memberships, smooth_distances
from cartograd.distributed import Ranks, find_ranks
from cartograd.distributed.edges import own_graph
from cartograd.distributed.search import Wanted, search_own
from cartograd.embedding.neighbourhood import FARTHEST, Neighbourhood
from cartograd.embedding.rowkeys import row_keys
from cartograd.embedding.source import TRUE_DISTANCE, Source, searchable
from cartograd.errors import InputError
from cartograd.neighbors import Graph
from cartograd.neighbors.intake import Given
from cartograd.neighbors.rows import SparseRows, TensorRows
from cartograd.neighbors.validate import array_from

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
    found = _facts(ranks, given)
    if getattr(model, "distributed", "auto") != "sharded" and bool((found == found[0]).all()):
        return given, y
    _check_shards(found, getattr(model, "distributed", "auto"))
    counts = found[:, 0].tolist()
    before = sum(counts[: ranks.rank])
    model._shown_rows = slice(before, before + counts[ranks.rank])
    if y is not None:
        y = ranks.gathered(torch.as_tensor(array_from(y, "y")), "labels").numpy()
    log.info("%d processes hold %s rows of %d", ranks.size, counts, sum(counts))
    return gathered_rows(ranks, given), y


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


# what is found for own rows


def own_neighbourhood(
    model: AffinityMatcher, source: Source, k: int, found: tuple[torch.Tensor, torch.Tensor] | None
) -> Neighbourhood:
    """The k nearest rows of each row that this process owns; `found` are those of all rows, where they were given."""
    assert model._ranks is not None
    assert model._bounds is not None
    start, stop = model._bounds[model._ranks.rank], model._bounds[model._ranks.rank + 1]
    if found is None:
        metric = TRUE_DISTANCE.get(source.metric, source.metric) if isinstance(source.metric, str) else source.metric
        backend = "auto" if model.backend is None else model.backend
        wanted = Wanted(k, metric, backend, model._seed, model.verbose)
        indices, distances = search_own(searchable(source.rows), start, stop, wanted, source.rows.device)
        distances = not_negative(distances, metric)
        distances = distances.sqrt() if metric == "sqhyperbolic" else distances
    else:
        indices, distances = (part[start:stop].to(source.rows.device) for part in found)
    last = model._ranks.gathered(distances[:, -1].to(torch.float64), "distances of the last neighbours")
    last = last[last > 0]
    scale = float(last.median()) if len(last) else 1.0
    near = (distances.to(torch.float64) / scale).clamp_(max=FARTHEST)
    return Neighbourhood(indices, near.to(distances.dtype), scale)


@dataclass(frozen=True)
class OwnEdges:
    """What a process must know of the others' edges to let its own act as if all were its own.

    Parameters
    ----------
    ranks : Ranks
        The processes.
    bounds : list of int
        Whose rows are whose.
    largest : float
        The largest weight of all edges.
    """

    ranks: Ranks
    bounds: list[int]
    largest: float

    @property
    def own(self) -> slice:
        """The rows of this process."""
        return slice(self.bounds[self.ranks.rank], self.bounds[self.ranks.rank + 1])

    def edges_before(self, count: int) -> int:
        """How many edges the processes before this one have, `count` being its own."""
        return sum(one for (one,) in self.ranks.agree("numbers of edges", count)[: self.ranks.rank])

    def share(self, places: torch.Tensor) -> None:
        """Get the others' rows of a layout."""
        self.ranks.share_rows(places, self.bounds)


def own_edges(model: AffinityMatcher, graph: Graph) -> OwnEdges | None:
    """The edges of this process among those of all; None where it works alone."""
    if model._ranks is None or model._bounds is None:
        return None
    largest = float(graph.weights.max()) if graph.n_edges else 0.0
    most = model._ranks.gathered(torch.tensor([largest], dtype=torch.float64), "largest weights").max()
    return OwnEdges(model._ranks, model._bounds, float(most))


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
