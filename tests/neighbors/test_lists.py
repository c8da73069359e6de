"""Running candidate lists against one big sort, and searches that run at the same time."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from cartograd.neighbors import search
from cartograd.neighbors.lists import Lists, below_columns, below_rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("capacity", [1, 500, 10**9])
def test_equals_one_big_sort(dtype, capacity):
    generator = torch.Generator().manual_seed(0)
    D = torch.rand(300, 700, generator=generator, dtype=dtype)
    lists = Lists(300, 9, torch.device("cpu"), dtype)
    lists._capacity = lists._room = capacity
    for names in torch.randperm(700, generator=generator).split(90):
        for rows in torch.randperm(300, generator=generator).split(100):
            tile = D[rows][:, names].contiguous()
            if len(names) % 2:
                lists.offer(rows, names, tile)
            else:
                lists.offer_columns(rows, names, tile.T.contiguous())
    lists.settle()
    wanted = D.topk(9, dim=1, largest=False)
    value, order = lists.value.sort(dim=1)
    assert torch.equal(value, wanted.values)
    assert torch.equal(lists.ids.gather(1, order).long(), wanted.indices)
    assert torch.equal(lists.worst, wanted.values[:, -1])


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
