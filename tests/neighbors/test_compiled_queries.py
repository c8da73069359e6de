"""Cells of sketches for new rows: recall, distances, each row alone, rows far out, data that sketches cannot tell."""

import pytest
import torch

from cartograd.neighbors import search
from cartograd.neighbors.compiled_queries import LOST, CompiledQueries, compiled_queries, query_cells
from cartograd.neighbors.query_cells import QueryCells
from cartograd.neighbors.rows import TensorRows
from cartograd.neighbors.sketch_cells import RECALL
from cartograd.neighbors.workers import all_cores

DRAWS = torch.Generator().manual_seed(0)


def drawn(count, width, offset=0.0):
    centres = torch.randn(40, width, generator=torch.Generator().manual_seed(1)) * 2
    basis = torch.randn(24, width, generator=torch.Generator().manual_seed(2)) * (24 / width) ** 0.5
    kind = torch.randint(40, (count,), generator=DRAWS)
    noise = torch.randn(count, 24, generator=DRAWS) @ basis + 0.1 * torch.randn(count, width, generator=DRAWS)
    return centres[kind] + noise + offset


def share_found(ids, truth):
    return float((ids[:, :, None] == truth[:, None, :]).any(2).to(torch.float64).mean())


@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("width", [24, 500])
def test_most_true_neighbours_at_their_true_distances(width, offset):
    data, asked = drawn(6000, width, offset), drawn(500, width, offset)
    cells = query_cells(data, 10, seed=1)
    assert isinstance(cells, CompiledQueries)
    ids, distances = cells.nearest(asked, 10)
    truth, _ = search(data, 10, queries=asked, backend="exact")
    recall = share_found(ids, truth)
    print("recall", recall, "probes", cells.cells.probes, "of", len(cells.cells.routing), "factor", cells.factor)
    assert recall > RECALL - LOST - 0.05
    assert cells.cells.probes < len(cells.cells.routing) / 2
    exact = torch.linalg.vector_norm((data[ids] - asked[:, None]).to(torch.float64), dim=2)
    assert torch.allclose(distances.to(torch.float64), exact, rtol=1e-5)
    assert distances.dtype == torch.float32
    assert bool((distances.diff(dim=1) >= 0).all())


@pytest.mark.parametrize("width", [24, 500])
def test_a_query_does_not_depend_on_the_others_nor_on_threads(width):
    data, asked = drawn(6000, width), drawn(300, width)
    asked[17] = data[5] + 100  # far out
    cells = query_cells(data, 7, seed=1)
    ids, distances = cells.nearest(asked, 7)
    order = torch.randperm(300, generator=DRAWS)
    assert all(map(torch.equal, cells.nearest(asked[order], 7), (ids[order], distances[order])))
    for row in (5, 17, 299):
        alone = slice(row, row + 1)
        assert all(map(torch.equal, cells.nearest(asked[alone], 7), (ids[alone], distances[alone])))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with all_cores(data.device):
            again = query_cells(data, 7, seed=1).nearest(asked, 7)
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, again, (ids, distances)))


def test_rows_far_out_are_searched_among_whole_rows():
    data = drawn(5000, 24)
    cells = query_cells(data, 10, seed=0)
    asked = 50 * drawn(40, 24)
    assert bool(cells.sketch.of(TensorRows(asked))[1].all())
    ids, distances = cells.nearest(asked, 10)
    wanted = QueryCells(data, 10, 0).nearest(asked, 10)
    assert torch.equal(ids, wanted[0])
    assert torch.equal(distances, wanted[1])


def test_queries_that_see_too_few_rows_are_searched_exactly():
    data = torch.cat([drawn(4000, 24), torch.full((3, 24), 20.0) + torch.randn(3, 24, generator=DRAWS)])
    cells = query_cells(data, 5, seed=0)
    cells.cells.probes = 1
    asked = data[-3:] + 0.1
    ids, _ = cells.nearest(asked, 1500)
    assert torch.equal(ids, search(data, 1500, queries=asked, backend="exact")[0])


def test_data_that_sketches_cannot_tell_apart_are_searched_whole():
    """Clusters a million times as far from each other as their rows are: all rows of one have the same sketch."""
    data = drawn(4000, 24) * 1e-3
    data[::2] += 5000
    assert compiled_queries(data, 10, seed=0) is None
    assert isinstance(query_cells(data, 10, seed=0), QueryCells)


def test_double_precision_is_searched_whole():
    assert isinstance(query_cells(drawn(1000, 24).to(torch.float64), 5, seed=0), QueryCells)


def test_without_numba_rows_are_searched_whole(monkeypatch):
    monkeypatch.setattr("cartograd.kernels.cpu.usable", lambda: False)
    assert isinstance(query_cells(drawn(1000, 24), 5, seed=0), QueryCells)
