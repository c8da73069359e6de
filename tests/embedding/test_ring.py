"""Draws on a ring: even, independent, and known from both ends; the pushes are the gradient of the loss."""

import pytest
import torch

from cartograd.affinity.counter import stream
from cartograd.embedding import ring
from cartograd.embedding.sampled_forces import push_both_ends

CPU = torch.device("cpu")


def draws(n, count, steps, seed=0):
    """(steps, n, count)."""
    order = ring.ring_order(n, seed, CPU)
    found = [ring.shifts(stream(seed, "negatives", step), count, n, CPU) for step in range(steps)]
    return torch.stack([ring.drawn(order, shift) for shift in found])


def chi_square(counts, expected):
    return float(((counts.double() - expected) ** 2 / expected).sum())


def test_the_order_is_one_of_all_rows_and_changes_with_the_seed():
    first, second = (ring.ring_order(1000, seed, CPU) for seed in (1, 2))
    assert torch.equal(first.sort().values, torch.arange(1000))
    assert float((first == second).float().mean()) < 0.02
    assert float((first.diff().abs() == 1).float().mean()) < 0.02  # rows that follow each other do not here


@pytest.mark.parametrize(("n", "count"), [(2, 3), (7, 4), (50, 300)])
def test_never_the_row_itself_and_each_drawn_once_a_draw(n, count):
    for one in draws(n, count, 5):
        assert not bool((one == torch.arange(n)[:, None]).any())
        for draw in one.T:
            assert torch.equal(draw.sort().values, torch.arange(n))


def test_a_rows_draws_are_even():
    n, found = 40, draws(40, 10, 2000)
    for row in (0, 17, 39):
        counts = torch.bincount(found[:, row].reshape(-1), minlength=n)
        assert counts[row] == 0
        others = torch.cat([counts[:row], counts[row + 1 :]])
        assert chi_square(others, 20_000 / 39) < 38 + 5 * (2 * 38) ** 0.5  # five standard deviations


@pytest.mark.parametrize("lag", ["draw", "step"])
def test_a_rows_draws_do_not_depend_on_each_other(lag):
    n, found = 10, draws(10, 10, 4000)[:, 3]
    first, second = (found[:, :-1], found[:, 1:]) if lag == "draw" else (found[:-1], found[1:])
    pairs = torch.bincount((first * n + second).reshape(-1), minlength=n * n).view(n, n)
    met = pairs[[row for row in range(n) if row != 3]][:, [row for row in range(n) if row != 3]]
    assert chi_square(met, float(pairs.sum()) / 81) < 80 + 5 * (2 * 80) ** 0.5


@pytest.mark.parametrize("contrastive", [True, False])
@pytest.mark.parametrize(("n", "count"), [(2, 3), (30, 1), (60, 25)])
def test_pushes_are_the_gradient_of_the_loss(n, count, contrastive, monkeypatch):
    order, shift = ring.ring_order(n, 3, CPU), ring.shifts(stream(3, "negatives", 4), count, n, CPU)
    Z = torch.randn(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    whole = ring.loss(Z, order, shift, contrastive)
    (true,) = torch.autograd.grad(whole, Z)
    torch.testing.assert_close(ring.pushes(Z.detach(), order, shift, contrastive), true, rtol=1e-10, atol=1e-14)
    monkeypatch.setattr(ring, "PIECE_PAIRS", 7 * count)
    torch.testing.assert_close(ring.loss(Z, order, shift, contrastive), whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize("contrastive", [True, False])
def test_pushes_are_those_of_both_ends(contrastive):
    order, shift = ring.ring_order(80, 3, CPU), ring.shifts(9, 12, 80, CPU)
    Z = torch.randn(80, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def slope(s):
        w = 1 / (1 + s)
        return -(w * w / w.sum(1, keepdim=True) if contrastive else 1 / ((1 + s) * (2 + s))) / 80

    true = push_both_ends(Z, ring.drawn(order, shift), slope)
    torch.testing.assert_close(ring.pushes(Z, order, shift, contrastive), true, rtol=1e-10, atol=1e-14)
