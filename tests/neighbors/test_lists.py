"""Running candidate lists against one big sort, and searches that run at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from cartograd.neighbors import search
from cartograd.neighbors.lists import Lists, below_columns, below_rows
from cartograd.neighbors.workers import all_cores, spread


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("settle_every", [1, 3, 100])
def test_equals_one_big_sort(dtype, settle_every):
    generator = torch.Generator().manual_seed(0)
    D = torch.rand(300, 700, generator=generator, dtype=dtype)
    lists = Lists(300, 9, torch.device("cpu"), dtype)
    tiles = [(r, c) for c in torch.randperm(700, generator=generator).split(90) for r in torch.arange(300).split(100)]
    for count, (rows, names) in enumerate(tiles):
        tile = D[rows][:, names].contiguous()
        if count % 2:
            lists.add(*lists.pick(rows, names, tile))
        else:
            lists.add(*lists.pick_columns(rows, names, tile.T.contiguous()))
        if count % settle_every == 0:
            lists.settle()
    lists.settle()
    wanted = D.topk(9, dim=1, largest=False)
    value, order = lists.value.sort(dim=1)
    assert torch.equal(value, wanted.values)
    assert torch.equal(lists.candidates().gather(1, order), wanted.indices)
    assert torch.equal(lists.worst, wanted.values[:, -1])


def test_best_at_once_equals_one_big_sort():
    D = torch.rand(50, 200, generator=torch.Generator().manual_seed(0))
    lists = Lists(50, 9, torch.device("cpu"))
    for names in torch.arange(200).split(5):
        lists.take_best(torch.arange(50), names, D[:, names])
    assert torch.equal(lists.value.sort(dim=1).values, D.topk(9, dim=1, largest=False).values)


def test_pieces_are_spread_over_threads_in_order_and_settings_come_back():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with all_cores(torch.device("cpu")):
            inside = list(spread(lambda i: (i, torch.get_num_threads(), threading.current_thread().name), range(50)))
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
        assert [i for i, _, _ in inside] == list(range(50))
        assert {count for _, count, _ in inside} == {1}
        assert all(name.startswith("cartograd-neighbors") for _, _, name in inside)
        with pytest.raises(ZeroDivisionError), all_cores(torch.device("cpu")):
            list(spread(lambda i: 1 // i, [1, 0]))
        assert torch.get_num_threads() == 3
        with ThreadPoolExecutor(1) as fresh:
            assert fresh.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)


def test_entries_below_a_limit_and_above_a_floor():
    tile = torch.tensor([[0.1, 0.5, 0.2], [0.3, 0.0, 0.9]])
    row, column, value = below_rows(tile, torch.tensor([0.3, 0.05]), torch.tensor([0.15, 0.05]))
    assert (row.tolist(), column.tolist()) == ([0, 0], [0, 2])
    assert value.tolist() == pytest.approx([0.15, 0.2])
    row, column, _ = below_columns(tile, torch.tensor([0.2, 0.6, 0.1]))
    assert (row.tolist(), column.tolist()) == ([0, 0, 1], [0, 1, 1])


def test_searches_in_two_threads_do_not_disturb_each_other():
    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(1500, 8)).astype(np.float32) for _ in range(4)]
    alone = [search(X, 5, backend=backend) for X in sets for backend in ("exact", "cells")]
    jobs = [(X, backend) for X in sets for backend in ("exact", "cells")]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda job: search(job[0], 5, backend=job[1]), jobs))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    assert torch.get_float32_matmul_precision() == "highest"
