"""Sketches of integers: exact products, the same for a row alone, no distance longer, and what they hide."""

import pytest
import torch

from cartograd.neighbors.rows import TensorRows
from cartograd.neighbors.whole_sketch import half_squares, hidden, whole_sketch

DRAWS = torch.Generator().manual_seed(3)


def drawn(count, width, rank=30):
    basis = torch.randn(rank, width, generator=torch.Generator().manual_seed(width))
    return torch.randn(count, rank, generator=DRAWS) @ basis + 0.3 * torch.randn(count, width, generator=DRAWS) + 7


def made(data):
    return whole_sketch(TensorRows(data), torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("width", "columns"), [(50, 50), (384, 384), (500, 192)])
def test_products_are_exact_and_a_row_alone_gets_the_same(width, columns):
    data = drawn(2000, width)
    sketch = made(data)
    short, far = sketch.of(TensorRows(data))
    assert short.dtype == torch.int16
    assert short.shape == (2000, columns)
    assert not bool(far.any())
    for row in (0, 7, 1999):
        assert torch.equal(sketch.of(TensorRows(data[row : row + 1]))[0], short[row : row + 1])
    products = short[:100].to(torch.float32) @ short.to(torch.float32).T
    assert torch.equal(products.to(torch.int64), short[:100].to(torch.int64) @ short.to(torch.int64).T)
    squares = short.to(torch.int64).square().sum(1)
    assert torch.equal(half_squares(short.to(torch.float32)).to(torch.int64), squares // 2)
    assert int(squares.max()) + int(products.abs().max()) < 2**24


@pytest.mark.parametrize("width", [50, 500])
def test_distances_of_sketches_are_lower_bounds_but_for_rounding(width):
    data = drawn(1000, width)
    sketch = made(data)
    short, _ = sketch.of(TensorRows(data))
    true = torch.cdist(data[:200], data[200:])
    seen = torch.cdist(short[:200].to(torch.float32), short[200:].to(torch.float32)) / sketch.scale
    rounding = short.shape[1] ** 0.5 / sketch.scale
    assert bool((seen <= 1.01 * true + rounding).all())
    assert float((seen / true).mean()) > 0.9


def test_rows_far_out_are_told():
    data = drawn(1000, 50)
    asked = torch.cat([drawn(3, 50), 7 + 30 * (drawn(2, 50) - 7)])
    assert made(data).of(TensorRows(asked))[1].tolist() == [False, False, False, True, True]


def test_the_share_of_hidden_neighbours():
    short = torch.randint(-60, 60, (3000, 8), generator=DRAWS).to(torch.int16)
    sample = torch.arange(0, 3000, 37)
    neighbours = torch.randint(3000, (len(sample), 5), generator=DRAWS)
    apart = half_squares(short.to(torch.float32)) - short[sample].to(torch.float32) @ short.to(torch.float32).T
    as_near = (apart[:, None, :] <= apart.gather(1, neighbours)[:, :, None]).sum(2) - 2
    wanted = [float((as_near >= count).to(torch.float64).mean()) for count in (10, 500, 2000)]
    assert hidden(short, sample, neighbours, [10, 500, 2000]) == wanted
    assert wanted[0] > wanted[1] > wanted[2] > 0
