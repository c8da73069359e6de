"""Cells made once and asked for new rows: recall, exact distances, each row alone, rows that see too little."""

import pytest
import torch

from cartograd.neighbors import search
from cartograd.neighbors.query_cells import RECALL, QueryCells
from cartograd.neighbors.workers import all_cores

DRAWS = torch.Generator().manual_seed(0)
CENTRES = torch.randn(40, 24, generator=DRAWS) * 2


def drawn(count, dtype=torch.float32):
    kind = torch.randint(40, (count,), generator=DRAWS)
    return (CENTRES[kind] + torch.randn(count, 24, generator=DRAWS)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_most_true_neighbours_at_their_true_distances(dtype, offset):
    data, asked = drawn(6000, dtype) + offset, drawn(500, dtype) + offset
    cells = QueryCells(data, 10, seed=1)
    ids, distances = cells.nearest(asked, 10)
    truth, _ = search(data, 10, queries=asked, backend="exact")
    recall = float((ids[:, :, None] == truth[:, None, :]).any(2).to(torch.float64).mean())
    print("recall", recall, "probes", cells.probes, "of", len(cells.routing))
    assert recall > RECALL - 0.05
    assert cells.probes < len(cells.routing) / 3
    exact = torch.linalg.vector_norm((data[ids] - asked[:, None]).to(torch.float64), dim=2)
    assert torch.allclose(distances.to(torch.float64), exact, rtol=1e-5)
    assert bool((distances.diff(dim=1) >= 0).all())


def test_a_query_does_not_depend_on_the_others_nor_on_threads():
    data, asked = drawn(6000), drawn(300)
    cells = QueryCells(data, 7, seed=1)
    ids, distances = cells.nearest(asked, 7)
    order = torch.randperm(300, generator=DRAWS)
    assert torch.equal(cells.nearest(asked[order], 7)[0], ids[order])
    assert torch.equal(cells.nearest(asked[5:6], 7)[0], ids[5:6])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with all_cores(data.device):
            again = QueryCells(data, 7, seed=1).nearest(asked, 7)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(again[0], ids)
    assert torch.equal(again[1], distances)


def test_queries_that_see_too_few_rows_are_searched_exactly(monkeypatch):
    far = torch.full((3, 24), 500.0) + torch.randn(3, 24, generator=DRAWS)
    data = torch.cat([drawn(4000), far])
    cells = QueryCells(data, 5, seed=0)
    cells.probes = 1
    asked = far + 0.1
    ids, _ = cells.nearest(asked, 50)
    assert torch.equal(ids, search(data, 50, queries=asked, backend="exact")[0])
