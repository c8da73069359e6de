r"""Edges that lead back: a graph made symmetric by processes that each hold the edges of their own rows.

Each sends the edge i -> j to the owner of j as the key :math:`j n + i` (int64) with its weight, once. What arrives and
what was there are kept apart until both are known: :math:`P_{ij}` and :math:`P_{ji}` are then combined as
`cartograd.neighbors.Graph.symmetrise` does, edge by edge, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cartograd.distributed.group import Ranks
from cartograd.neighbors.graph import Graph, _combined, _firsts


def own_graph(
    ranks: Ranks, bounds: list[int], indices: torch.Tensor, weights: torch.Tensor, mode: str, mix: float = 1.0
) -> Graph:
    r"""The rows that this process owns of the symmetric graph of all.

    Parameters
    ----------
    ranks : Ranks
        The processes.
    bounds : list of int
        Where the rows of each process begin, and their number n.
    indices, weights : torch.Tensor
        (m, k) int64 and (m, k): the edges of this process's rows.
    mode : str
        "mean", "union", "max" or "sum", as in `Graph.symmetrise`; a union is without edges of weight 0.
    mix : float, default=1.0
        With "union": 1 for the union of fuzzy sets, 0 for their intersection, as in `affinity.fuzzy.fuzzy_union`.

    Returns
    -------
    graph : Graph
        Of n rows, of which only those of this process have edges.
    """
    n, start = bounds[-1], bounds[ranks.rank]
    rows = torch.arange(start, start + len(indices), device=indices.device)[:, None].expand(indices.shape).reshape(-1)
    columns, values = indices.reshape(-1), weights.reshape(-1)
    ahead, order = torch.sort(rows * n + columns, stable=True)
    back, theirs = _sent_back(ranks, bounds, rows, columns, values)
    keys, place = torch.sort(torch.cat([ahead, back]), stable=True)
    first = _firsts(keys) if len(keys) else keys.to(torch.bool)
    slot = torch.cumsum(first, 0) - 1
    there = torch.zeros(int(first.sum()), dtype=weights.dtype, device=weights.device)
    returned = torch.zeros_like(there)
    mine = place < len(ahead)
    there[slot[mine]] = values[order][place[mine]]
    returned[slot[~mine]] = theirs[place[~mine] - len(ahead)]
    joined, keys = _joined(there, returned, mode, mix), keys[first]
    if mode == "union":
        keys, joined = keys[joined > 0], joined[joined > 0]
    return Graph._from_keys(keys, joined, n)


def _joined(there: torch.Tensor, back: torch.Tensor, mode: str, mix: float) -> torch.Tensor:
    joined = _combined(there, back, mode)
    if mode != "union" or mix == 1.0:
        return joined
    product = _combined(there, back, "sum") - joined
    return (mix * joined + (1 - mix) * product).clamp_(min=0)


def _sent_back(
    ranks: Ranks, bounds: list[int], rows: torch.Tensor, columns: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every edge turned round, at the process that owns its row: keys and weights."""
    n = bounds[-1]
    edges = torch.tensor(bounds[1:-1], dtype=torch.int64, device=columns.device)
    owner = torch.bucketize(columns, edges, right=True)
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner, minlength=ranks.size).tolist()
    keys = (columns * n + rows)[order].split(counts)
    weights = values[order].split(counts)
    return torch.cat(ranks.exchanged(keys, "edges")), torch.cat(ranks.exchanged(weights, "weights"))


def both_ends(ranks: Ranks, bounds: list[int], others: torch.Tensor, dtype: torch.dtype) -> Graph:
    """The pairs of each row of this process with row i of `others` (m, p), from both their ends, weight 1/2 each.

    Pairs that are there twice weigh twice as much. Of n rows, of which only those of this process have edges.
    """
    n, start = bounds[-1], bounds[ranks.rank]
    rows = torch.arange(start, start + len(others), device=others.device)[:, None].expand(others.shape).reshape(-1)
    columns = others.reshape(-1)
    halves = torch.full((len(rows),), 0.5, dtype=dtype, device=others.device)
    back, theirs = _sent_back(ranks, bounds, rows, columns, halves)
    rows = torch.cat([rows, torch.div(back, n, rounding_mode="floor")])
    return Graph.from_edges(rows, torch.cat([columns, back % n]), torch.cat([halves, theirs]), n)


def listed_ends(ranks: Ranks, bounds: list[int], kinds: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs of several kinds as lists of other ends, for the rows of this process; those of all others are empty.

    Parameters
    ----------
    ranks, bounds
        See `own_graph`.
    kinds : sequence of torch.Tensor
        (m, p) int64 each: row i of this process is a pair with the rows in row i.

    Returns
    -------
    indptr : torch.Tensor
        (kinds n + 1,) int64: where the pairs of row i and kind k begin, at ``kinds i + k``.
    columns : torch.Tensor
        int64, the other ends, in the order of the row that drew the pair.
    """
    n, start = bounds[-1], bounds[ranks.rank]
    keys, columns = [], []
    for kind, others in enumerate(kinds):
        own = torch.arange(start, start + len(others), device=others.device)[:, None].expand(others.shape).reshape(-1)
        back, _ = _sent_back(ranks, bounds, own, others.reshape(-1), torch.zeros_like(own))
        ends, drawn_by = torch.div(back, n, rounding_mode="floor"), back % n
        rows, drawn_by = torch.cat([own, ends]), torch.cat([own, drawn_by])
        keys.append((rows * len(kinds) + kind) * n + drawn_by)
        columns.append(torch.cat([others.reshape(-1), drawn_by[len(own) :]]))
    joined, order = torch.sort(torch.cat(keys), stable=True)
    counts = torch.bincount(torch.div(joined, n, rounding_mode="floor"), minlength=len(kinds) * n)
    return torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)]), torch.cat(columns)[order]
